//! Questions about the past, answered beside the writer.
//!
//! Each question is one text of SQL whose conditions fall away where nothing is asked, so that no
//! text is put together from what somebody sent.

use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{
    Arguments as _, Encode, Row as _, Sqlite, SqliteConnection, SqlitePool, Type, query,
    query_scalar_with, query_with,
};
use usher_core::id::Id;

use super::load::{count, damaged, id, kind, revision, scope, signed, stamp};
use crate::audit::{AuditItem, AuditQuery, AuditRow};
use crate::change::Actor;
use crate::event::{EventKind, EventQuery, Recorded};
use crate::fault::Fault;
use crate::page::{PAGE_BYTES_MAX, PAGE_LEN_MAX, Page};
use crate::resource::Revision;

/// What rows of the audit log must be, as ?1 to ?5.
macro_rules! audit_filter {
    () => {
        "(?1 IS NULL OR at >= ?1) AND (?2 IS NULL OR at < ?2) AND (?3 IS NULL OR actor = ?3) \
         AND (?4 IS NULL OR revision IN \
             (SELECT revision FROM audit_items WHERE kind = ?4 AND id = ?5))"
    };
}

/// What events must be, as ?1 to ?9.
macro_rules! events_filter {
    () => {
        "(?1 IS NULL OR kind = ?1) AND (?2 IS NULL OR account = ?2) \
         AND (?3 IS NULL OR at >= ?3) AND (?4 IS NULL OR at < ?4) \
         AND (?5 IS NULL OR subject = ?5) AND (?6 IS NULL OR subject_name = ?6) \
         AND (?7 IS NULL OR healthy = ?7) \
         AND ((?8 IS NULL AND ?9 IS NULL) OR EXISTS \
             (SELECT 1 FROM event_parts AS part WHERE part.event = events.id \
              AND (?8 IS NULL OR part.name = ?8) AND (?9 IS NULL OR part.healthy = ?9)))"
    };
}

/// Rows of the audit log, newest first.
pub(super) async fn audit(
    readers: &SqlitePool,
    asked: &AuditQuery,
) -> Result<Page<AuditRow>, Fault> {
    // One transaction, so that rows and their number are of one moment.
    let mut transaction = readers.begin().await?;
    let page = audit_page(&mut transaction, asked).await?;
    transaction.rollback().await?;
    Ok(page)
}

async fn audit_page(
    connection: &mut SqliteConnection,
    asked: &AuditQuery,
) -> Result<Page<AuditRow>, Fault> {
    let filter = || {
        Filter::default()
            .with(asked.since.map(|since| since.as_micros()))
            .with(asked.until.map(|until| until.as_micros()))
            .with(asked.actor.clone())
            .with(asked.resource.map(|(kind, _)| kind.name()))
            .with(asked.resource.map(|(_, id)| bytes(id)))
    };
    const COUNT: &str = concat!("SELECT count(*) FROM audit WHERE ", audit_filter!());
    let total = filter().count(connection, COUNT).await?;
    let limit = asked.limit.clamp(1, PAGE_LEN_MAX);
    let found = filter()
        .with(asked.before.map(signed))
        .with(limit)
        .with(asked.skip)
        .rows(
            connection,
            concat!(
                "SELECT revision, at, token, actor, what FROM audit WHERE ",
                audit_filter!(),
                " AND (?6 IS NULL OR revision < ?6) ORDER BY revision DESC LIMIT ?7 OFFSET ?8"
            ),
        )
        .await?;
    let mut rows = Vec::with_capacity(found.len());
    let mut bytes = 0;
    for row in &found {
        let row = audit_row(connection, row).await?;
        bytes += row.items.iter().map(AuditItem::bytes).sum::<usize>();
        if bytes > PAGE_BYTES_MAX && !rows.is_empty() {
            break;
        }
        rows.push(row);
    }
    // A full page may be the last one; then the page behind it is empty.
    let more = rows.len() < found.len() || rows.len() == limit as usize;
    let next = rows.last().map(|row| row.revision.0).filter(|_| more);
    Ok(Page { rows, total, next })
}

async fn audit_row(connection: &mut SqliteConnection, row: &SqliteRow) -> Result<AuditRow, Fault> {
    let revision = revision(row, "revision")?;
    let token: Option<&[u8]> = row.try_get("token")?;
    let token = token.map(|_| id(row, "token")).transpose()?;
    Ok(AuditRow {
        revision,
        at: stamp(row, "at")?,
        actor: Actor {
            token,
            name: row.try_get("actor")?,
        },
        what: row.try_get("what")?,
        items: audit_items(connection, revision).await?,
    })
}

async fn audit_items(
    connection: &mut SqliteConnection,
    revision: Revision,
) -> Result<Vec<AuditItem>, Fault> {
    let rows = query(
        "SELECT kind, id, scope, name, before, after FROM audit_items WHERE revision = ?1 \
         ORDER BY position",
    )
    .bind(signed(revision.0))
    .fetch_all(connection)
    .await?;
    let item = |row: &SqliteRow| {
        Ok(AuditItem {
            kind: kind(row)?,
            id: id(row, "id")?,
            scope: scope(row)?,
            name: row.try_get("name")?,
            before: row.try_get("before")?,
            after: row.try_get("after")?,
        })
    };
    rows.iter().map(item).collect()
}

impl AuditItem {
    fn bytes(&self) -> usize {
        let len = |document: &Option<String>| document.as_ref().map_or(0, String::len);
        len(&self.before) + len(&self.after)
    }
}

/// Events, newest first.
pub(super) async fn events(
    readers: &SqlitePool,
    asked: &EventQuery,
) -> Result<Page<Recorded>, Fault> {
    let mut transaction = readers.begin().await?;
    let page = events_page(&mut transaction, asked).await?;
    transaction.rollback().await?;
    Ok(page)
}

async fn events_page(
    connection: &mut SqliteConnection,
    asked: &EventQuery,
) -> Result<Page<Recorded>, Fault> {
    let filter = || {
        Filter::default()
            .with(asked.kind.map(EventKind::name))
            .with(asked.account.map(bytes))
            .with(asked.since.map(|since| since.as_micros()))
            .with(asked.until.map(|until| until.as_micros()))
            .with(asked.subject.map(bytes))
            .with(asked.subject_name.clone())
            .with(asked.healthy)
            .with(asked.part.clone())
            .with(asked.part_healthy)
    };
    const COUNT: &str = concat!("SELECT count(*) FROM events WHERE ", events_filter!());
    let total = filter().count(connection, COUNT).await?;
    let limit = asked.limit.clamp(1, PAGE_LEN_MAX);
    let found = filter()
        .with(asked.before.map(signed))
        .with(limit)
        .with(asked.skip)
        .rows(
            connection,
            concat!(
                "SELECT id, (SELECT octet_length(document) FROM event_documents \
                 WHERE event = events.id) AS bytes FROM events WHERE ",
                events_filter!(),
                " AND (?10 IS NULL OR id < ?10) ORDER BY id DESC LIMIT ?11 OFFSET ?12"
            ),
        )
        .await?;
    let mut rows = Vec::with_capacity(found.len());
    let mut bytes = 0;
    for row in &found {
        bytes += count(row, "bytes")?;
        if bytes > PAGE_BYTES_MAX as u64 && !rows.is_empty() {
            break;
        }
        rows.push(recorded(connection, count(row, "id")?).await?);
    }
    let more = rows.len() < found.len() || rows.len() == limit as usize;
    let next = rows.last().map(|row| row.id).filter(|_| more);
    Ok(Page { rows, total, next })
}

async fn recorded(connection: &mut SqliteConnection, event: u64) -> Result<Recorded, Fault> {
    let row = query(
        "SELECT at, kind, subject, document FROM events \
         JOIN event_documents ON event = id WHERE id = ?1",
    )
    .bind(signed(event))
    .fetch_one(connection)
    .await?;
    let kind = EventKind::parse(row.try_get("kind")?);
    Ok(Recorded {
        id: event,
        at: stamp(&row, "at")?,
        kind: kind.ok_or_else(|| damaged("kind"))?,
        subject: id(&row, "subject")?,
        document: row.try_get("document")?,
    })
}

fn bytes(id: Id) -> Vec<u8> {
    id.to_bytes().to_vec()
}

/// The values of ?1, ?2, ... in their order. `None` is a condition that falls away.
#[derive(Default)]
struct Filter(SqliteArguments);

impl Filter {
    fn with<'q, T: Encode<'q, Sqlite> + Type<Sqlite>>(mut self, value: T) -> Filter {
        self.0
            .add(value)
            .expect("numbers, text and bytes are always taken");
        self
    }

    async fn count(
        self,
        connection: &mut SqliteConnection,
        sql: &'static str,
    ) -> Result<u64, Fault> {
        let count: i64 = query_scalar_with(sql, self.0).fetch_one(connection).await?;
        u64::try_from(count).map_err(|_| damaged("count"))
    }

    async fn rows(
        self,
        connection: &mut SqliteConnection,
        sql: &'static str,
    ) -> Result<Vec<SqliteRow>, Fault> {
        Ok(query_with(sql, self.0).fetch_all(connection).await?)
    }
}
