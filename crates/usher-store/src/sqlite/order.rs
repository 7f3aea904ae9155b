//! One batch of orders as one transaction.
//!
//! A check that refuses, or an order that does not fit, costs the others nothing: an order touches
//! the database only after it was carried out in memory. What fails after that is a fault of the
//! disk, and fails the whole batch.

use std::panic::{AssertUnwindSafe, catch_unwind};

use sqlx::{Row as _, SqliteConnection, query, query_scalar};

use super::load::{self, revision, signed};
use crate::change::{Change, Repeat};
use crate::fault::Fault;
use crate::resource::{Private, Resource, Revision};
use crate::state::{Effect, State};
use crate::store::{Intent, Order, Outcome, Retention, Written};

/// Old changes that leave the audit log with one batch, so that no batch waits long for it. More
/// than a batch brings, so that a log that is too long gets shorter.
const TRIM_MAX: i64 = 256;

/// What became of each order of a batch, and the state after it, if it is another one.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) outcomes: Vec<Result<Outcome, Fault>>,
    pub(super) state: Option<State>,
}

/// Carries orders out, one after the other, on top of `known`, and commits what they wrote.
///
/// # Errors
/// Nothing was written. The connection may be inside a transaction and must be given up.
pub(super) async fn carry_out(
    connection: &mut SqliteConnection,
    known: &State,
    orders: Vec<Order>,
    retention: &Retention,
) -> Result<Batch, Fault> {
    query("BEGIN IMMEDIATE").execute(&mut *connection).await?;
    let mut state = newest(connection, known).await?;
    let forgotten = state.forgotten();
    let began = state.revision();
    let mut outcomes = Vec::with_capacity(orders.len());
    for order in orders {
        outcomes.push(one(connection, &mut state, order).await?);
    }
    if state.revision() == began {
        query("ROLLBACK").execute(&mut *connection).await?;
    } else {
        seal(connection, &state, forgotten, retention).await?;
        query("COMMIT").execute(&mut *connection).await?;
    }
    let state = (state.revision() != known.revision()).then_some(state);
    Ok(Batch { outcomes, state })
}

/// What is known, unless the database says otherwise: after a commit of which nobody learned how it
/// ended.
async fn newest(connection: &mut SqliteConnection, known: &State) -> Result<State, Fault> {
    let kept: i64 = query_scalar("SELECT revision FROM meta")
        .fetch_one(&mut *connection)
        .await?;
    if kept == signed(known.revision().0) {
        return Ok(known.clone());
    }
    tracing::warn!(known = known.revision().0, kept, "the store is read anew");
    load::state(connection).await
}

async fn one(
    connection: &mut SqliteConnection,
    state: &mut State,
    Order { intent, check }: Order,
) -> Result<Result<Outcome, Fault>, Fault> {
    if let Some(repeat) = intent.repeat
        && repeat.again
        && let Some(written) = told_before(connection, &intent, repeat).await?
    {
        return Ok(Ok(Outcome::Written(written)));
    }
    let checked = catch_unwind(AssertUnwindSafe(|| check(state)));
    let Ok(checked) = checked else {
        let what = format!("the check of {:?} panicked", intent.what);
        return Ok(Err(Fault::Internal(what)));
    };
    let Some(Change { ops, answer }) = checked else {
        return Ok(Ok(Outcome::Refused));
    };
    let effects = match state.apply(intent.at, ops) {
        Ok(effects) => effects,
        Err(conflict) => return Ok(Ok(Outcome::Conflict(conflict))),
    };
    let revision = state.revision();
    if !effects.is_empty() {
        keep(connection, &intent, revision, &effects).await?;
        if let Some(repeat) = intent.repeat {
            keep_answer(connection, &intent, repeat, revision, &answer).await?;
        }
    }
    Ok(Ok(Outcome::Written(Written {
        revision,
        answer,
        repeated: false,
    })))
}

async fn told_before(
    connection: &mut SqliteConnection,
    intent: &Intent,
    repeat: Repeat,
) -> Result<Option<Written>, Fault> {
    let row = query("SELECT revision, answer FROM repeats WHERE key = ?1 AND at > ?2")
        .bind(repeat.key.as_bytes().as_slice())
        .bind(intent.at.before(Repeat::WINDOW).as_micros())
        .fetch_optional(connection)
        .await?;
    row.map(|row| {
        Ok(Written {
            revision: revision(&row, "revision")?,
            answer: row.try_get("answer")?,
            repeated: true,
        })
    })
    .transpose()
}

async fn keep_answer(
    connection: &mut SqliteConnection,
    intent: &Intent,
    repeat: Repeat,
    revision: Revision,
    answer: &str,
) -> Result<(), Fault> {
    query("DELETE FROM repeats WHERE at <= ?1")
        .bind(intent.at.before(Repeat::WINDOW).as_micros())
        .execute(&mut *connection)
        .await?;
    query("INSERT OR REPLACE INTO repeats (key, at, revision, answer) VALUES (?1, ?2, ?3, ?4)")
        .bind(repeat.key.as_bytes().as_slice())
        .bind(intent.at.as_micros())
        .bind(signed(revision.0))
        .bind(answer)
        .execute(connection)
        .await?;
    Ok(())
}

/// The resources of a change, and its row in the audit log.
async fn keep(
    connection: &mut SqliteConnection,
    intent: &Intent,
    revision: Revision,
    effects: &[Effect],
) -> Result<(), Fault> {
    let token = intent.actor.token.map(|token| token.to_bytes().to_vec());
    query("INSERT INTO audit (revision, at, token, actor, what) VALUES (?1, ?2, ?3, ?4, ?5)")
        .bind(signed(revision.0))
        .bind(intent.at.as_micros())
        .bind(token)
        .bind(&intent.actor.name)
        .bind(&intent.what)
        .execute(&mut *connection)
        .await?;
    for (effect, position) in effects.iter().zip(0_u32..) {
        match effect {
            Effect::Created(after) => {
                unbury(connection, after).await?;
                put(connection, after).await?;
            }
            Effect::Replaced { after, .. } => put(connection, after).await?,
            Effect::Deleted(before) => bury(connection, before, revision).await?,
        }
        keep_item(connection, revision, position, effect).await?;
    }
    Ok(())
}

async fn put(connection: &mut SqliteConnection, resource: &Resource) -> Result<(), Fault> {
    let (digest, expires, secret) = match &resource.private {
        Some(Private::Token { digest, expires }) => (Some(digest), *expires, None),
        Some(Private::Secret(secret)) => (None, None, Some(secret.expose())),
        None => (None, None, None),
    };
    query(
        "INSERT OR REPLACE INTO resources (kind, id, scope, name, document, digest, expires, \
         secret, created_on, modified_on, created, position, revision) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
    )
    .bind(resource.kind.name())
    .bind(resource.id.to_bytes().to_vec())
    .bind(resource.scope.to_string())
    .bind(&resource.name)
    .bind(&resource.document)
    .bind(digest.map(|digest| digest.as_bytes().to_vec()))
    .bind(expires.map(|expires| expires.as_micros()))
    .bind(secret)
    .bind(resource.created_on.as_micros())
    .bind(resource.modified_on.as_micros())
    .bind(signed(resource.turn.created.0))
    .bind(resource.turn.position)
    .bind(signed(resource.revision.0))
    .execute(connection)
    .await?;
    Ok(())
}

async fn bury(
    connection: &mut SqliteConnection,
    resource: &Resource,
    revision: Revision,
) -> Result<(), Fault> {
    query("DELETE FROM resources WHERE kind = ?1 AND id = ?2")
        .bind(resource.kind.name())
        .bind(resource.id.to_bytes().to_vec())
        .execute(&mut *connection)
        .await?;
    query("INSERT INTO tombstones (kind, id, scope, revision) VALUES (?1, ?2, ?3, ?4)")
        .bind(resource.kind.name())
        .bind(resource.id.to_bytes().to_vec())
        .bind(resource.scope.to_string())
        .bind(signed(revision.0))
        .execute(connection)
        .await?;
    Ok(())
}

async fn unbury(connection: &mut SqliteConnection, resource: &Resource) -> Result<(), Fault> {
    query("DELETE FROM tombstones WHERE kind = ?1 AND id = ?2")
        .bind(resource.kind.name())
        .bind(resource.id.to_bytes().to_vec())
        .execute(connection)
        .await?;
    Ok(())
}

async fn keep_item(
    connection: &mut SqliteConnection,
    revision: Revision,
    position: u32,
    effect: &Effect,
) -> Result<(), Fault> {
    let (before, after) = (effect.before(), effect.after());
    let resource = after.or(before).expect("a write has a resource");
    query(
        "INSERT INTO audit_items (revision, position, kind, id, scope, name, before, after) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )
    .bind(signed(revision.0))
    .bind(position)
    .bind(resource.kind.name())
    .bind(resource.id.to_bytes().to_vec())
    .bind(resource.scope.to_string())
    .bind(&resource.name)
    .bind(before.map(|resource| &resource.document))
    .bind(after.map(|resource| &resource.document))
    .execute(connection)
    .await?;
    Ok(())
}

/// What a batch writes once: where the store is now, and what it need not keep any longer.
async fn seal(
    connection: &mut SqliteConnection,
    state: &State,
    forgotten: Revision,
    retention: &Retention,
) -> Result<(), Fault> {
    query("UPDATE meta SET revision = ?1, forgotten = ?2")
        .bind(signed(state.revision().0))
        .bind(signed(state.forgotten().0))
        .execute(&mut *connection)
        .await?;
    if state.forgotten() != forgotten {
        query("DELETE FROM tombstones WHERE revision <= ?1")
            .bind(signed(state.forgotten().0))
            .execute(&mut *connection)
            .await?;
    }
    // Every change has a row, so revisions count rows.
    let surplus = state.revision().0.saturating_sub(retention.audit_max);
    query(
        "DELETE FROM audit WHERE revision IN \
         (SELECT revision FROM audit WHERE revision <= ?1 ORDER BY revision LIMIT ?2)",
    )
    .bind(signed(surplus))
    .bind(TRIM_MAX)
    .execute(connection)
    .await?;
    Ok(())
}
