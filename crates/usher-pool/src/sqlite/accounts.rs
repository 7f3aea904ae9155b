//! What accounts have and may have. `usher_core` judges; here are its rows.
//!
//! A live session counts by being there. Only claims of sessions that do not live here have rows of
//! their own, so that nothing has to be renewed while a session goes on, and nothing is left over
//! when it ends.

use std::collections::BTreeMap;
use std::time::Duration;

use rusqlite::Connection;
use usher_core::id::Id;
use usher_core::lease::SessionId;
use usher_core::lease::account::{Account, Kept, SLOT_CONFIRMED};
use usher_core::lease::bucket::Bucket;
use usher_core::lease::limits::{AccountKind, Limits};
use usher_core::lease::line::Class;
use usher_core::lease::refusal::Refusal;
use usher_core::lease::window::Window;
use usher_core::time::Wall;

use super::desk::{Desk, class_of, wide};
use crate::fault::Fault;
use crate::view::AccountView;

/// An account as its rows say.
struct Loaded {
    account: Account,
    /// Its row, if there is one.
    row: Option<Kept>,
    /// Claims that have rows.
    slots: BTreeMap<SessionId, Wall>,
    /// Sessions that live here.
    live: Vec<SessionId>,
    /// Browsers that are lent to it here for something else.
    others: u32,
}

impl Desk<'_> {
    pub(super) fn admit(
        &mut self,
        id: Id,
        limits: Limits,
        session: SessionId,
    ) -> Result<Result<(), Refusal>, Fault> {
        self.with(id, limits, |account, now| account.admit(session, now))
    }

    pub(super) fn admit_quick_action(
        &mut self,
        id: Id,
        limits: Limits,
    ) -> Result<Result<(), Refusal>, Fault> {
        self.with(id, limits, |account, now| account.admit_quick_action(now))
    }

    pub(super) fn refund_quick_action(&mut self, id: Id, limits: Limits) -> Result<(), Fault> {
        self.with(id, limits, |account, now| {
            account.pass(now);
            account.refund_quick_action();
        })
    }

    pub(super) fn refund(
        &mut self,
        id: Id,
        limits: Limits,
        session: SessionId,
    ) -> Result<(), Fault> {
        self.with(id, limits, |account, now| {
            account.pass(now);
            account.refund(session);
        })
    }

    pub(super) fn hand_on(
        &mut self,
        id: Id,
        limits: Limits,
        failed: SessionId,
        next: SessionId,
    ) -> Result<(), Fault> {
        self.with(id, limits, |account, now| {
            account.pass(now);
            account.hand_on(failed, next, now);
        })
    }

    pub(super) fn confirm(
        &mut self,
        id: Id,
        limits: Limits,
        session: SessionId,
    ) -> Result<(), Fault> {
        self.with(id, limits, |account, now| account.confirm(session, now))
    }

    /// The claim of a session goes, and its time is counted. Nothing where the account is not at
    /// home.
    pub(super) fn release(
        &mut self,
        id: Id,
        session: SessionId,
        billed: Duration,
    ) -> Result<(), Fault> {
        self.unclaim(id, session)?;
        self.spend(id, billed)
    }

    fn unclaim(&mut self, id: Id, session: SessionId) -> Result<(), Fault> {
        let sql = "DELETE FROM slot WHERE account = ?1 AND session = ?2";
        let row = (id.to_bytes(), session.0.to_be_bytes());
        self.run(sql, row).map(|_| ())
    }

    pub(super) fn spend(&mut self, id: Id, time: Duration) -> Result<(), Fault> {
        if time.is_zero() {
            return Ok(());
        }
        let Some(row) = row(self.connection, id)? else {
            return Ok(());
        };
        // Counting time asks for no limit.
        let mut account = Account::of_kept(Limits::of(AccountKind::Free), row);
        account.spend(time, self.now);
        self.save_row(id, &account.kept())
    }

    /// Looks at an account, changes it, and keeps what has changed.
    fn with<T>(
        &mut self,
        id: Id,
        limits: Limits,
        change: impl FnOnce(&mut Account, Wall) -> T,
    ) -> Result<T, Fault> {
        let mut loaded = load(self.connection, id, limits, self.now)?;
        let done = change(&mut loaded.account, self.now);
        let kept = loaded.account.kept();
        let same = loaded.row.as_ref().is_some_and(|row| {
            (row.browsers, &row.minute, row.quick_actions, row.used)
                == (kept.browsers, &kept.minute, kept.quick_actions, kept.used)
        });
        if !same {
            self.save_row(id, &kept)?;
        }
        for session in loaded.slots.keys() {
            if !kept.slots.contains_key(session) {
                self.unclaim(id, *session)?;
            }
        }
        for (session, &until) in &kept.slots {
            if loaded.live.contains(session) || loaded.slots.get(session) == Some(&until) {
                continue;
            }
            let sql = "INSERT INTO slot (session, account, until) VALUES (?1, ?2, ?3)
                ON CONFLICT (account, session) DO UPDATE SET until = ?3";
            let row = (session.0.to_be_bytes(), id.to_bytes(), until.as_millis());
            self.run(sql, row)?;
        }
        Ok(done)
    }

    fn save_row(&mut self, id: Id, kept: &Kept) -> Result<(), Fault> {
        let (browsers, browsers_at) = kept.browsers.kept();
        let (quick, quick_at) = kept.quick_actions.kept();
        let minute: Vec<u8> = kept
            .minute
            .kept()
            .flat_map(|grant| grant.as_millis().to_be_bytes())
            .collect();
        let (day, used) = kept.used;
        let sql = "INSERT INTO account (id, browsers, browsers_at, minute, quick_actions,
                quick_actions_at, day, used_ms)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
            ON CONFLICT (id) DO UPDATE SET browsers = ?2, browsers_at = ?3, minute = ?4,
                quick_actions = ?5, quick_actions_at = ?6, day = ?7, used_ms = ?8";
        let whole = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let row = (
            id.to_bytes(),
            whole(browsers),
            browsers_at.as_millis(),
            minute,
            whole(quick),
            quick_at.as_millis(),
            day,
            whole(used),
        );
        self.run(sql, row).map(|_| ())
    }
}

/// What an account has. For a reader.
pub(super) fn view(
    connection: &Connection,
    id: Id,
    limits: Limits,
    now: Wall,
) -> Result<AccountView, Fault> {
    let Loaded {
        mut account,
        others,
        ..
    } = load(connection, id, limits, now)?;
    account.pass(now);
    Ok(AccountView {
        sessions: account.sessions().collect(),
        others,
        wait: account.wait(now),
        used: account.used(),
    })
}

fn load(connection: &Connection, id: Id, limits: Limits, now: Wall) -> Result<Loaded, Fault> {
    let row = row(connection, id)?;
    let read = |row: &rusqlite::Row<'_>| {
        let until = Wall::from_millis(row.get(1)?);
        Ok((SessionId(wide(row, 0)?), until))
    };
    let sql = "SELECT session, until FROM slot WHERE account = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let slots = statement.query_map([id.to_bytes()], read)?;
    let slots: BTreeMap<SessionId, Wall> = slots.collect::<Result<_, _>>()?;
    let sql = "SELECT id, class FROM session INDEXED BY session_live
        WHERE account = ?1 AND ended IS NULL";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([id.to_bytes()])?;
    let (mut live, mut others) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        match class_of(row.get(1)?) {
            Some(Class::Session) => live.push(SessionId(wide(row, 0)?)),
            _ => others += 1,
        }
    }
    let until = now.after(SLOT_CONFIRMED);
    let mut counting = slots.clone();
    counting.extend(live.iter().map(|&session| (session, until)));
    let kept = row
        .clone()
        .unwrap_or_else(|| Account::new(limits, now).kept());
    let account = Account::of_kept(
        limits,
        Kept {
            slots: counting,
            ..kept
        },
    );
    Ok(Loaded {
        account,
        row,
        slots,
        live,
        others,
    })
}

fn row(connection: &Connection, id: Id) -> Result<Option<Kept>, Fault> {
    let sql = "SELECT browsers, browsers_at, minute, quick_actions, quick_actions_at, day, used_ms
        FROM account WHERE id = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([id.to_bytes()])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let count = |column| row.get::<_, i64>(column).map(|count| count.max(0) as u64);
    let at = |column| row.get(column).map(Wall::from_millis);
    let minute: Vec<u8> = row.get(2)?;
    let grants = minute
        .as_chunks::<8>()
        .0
        .iter()
        .map(|&grant| Wall::from_millis(i64::from_be_bytes(grant)));
    Ok(Some(Kept {
        browsers: Bucket::of_kept(count(0)?, at(1)?),
        minute: Window::of_kept(grants),
        quick_actions: Bucket::of_kept(count(3)?, at(4)?),
        slots: BTreeMap::new(),
        used: (row.get(5)?, count(6)?),
    }))
}
