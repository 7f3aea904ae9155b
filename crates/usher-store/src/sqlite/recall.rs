//! What is kept beside desired state: events, uses of tokens, secrets; and what of the past goes.

use sqlx::{SqliteConnection, query, query_scalar};
use usher_core::id::Id;

use super::load::signed;
use crate::event::Event;
use crate::fault::Fault;
use crate::secret::Secret;
use crate::stamp::Stamp;
use crate::store::Retention;

/// Rows that go at once at most, so that no change waits long for it.
const TRIM_MAX: i64 = 256;

/// Keeps events, in their order, and lets the oldest go.
pub(super) async fn events(
    connection: &mut SqliteConnection,
    events: &[Event],
    retention: &Retention,
) -> Result<(), Fault> {
    query("BEGIN IMMEDIATE").execute(&mut *connection).await?;
    let mut newest = 0;
    for event in events {
        newest = insert(connection, event).await?;
    }
    query(
        "DELETE FROM events WHERE id IN \
         (SELECT id FROM events WHERE id <= ?1 ORDER BY id LIMIT ?2)",
    )
    .bind(newest.saturating_sub(signed(retention.events_max)))
    .bind(TRIM_MAX)
    .execute(&mut *connection)
    .await?;
    query("COMMIT").execute(connection).await?;
    Ok(())
}

async fn insert(connection: &mut SqliteConnection, event: &Event) -> Result<i64, Fault> {
    let inserted = query(
        "INSERT INTO events (at, kind, account, subject, subject_name, healthy, document) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )
    .bind(event.at.as_micros())
    .bind(event.kind.name())
    .bind(event.account.to_bytes().to_vec())
    .bind(event.subject.to_bytes().to_vec())
    .bind(&event.subject_name)
    .bind(event.healthy)
    .bind(&event.document)
    .execute(&mut *connection)
    .await?;
    let id = inserted.last_insert_rowid();
    for (part, position) in event.parts.iter().zip(0_i64..) {
        query("INSERT INTO event_parts (event, position, name, healthy) VALUES (?1, ?2, ?3, ?4)")
            .bind(id)
            .bind(position)
            .bind(&part.name)
            .bind(part.healthy)
            .execute(&mut *connection)
            .await?;
    }
    Ok(id)
}

/// Keeps when tokens were used, and forgets those that are gone.
pub(super) async fn uses(
    connection: &mut SqliteConnection,
    uses: &[(Id, Stamp)],
) -> Result<(), Fault> {
    query("BEGIN IMMEDIATE").execute(&mut *connection).await?;
    for (token, at) in uses {
        query("INSERT OR REPLACE INTO token_uses (token, at) VALUES (?1, ?2)")
            .bind(token.to_bytes().to_vec())
            .bind(at.as_micros())
            .execute(&mut *connection)
            .await?;
    }
    query(
        "DELETE FROM token_uses WHERE token NOT IN \
         (SELECT id FROM resources WHERE kind = 'token')",
    )
    .execute(&mut *connection)
    .await?;
    query("COMMIT").execute(connection).await?;
    Ok(())
}

/// Lets go of what is too old at `now`, some of it at a time.
pub(super) async fn trim(
    connection: &mut SqliteConnection,
    now: Stamp,
    retention: &Retention,
) -> Result<(), Fault> {
    query("BEGIN IMMEDIATE").execute(&mut *connection).await?;
    query(
        "DELETE FROM events WHERE id IN \
         (SELECT id FROM events WHERE at < ?1 ORDER BY at LIMIT ?2)",
    )
    .bind(now.before(retention.events_age).as_micros())
    .bind(TRIM_MAX)
    .execute(&mut *connection)
    .await?;
    query(
        "DELETE FROM audit WHERE revision IN \
         (SELECT revision FROM audit WHERE at < ?1 ORDER BY at LIMIT ?2)",
    )
    .bind(now.before(retention.audit_age).as_micros())
    .bind(TRIM_MAX)
    .execute(&mut *connection)
    .await?;
    query("COMMIT").execute(connection).await?;
    Ok(())
}

/// The secret under `name`: the one that is kept, or else `made`, which is kept from now on.
pub(super) async fn secret(
    connection: &mut SqliteConnection,
    name: &str,
    made: &Secret,
) -> Result<Secret, Fault> {
    query("BEGIN IMMEDIATE").execute(&mut *connection).await?;
    query("INSERT INTO secrets (name, secret) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING")
        .bind(name)
        .bind(made.expose())
        .execute(&mut *connection)
        .await?;
    let kept: String = query_scalar("SELECT secret FROM secrets WHERE name = ?1")
        .bind(name)
        .fetch_one(&mut *connection)
        .await?;
    query("COMMIT").execute(connection).await?;
    Ok(Secret::new(kept))
}
