//! What the engine's errors mean to somebody who must do something about them.

use std::io;

use sqlx::Error;
use sqlx::error::DatabaseError;

use crate::fault::Fault;

/// The low byte of a result code; the rest says more than anybody needs.
const PRIMARY: i32 = 0xff;

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        match error {
            Error::Database(error) => of_code(error.as_ref()),
            Error::Io(error) => of_io(&error, "cannot be used"),
            Error::PoolTimedOut => Fault::Busy,
            Error::PoolClosed => Fault::Closed,
            // A column of another type than we wrote.
            Error::ColumnDecode { .. } | Error::Decode(_) | Error::RowNotFound => {
                Fault::Damaged(error.to_string())
            }
            error => Fault::Internal(error.to_string()),
        }
    }
}

fn of_code(error: &dyn DatabaseError) -> Fault {
    let code: Option<i32> = error.code().and_then(|code| code.parse().ok());
    let what = error.message().to_owned();
    match code.map(|code| code & PRIMARY) {
        Some(5 | 6) => Fault::Busy,
        Some(7) => Fault::Io(format!("no memory ({what})")),
        Some(8) => Fault::ReadOnly(what),
        Some(10) => Fault::Io(format!("the system does not read or write it ({what})")),
        Some(11) => Fault::Damaged(what),
        Some(13) => Fault::Full,
        Some(14) => Fault::Io(format!("cannot be opened ({what})")),
        Some(26) => Fault::Foreign(what),
        _ => Fault::Internal(what),
    }
}

/// Of a file that is opened or written without the engine.
pub(super) fn of_io(error: &io::Error, what: &str) -> Fault {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            Fault::ReadOnly(error.to_string())
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Fault::Full,
        _ => Fault::Io(format!("{what}: {error}")),
    }
}
