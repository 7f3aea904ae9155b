//! Rows that were written, as the values that they were.

use std::collections::HashMap;

use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, SqliteConnection, query};
use usher_core::id::Id;

use crate::fault::Fault;
use crate::resource::{Kind, Private, Resource, Revision, Scope, Turn};
use crate::secret::Secret;
use crate::stamp::Stamp;
use crate::state::{State, Tombstone};
use crate::token::Digest;

/// The whole desired state. Inside a transaction, or with nobody writing.
pub(super) async fn state(connection: &mut SqliteConnection) -> Result<State, Fault> {
    let meta = query("SELECT revision, forgotten FROM meta")
        .fetch_one(&mut *connection)
        .await?;
    let resources = query(
        "SELECT kind, id, scope, name, document, digest, expires, secret, created_on, \
         modified_on, created, position, revision FROM resources",
    )
    .fetch_all(&mut *connection)
    .await?;
    let tombstones = query("SELECT kind, id, scope, revision FROM tombstones")
        .fetch_all(&mut *connection)
        .await?;
    State::restore(
        revision(&meta, "revision")?,
        revision(&meta, "forgotten")?,
        resources.iter().map(resource).collect::<Result<_, _>>()?,
        tombstones.iter().map(tombstone).collect::<Result<_, _>>()?,
    )
    .map_err(Fault::Damaged)
}

/// When tokens were used last.
pub(super) async fn uses(connection: &mut SqliteConnection) -> Result<HashMap<Id, Stamp>, Fault> {
    let rows = query("SELECT token, at FROM token_uses")
        .fetch_all(connection)
        .await?;
    rows.iter()
        .map(|row| Ok((id(row, "token")?, stamp(row, "at")?)))
        .collect()
}

fn resource(row: &SqliteRow) -> Result<Resource, Fault> {
    Ok(Resource {
        kind: kind(row)?,
        id: id(row, "id")?,
        scope: scope(row)?,
        name: row.try_get("name")?,
        document: row.try_get("document")?,
        private: private(row)?,
        created_on: stamp(row, "created_on")?,
        modified_on: stamp(row, "modified_on")?,
        revision: revision(row, "revision")?,
        turn: Turn {
            created: revision(row, "created")?,
            position: row.try_get("position")?,
        },
    })
}

fn private(row: &SqliteRow) -> Result<Option<Private>, Fault> {
    let digest: Option<&[u8]> = row.try_get("digest")?;
    if let Some(digest) = digest {
        let digest = digest.try_into().map_err(|_| damaged("digest"))?;
        let expires: Option<i64> = row.try_get("expires")?;
        return Ok(Some(Private::Token {
            digest: Digest::from_bytes(digest),
            expires: expires.map(Stamp::from_micros),
        }));
    }
    let secret: Option<String> = row.try_get("secret")?;
    Ok(secret.map(|secret| Private::Secret(Secret::new(secret))))
}

fn tombstone(row: &SqliteRow) -> Result<Tombstone, Fault> {
    Ok(Tombstone {
        kind: kind(row)?,
        id: id(row, "id")?,
        scope: scope(row)?,
        revision: revision(row, "revision")?,
    })
}

pub(super) fn kind(row: &SqliteRow) -> Result<Kind, Fault> {
    Kind::parse(row.try_get("kind")?).ok_or_else(|| damaged("kind"))
}

pub(super) fn scope(row: &SqliteRow) -> Result<Scope, Fault> {
    let text: &str = row.try_get("scope")?;
    text.parse().map_err(|_| damaged("scope"))
}

pub(super) fn id(row: &SqliteRow, column: &str) -> Result<Id, Fault> {
    let bytes: &[u8] = row.try_get(column)?;
    let bytes = bytes.try_into().map_err(|_| damaged(column))?;
    Ok(Id::from_bytes(bytes))
}

pub(super) fn stamp(row: &SqliteRow, column: &str) -> Result<Stamp, Fault> {
    Ok(Stamp::from_micros(row.try_get(column)?))
}

pub(super) fn revision(row: &SqliteRow, column: &str) -> Result<Revision, Fault> {
    Ok(Revision(count(row, column)?))
}

/// A number that never is below zero.
pub(super) fn count(row: &SqliteRow, column: &str) -> Result<u64, Fault> {
    let number: i64 = row.try_get(column)?;
    u64::try_from(number).map_err(|_| damaged(column))
}

pub(super) fn damaged(column: &str) -> Fault {
    Fault::Damaged(format!("a row with a {column} that we never write"))
}

/// A count as the engine keeps numbers. None of ours comes near its end.
pub(super) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
