//! The tables, and how an older pool becomes one of today.
//!
//! Forward only: each step is one file of SQL that ends by naming its version, and all steps that a
//! pool lacks are one transaction. A build that meets a newer version touches nothing.

use rusqlite::Connection;

use crate::fault::Fault;

/// `usbp`, in the header of the file: this database is one of ours.
const APPLICATION: i64 = 0x7573_6270;

/// The step to each version, from 1. A step that was released is never edited.
const STEPS: [&str; 2] = [include_str!("schema/1.sql"), include_str!("schema/2.sql")];

/// Refuses what is not ours or newer than us. Changes nothing.
pub(super) fn look(connection: &Connection) -> Result<(), Fault> {
    let application = number(connection, "PRAGMA application_id")?;
    let version = number(connection, "PRAGMA user_version")?;
    let tables = number(connection, "SELECT count(*) FROM sqlite_schema")?;
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

/// Takes the steps that the pool lacks. Also fails if nothing can be written, with no step to take.
pub(super) fn bring_up(connection: &Connection) -> Result<(), Fault> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let version = number(connection, "PRAGMA user_version")?;
    let taken = usize::try_from(version).unwrap_or(STEPS.len());
    let lacking = &STEPS[taken.min(STEPS.len())..];
    for step in lacking {
        connection.execute_batch(step)?;
    }
    // A file that is read-only begins a transaction like any other; only a write tells.
    connection.execute_batch("UPDATE meta SET reaped = reaped")?;
    connection.execute_batch(if lacking.is_empty() {
        "ROLLBACK"
    } else {
        "COMMIT"
    })?;
    Ok(())
}

fn known() -> i64 {
    i64::try_from(STEPS.len()).expect("a handful")
}

fn number(connection: &Connection, sql: &str) -> Result<i64, Fault> {
    Ok(connection.query_row(sql, [], |row| row.get(0))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_names_its_version_and_whose_it_is() {
        let connection = Connection::open_in_memory().expect("opens");
        for (step, version) in STEPS.into_iter().zip(1..) {
            connection.execute_batch(step).expect("taken");
            assert_eq!(number(&connection, "PRAGMA user_version"), Ok(version));
        }
        let told = number(&connection, "PRAGMA application_id");
        assert_eq!(told, Ok(APPLICATION));
        assert_eq!(look(&connection), Ok(()));
        assert_eq!(bring_up(&connection), Ok(()));
    }
}
