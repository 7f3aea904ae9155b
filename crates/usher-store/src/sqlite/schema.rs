//! The tables, and how an older store becomes one of today.
//!
//! Forward only: each step is one file of SQL that ends by naming its version, and all steps that a
//! store lacks are one transaction. There is no way back; a build that meets a newer version
//! touches nothing.

use sqlx::{SqliteConnection, query, query_scalar, raw_sql};

use crate::fault::Fault;

/// `ushr`, in the header of the file: this database is one of ours.
const APPLICATION: i64 = 0x7573_6872;

/// The step to each version, from 1. A step that was released is never edited.
const STEPS: [&str; 2] = [include_str!("schema/1.sql"), include_str!("schema/2.sql")];

/// Refuses what is not ours or newer than us. Changes nothing.
pub(super) async fn look(connection: &mut SqliteConnection) -> Result<(), Fault> {
    let application = number(connection, "PRAGMA application_id").await?;
    let version = number(connection, "PRAGMA user_version").await?;
    let tables = number(connection, "SELECT count(*) FROM sqlite_schema").await?;
    match (application, version, tables) {
        (0, 0, 0) => Ok(()),
        (APPLICATION, ..) if version > known() => Err(Fault::Newer {
            found: version,
            known: known(),
        }),
        (APPLICATION, 1.., _) => Ok(()),
        _ => Err(Fault::Foreign(
            "a database of another program is there".to_owned(),
        )),
    }
}

/// Takes the steps that the store lacks. Also fails if nothing can be written, with no step to take.
pub(super) async fn bring_up(connection: &mut SqliteConnection) -> Result<(), Fault> {
    query("BEGIN IMMEDIATE").execute(&mut *connection).await?;
    let version = number(connection, "PRAGMA user_version").await?;
    let taken = usize::try_from(version).unwrap_or(STEPS.len());
    let lacking = &STEPS[taken.min(STEPS.len())..];
    for step in lacking {
        raw_sql(*step).execute(&mut *connection).await?;
    }
    // A file that is read-only begins a transaction like any other; only a write tells. Rolled
    // back, so that a full disk does not stop whoever only wants to know what is there.
    query("UPDATE meta SET revision = revision")
        .execute(&mut *connection)
        .await?;
    let end = if lacking.is_empty() {
        "ROLLBACK"
    } else {
        "COMMIT"
    };
    query(end).execute(&mut *connection).await?;
    Ok(())
}

fn known() -> i64 {
    i64::try_from(STEPS.len()).expect("a handful")
}

async fn number(connection: &mut SqliteConnection, sql: &'static str) -> Result<i64, Fault> {
    Ok(query_scalar(sql).fetch_one(connection).await?)
}

#[cfg(test)]
mod tests {
    use sqlx::ConnectOptions as _;
    use sqlx::sqlite::SqliteConnectOptions;

    use super::*;

    #[tokio::test]
    async fn every_step_names_its_version_and_whose_it_is() {
        let options = SqliteConnectOptions::new().in_memory(true);
        let mut connection = options.connect().await.expect("opens");
        for (step, version) in STEPS.into_iter().zip(1..) {
            raw_sql(step).execute(&mut connection).await.expect("taken");
            let told = number(&mut connection, "PRAGMA user_version").await;
            assert_eq!(told, Ok(version));
        }
        let told = number(&mut connection, "PRAGMA application_id").await;
        assert_eq!(told, Ok(APPLICATION));
        assert_eq!(look(&mut connection).await, Ok(()));
        assert_eq!(bring_up(&mut connection).await, Ok(()));
    }
}
