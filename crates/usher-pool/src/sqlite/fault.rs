//! What the engine's errors mean to somebody who must do something about them.

use std::io;

use rusqlite::{Error, ErrorCode};

use crate::fault::Fault;

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        let what = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Fault::Busy,
            Some(ErrorCode::OutOfMemory) => Fault::Io(format!("no memory ({what})")),
            Some(ErrorCode::ReadOnly) => Fault::ReadOnly(what),
            Some(ErrorCode::SystemIoFailure) => {
                Fault::Io(format!("the system does not read or write it ({what})"))
            }
            Some(ErrorCode::DatabaseCorrupt) => Fault::Damaged(what),
            Some(ErrorCode::DiskFull) => Fault::Full,
            Some(ErrorCode::CannotOpen) => Fault::Io(format!("cannot be opened ({what})")),
            Some(ErrorCode::NotADatabase) => Fault::Foreign(what),
            Some(_) => Fault::Internal(what),
            // A column of another type than we wrote, or a row that must be there.
            None if matches!(
                error,
                Error::FromSqlConversionFailure(..)
                    | Error::InvalidColumnType(..)
                    | Error::IntegralValueOutOfRange(..)
                    | Error::QueryReturnedNoRows
            ) =>
            {
                Fault::Damaged(what)
            }
            None => Fault::Internal(what),
        }
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
