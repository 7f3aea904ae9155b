//! What the tests of the store have in common: small resources, and a store in a folder of its own.

#![allow(dead_code, unreachable_pub)] // each test takes what it needs

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use usher_core::id::Id;
use usher_store::sqlite::Sqlite;
use usher_store::{
    Actor, Change, ChangeError, Fault, Intent, Kind, Op, Put, Retention, Scope, Stamp, State,
    Store, StoreError, Written,
};

/// A folder with a store, which may be closed and opened again.
pub struct Kept {
    folder: TempDir,
    pub retention: Retention,
}

impl Kept {
    pub fn new() -> Kept {
        Kept {
            folder: tempfile::tempdir().expect("a folder"),
            retention: Retention::default(),
        }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("usher.db")
    }

    pub async fn open(&self) -> Arc<dyn Store> {
        let store = Sqlite::open(&self.path(), self.retention.clone(), Duration::ZERO).await;
        Arc::new(store.expect("opens"))
    }
}

/// What is wrong with the store at `path`.
pub async fn refused(path: &Path) -> StoreError {
    match Sqlite::open(path, Retention::default(), Duration::ZERO).await {
        Ok(store) => panic!("{} opens", store.place()),
        Err(error) => error,
    }
}

pub async fn fault(path: &Path) -> Fault {
    refused(path).await.fault
}

pub fn id(number: u32) -> Id {
    let mut bytes = [0; Id::LEN];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    Id::from_bytes(bytes)
}

pub fn at(micros: i64) -> Stamp {
    Stamp::from_micros(1_800_000_000_000_000 + micros)
}

pub fn intent(micros: i64) -> Intent {
    Intent {
        at: at(micros),
        actor: Actor {
            token: Some(id(0xffff)),
            name: "admin".to_owned(),
        },
        what: "PUT /pools".to_owned(),
        repeat: None,
    }
}

/// The pool with this number.
pub fn pool(number: u32) -> Put {
    Put {
        kind: Kind::Pool,
        id: id(number),
        scope: Scope::Account(id(0)),
        name: format!("pool-{number}"),
        document: format!("{{\"name\": \"pool-{number}\"}}"),
        private: None,
    }
}

pub fn create(put: Put) -> Op {
    Op::Create(put)
}

pub fn replace(put: Put) -> Op {
    let expected = None;
    Op::Replace { put, expected }
}

pub fn delete(number: u32) -> Op {
    Op::Delete {
        kind: Kind::Pool,
        id: id(number),
        expected: None,
    }
}

/// A change that writes this, whatever the state is.
pub async fn write(
    store: &Arc<dyn Store>,
    intent: Intent,
    ops: Vec<Op>,
) -> Result<Written, ChangeError<String>> {
    let answer = format!("{} written", ops.len());
    store
        .change(intent, move |_: &State| Ok(Change { ops, answer }))
        .await
}

/// The same, where it must work.
pub async fn written(store: &Arc<dyn Store>, ops: Vec<Op>) -> Written {
    let micros = i64::try_from(store.state().revision().0).expect("small");
    write(store, intent(micros), ops).await.expect("written")
}

pub fn names(store: &Arc<dyn Store>) -> Vec<String> {
    let state = store.state();
    state
        .all(Kind::Pool)
        .map(|pool| pool.name.clone())
        .collect()
}
