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
        "INSERT INTO events (at, kind, account, subject, subject_name, healthy) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )
    .bind(event.at.as_micros())
    .bind(event.kind.name())
    .bind(event.account.to_bytes().to_vec())
    .bind(event.subject.to_bytes().to_vec())
    .bind(&event.subject_name)
    .bind(event.healthy)
    .execute(&mut *connection)
    .await?;
    let id = inserted.last_insert_rowid();
    query("INSERT INTO event_documents (event, document) VALUES (?1, ?2)")
        .bind(id)
        .bind(&event.document)
        .execute(&mut *connection)
        .await?;
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::event::{EventKind, EventPart};
    use crate::sqlite::open;

    #[tokio::test]
    async fn what_is_too_old_goes_with_all_that_belongs_to_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let opened = open::open(&folder.path().join("usher.db"), Duration::ZERO).await;
        let mut database = opened.expect("opens").database;
        let connection = database.connection().await.expect("connected");
        let retention = Retention {
            events_age: Duration::from_micros(10),
            audit_age: Duration::from_micros(5),
            ..Retention::default()
        };
        let told: Vec<Event> = [1, 2, 3].map(event).into();
        events(connection, &told, &retention).await.expect("kept");
        query(
            "INSERT INTO audit (revision, at, actor, what) VALUES (1, 1, '', ''), (2, 8, '', '')",
        )
        .execute(&mut *connection)
        .await
        .expect("written");
        // The age itself is not yet too old.
        trim(connection, Stamp::from_micros(12), &retention)
            .await
            .expect("trimmed");
        for (table, left) in [
            ("SELECT count(*) FROM events", 2),
            ("SELECT count(*) FROM event_documents", 2),
            ("SELECT count(*) FROM event_parts", 2),
            ("SELECT count(*) FROM audit", 1),
        ] {
            let count: i64 = query_scalar(table)
                .fetch_one(&mut *connection)
                .await
                .expect("counted");
            assert_eq!(count, left, "{table}");
        }
    }

    fn event(micros: i64) -> Event {
        let id = Id::from_bytes([1; Id::LEN]);
        Event {
            at: Stamp::from_micros(micros),
            kind: EventKind::Health,
            account: id,
            subject: id,
            subject_name: "eu".to_owned(),
            healthy: Some(true),
            parts: vec![EventPart {
                name: "a".to_owned(),
                healthy: Some(true),
            }],
            document: "{}".to_owned(),
        }
    }
}
