//! Everything that is wanted, at one revision.
//!
//! All of it is in memory: desired state is small beside what a node carries, a list or a check of
//! references then costs no query, and reading goes on while a disk is full. A state is shared by
//! `Arc` and never changed; the next one shares with it every kind that no change touched.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use usher_core::id::Id;

use crate::change::{CHANGE_LEN_MAX, Conflict, DOCUMENT_BYTES_MAX, Op, Put, STATE_BYTES_MAX};
use crate::resource::{Kind, Private, Resource, Revision, Scope, Turn};
use crate::stamp::Stamp;
use crate::token::{Digest, NoHolder};

/// Deletes that are remembered. Who was away for more than that gets everything.
pub const TOMBSTONES_MAX: usize = 10_000;

/// Desired state at one revision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    revision: Revision,
    shelves: [Arc<Shelf>; Kind::ALL.len()],
    /// Oldest first, each resource at most once.
    tombstones: Arc<VecDeque<Tombstone>>,
    /// Of deletes up to this one some are no longer remembered.
    forgotten: Revision,
    /// Names and documents together.
    bytes: usize,
}

/// The resources of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Shelf {
    in_order: BTreeMap<Turn, Arc<Resource>>,
    turns: HashMap<Id, Turn>,
}

/// A resource that was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tombstone {
    /// Its kind.
    pub kind: Kind,
    /// Its id.
    pub id: Id,
    /// What it belonged to.
    pub scope: Scope,
    /// The change that deleted it.
    pub revision: Revision,
}

/// What is different since a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta {
    /// `changed` is everything there is, and what it does not name is gone: the revision asked for
    /// is too old, or not of this store.
    pub whole: bool,
    /// Created or replaced since then, as they are now; by kind, then in the order of lists.
    pub changed: Vec<Arc<Resource>>,
    /// Deleted since then, and not there again.
    pub removed: Vec<Tombstone>,
}

/// What one write of a change did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    Created(Arc<Resource>),
    Replaced {
        before: Arc<Resource>,
        after: Arc<Resource>,
    },
    Deleted(Arc<Resource>),
}

impl State {
    /// Of what was read from where it is kept.
    ///
    /// # Errors
    /// What contradicts itself.
    pub(crate) fn restore(
        revision: Revision,
        forgotten: Revision,
        resources: Vec<Resource>,
        mut tombstones: Vec<Tombstone>,
    ) -> Result<State, String> {
        let mut state = State {
            revision,
            forgotten,
            ..State::default()
        };
        for resource in resources {
            let (kind, id) = (resource.kind, resource.id);
            if resource.revision > revision || resource.turn.created > resource.revision {
                return Err(format!("{kind} {id} has a revision that does not exist"));
            }
            state.bytes += weight(&resource.name, &resource.document);
            let shelf = Arc::make_mut(&mut state.shelves[kind.index()]);
            shelf.turns.insert(id, resource.turn);
            if shelf
                .in_order
                .insert(resource.turn, Arc::new(resource))
                .is_some()
            {
                return Err(format!("{kind} {id} stands where another one does"));
            }
        }
        tombstones.sort_by_key(|tombstone| tombstone.revision);
        state.tombstones = Arc::new(tombstones.into());
        Ok(state)
    }

    /// The newest change in it.
    #[must_use]
    pub const fn revision(&self) -> Revision {
        self.revision
    }

    /// The resource of this kind with this id.
    #[must_use]
    pub fn find(&self, kind: Kind, id: Id) -> Option<&Arc<Resource>> {
        let shelf = self.shelf(kind);
        shelf.in_order.get(shelf.turns.get(&id)?)
    }

    /// All resources of a kind, oldest first.
    pub fn all(&self, kind: Kind) -> impl DoubleEndedIterator<Item = &Arc<Resource>> {
        self.shelf(kind).in_order.values()
    }

    /// Those of a kind that belong to `scope`, oldest first.
    pub fn within(
        &self,
        kind: Kind,
        scope: Scope,
    ) -> impl DoubleEndedIterator<Item = &Arc<Resource>> {
        self.all(kind)
            .filter(move |resource| resource.scope == scope)
    }

    /// The oldest of a kind in `scope` that is called so, compared byte by byte.
    #[must_use]
    pub fn named(&self, kind: Kind, scope: Scope, name: &str) -> Option<&Arc<Resource>> {
        self.within(kind, scope)
            .find(|resource| resource.name == name)
    }

    /// How many there are of a kind.
    #[must_use]
    pub fn count(&self, kind: Kind) -> usize {
        self.shelf(kind).in_order.len()
    }

    /// The token that a caller presents.
    ///
    /// Every token is compared, each in constant time, so that the time tells neither which one
    /// came close nor how close.
    ///
    /// # Errors
    /// There is none, or it has expired at `now`.
    pub fn holder(&self, presented: &Digest, now: Stamp) -> Result<&Arc<Resource>, NoHolder> {
        let mut found = Err(NoHolder::Unknown);
        for token in self.all(Kind::Token) {
            if let Some(Private::Token { digest, expires }) = &token.private
                && digest.matches(presented)
            {
                let expired = expires.is_some_and(|expires| expires <= now);
                found = if expired {
                    Err(NoHolder::Expired)
                } else {
                    Ok(token)
                };
            }
        }
        found
    }

    /// What is different since the state that had revision `known`.
    #[must_use]
    pub fn since(&self, known: Revision) -> Delta {
        let whole = known < self.forgotten || known > self.revision;
        let changed = Kind::ALL
            .into_iter()
            .flat_map(|kind| self.all(kind))
            .filter(|resource| whole || resource.revision > known)
            .cloned()
            .collect();
        let removed = self
            .tombstones
            .iter()
            .filter(|tombstone| !whole && tombstone.revision > known)
            .copied()
            .collect();
        Delta {
            whole,
            changed,
            removed,
        }
    }

    /// Up to which delete the memory has gaps.
    pub(crate) const fn forgotten(&self) -> Revision {
        self.forgotten
    }

    /// Carries a change out, as the next revision, and says what it did. A change that writes
    /// nothing does nothing.
    ///
    /// # Errors
    /// The change does not fit; the state is as before.
    pub(crate) fn apply(&mut self, at: Stamp, ops: Vec<Op>) -> Result<Vec<Effect>, Conflict> {
        self.bytes = self.checked(&ops)?;
        if ops.is_empty() {
            return Ok(Vec::new());
        }
        self.revision.0 += 1;
        let effects = ops
            .into_iter()
            .zip(0..)
            .map(|(op, position)| self.carry_out(op, at, position))
            .collect();
        self.forget();
        Ok(effects)
    }

    fn shelf(&self, kind: Kind) -> &Shelf {
        &self.shelves[kind.index()]
    }

    /// The bytes of all resources after these writes, if every one of them fits.
    fn checked(&self, ops: &[Op]) -> Result<usize, Conflict> {
        if ops.len() > CHANGE_LEN_MAX {
            return Err(Conflict::Many { found: ops.len() });
        }
        let mut targets = HashSet::new();
        let mut bytes = self.bytes;
        for op in ops {
            let (kind, id) = op.target();
            if !targets.insert((kind, id)) {
                return Err(Conflict::Twice { kind, id });
            }
            let found = self.find(kind, id);
            match op {
                Op::Create(_) if found.is_some() => return Err(Conflict::Exists { kind, id }),
                Op::Create(put) => bytes += put_bytes(put)?,
                Op::Replace { put, expected } => {
                    bytes -= self.taken_bytes((kind, id), *expected)?;
                    bytes += put_bytes(put)?;
                }
                Op::Delete { expected, .. } => {
                    bytes -= self.taken_bytes((kind, id), *expected)?;
                }
            }
        }
        self.tokens_differ(ops)?;
        if bytes > STATE_BYTES_MAX && bytes > self.bytes {
            return Err(Conflict::Crowded { found: bytes });
        }
        Ok(bytes)
    }

    /// Of the resource that a write takes away, if it is the one that the writer means.
    fn taken_bytes(
        &self,
        (kind, id): (Kind, Id),
        expected: Option<Revision>,
    ) -> Result<usize, Conflict> {
        let taken = self.find(kind, id).ok_or(Conflict::Missing { kind, id })?;
        if let Some(expected) = expected
            && expected != taken.revision
        {
            let found = taken.revision;
            return Err(Conflict::Stale {
                kind,
                id,
                expected,
                found,
            });
        }
        Ok(weight(&taken.name, &taken.document))
    }

    /// No two tokens may be one text: which of them a caller holds would be chance.
    fn tokens_differ(&self, ops: &[Op]) -> Result<(), Conflict> {
        let mut written = Vec::new();
        for op in ops {
            let (Op::Create(put) | Op::Replace { put, .. }) = op else {
                continue;
            };
            let Some(Private::Token { digest, .. }) = &put.private else {
                continue;
            };
            let kept = self.all(Kind::Token).any(|token| {
                let held = matches!(&token.private, Some(Private::Token { digest: held, .. }) if held == digest);
                held && token.id != put.id
            });
            if kept || written.contains(&digest) {
                return Err(Conflict::SameToken { id: put.id });
            }
            written.push(digest);
        }
        Ok(())
    }

    fn carry_out(&mut self, op: Op, at: Stamp, position: u32) -> Effect {
        let revision = self.revision;
        let created = Turn {
            created: revision,
            position,
        };
        match op {
            Op::Create(put) => {
                self.unbury((put.kind, put.id));
                Effect::Created(self.shelve(resource(put, at, at, revision, created)))
            }
            Op::Replace { put, .. } => {
                let before = self.unshelve((put.kind, put.id));
                let after = resource(put, before.created_on, at, revision, before.turn);
                let after = self.shelve(after);
                Effect::Replaced { before, after }
            }
            Op::Delete { kind, id, .. } => {
                let before = self.unshelve((kind, id));
                let scope = before.scope;
                Arc::make_mut(&mut self.tombstones).push_back(Tombstone {
                    kind,
                    id,
                    scope,
                    revision,
                });
                Effect::Deleted(before)
            }
        }
    }

    fn shelve(&mut self, resource: Resource) -> Arc<Resource> {
        let resource = Arc::new(resource);
        let shelf = Arc::make_mut(&mut self.shelves[resource.kind.index()]);
        shelf.turns.insert(resource.id, resource.turn);
        shelf.in_order.insert(resource.turn, Arc::clone(&resource));
        resource
    }

    fn unshelve(&mut self, (kind, id): (Kind, Id)) -> Arc<Resource> {
        let shelf = Arc::make_mut(&mut self.shelves[kind.index()]);
        let turn = shelf.turns.remove(&id);
        turn.and_then(|turn| shelf.in_order.remove(&turn))
            .expect("it was found when the change was checked")
    }

    fn unbury(&mut self, target: (Kind, Id)) {
        let same = |tombstone: &Tombstone| (tombstone.kind, tombstone.id) == target;
        if self.tombstones.iter().any(same) {
            Arc::make_mut(&mut self.tombstones).retain(|tombstone| !same(tombstone));
        }
    }

    fn forget(&mut self) {
        let surplus = self.tombstones.len().saturating_sub(TOMBSTONES_MAX);
        if surplus > 0 {
            let oldest = Arc::make_mut(&mut self.tombstones).drain(..surplus);
            self.forgotten = oldest
                .map(|tombstone| tombstone.revision)
                .fold(self.forgotten, Ord::max);
        }
    }
}

impl Effect {
    /// The resource as it was.
    pub(crate) fn before(&self) -> Option<&Arc<Resource>> {
        match self {
            Effect::Created(_) => None,
            Effect::Replaced { before, .. } | Effect::Deleted(before) => Some(before),
        }
    }

    /// The resource as it is since.
    pub(crate) fn after(&self) -> Option<&Arc<Resource>> {
        match self {
            Effect::Created(after) | Effect::Replaced { after, .. } => Some(after),
            Effect::Deleted(_) => None,
        }
    }
}

const fn weight(name: &str, document: &str) -> usize {
    name.len() + document.len()
}

fn put_bytes(put: &Put) -> Result<usize, Conflict> {
    let found = weight(&put.name, &put.document);
    if found > DOCUMENT_BYTES_MAX {
        let (kind, id) = (put.kind, put.id);
        return Err(Conflict::Long { kind, id, found });
    }
    Ok(found)
}

fn resource(
    put: Put,
    created_on: Stamp,
    modified_on: Stamp,
    revision: Revision,
    turn: Turn,
) -> Resource {
    Resource {
        kind: put.kind,
        id: put.id,
        scope: put.scope,
        name: put.name,
        document: put.document,
        private: put.private,
        created_on,
        modified_on,
        revision,
        turn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    #[test]
    fn lists_keep_the_order_of_creation() {
        let mut state = State::default();
        state.write([create(3), create(1)]);
        state.write([create(2)]);
        state.write([replace(3, None)]);
        let ids: Vec<Id> = state.all(Kind::Pool).map(|pool| pool.id).collect();
        assert_eq!(ids, [id(3), id(1), id(2)]);
        assert_eq!(state.revision(), Revision(3));
        let pool = state.find(Kind::Pool, id(3)).expect("there");
        assert_eq!(pool.revision, Revision(3));
        assert_eq!(
            (pool.created_on, pool.modified_on),
            (Stamp::from_micros(0), Stamp::from_micros(2))
        );
    }

    #[test]
    fn a_change_that_does_not_fit_changes_nothing() {
        let kind = Kind::Pool;
        let mut state = State::default();
        state.write([create(1), create(2)]);
        state.write([replace(2, None)]);
        let before = state.clone();
        let stale = Conflict::Stale {
            kind,
            id: id(2),
            expected: Revision(1),
            found: Revision(2),
        };
        let long = Put {
            document: "x".repeat(DOCUMENT_BYTES_MAX),
            ..put(5)
        };
        for (op, conflict) in [
            (create(1), Conflict::Exists { kind, id: id(1) }),
            (replace(9, None), Conflict::Missing { kind, id: id(9) }),
            (delete(9, None), Conflict::Missing { kind, id: id(9) }),
            (replace(2, Some(1)), stale.clone()),
            (delete(2, Some(1)), stale),
            (create(4), Conflict::Twice { kind, id: id(4) }),
            (
                Op::Create(long),
                Conflict::Long {
                    kind,
                    id: id(5),
                    found: DOCUMENT_BYTES_MAX + 6,
                },
            ),
        ] {
            let ops = vec![create(4), op];
            assert_eq!(state.apply(Stamp::MIN, ops), Err(conflict));
            assert_eq!(state, before);
        }
        let many: Vec<Op> = (0..=CHANGE_LEN_MAX)
            .map(|number| create(u32::try_from(number).expect("small") + 10))
            .collect();
        let found = many.len();
        let conflict = state.apply(Stamp::MIN, many);
        assert_eq!(conflict, Err(Conflict::Many { found }));
    }

    #[test]
    fn the_revision_that_is_expected_may_be_there() {
        let mut state = State::default();
        state.write([create(1)]);
        state.write([replace(1, Some(1))]);
        state.write([delete(1, Some(2))]);
        assert_eq!(state.count(Kind::Pool), 0);
        assert_eq!(state.bytes, 0);
    }

    #[test]
    fn an_empty_change_leaves_no_revision() {
        let mut state = State::default();
        assert_eq!(state.apply(Stamp::MIN, Vec::new()), Ok(Vec::new()));
        assert_eq!(state, State::default());
    }

    #[test]
    fn a_reader_is_told_what_it_missed() {
        let mut state = State::default();
        state.write([create(1), create(2), create(3)]);
        state.write([delete(1, None), replace(2, None)]);
        state.write([delete(3, None)]);
        state.write([create(3)]);
        let told = |known: u64| {
            let delta = state.since(Revision(known));
            let changed: Vec<Id> = delta.changed.iter().map(|pool| pool.id).collect();
            let removed: Vec<Id> = delta.removed.iter().map(|stone| stone.id).collect();
            (delta.whole, changed, removed)
        };
        assert_eq!(told(4), (false, vec![], vec![]));
        assert_eq!(told(3), (false, vec![id(3)], vec![]));
        assert_eq!(told(1), (false, vec![id(2), id(3)], vec![id(1)]));
        assert_eq!(told(5), (true, vec![id(2), id(3)], vec![]));
    }

    #[test]
    fn who_was_away_for_too_many_deletes_gets_everything() {
        let mut state = State::default();
        let pools = || 0..u32::try_from(TOMBSTONES_MAX).expect("small");
        state.write(pools().map(create));
        state.write([create(1_000_000)]);
        state.write(pools().map(|pool| delete(pool, None)));
        assert!(!state.since(Revision(2)).whole);
        state.write([delete(1_000_000, None)]);
        assert_eq!(state.forgotten(), Revision(3));
        assert!(state.since(Revision(2)).whole);
        let delta = state.since(Revision(3));
        assert!(!delta.whole);
        assert_eq!(delta.removed.len(), 1);
    }

    #[test]
    fn a_token_is_found_by_its_digest_until_it_expires() {
        let mut state = State::default();
        let expires = Stamp::from_micros(1_000);
        state.write([token(1, "one", None), token(2, "two", Some(expires))]);
        let held = |text: &str, micros: i64| {
            let holder = state.holder(&Digest::of(text), Stamp::from_micros(micros));
            holder.map(|token| token.id)
        };
        assert_eq!(held("one", i64::MAX), Ok(id(1)));
        assert_eq!(held("two", 999), Ok(id(2)));
        assert_eq!(held("two", 1_000), Err(NoHolder::Expired));
        assert_eq!(held("three", 0), Err(NoHolder::Unknown));
    }

    #[test]
    fn no_two_tokens_are_the_same() {
        let mut state = State::default();
        state.write([token(1, "one", None)]);
        let same = Err(Conflict::SameToken { id: id(2) });
        let added = state.apply(Stamp::MIN, vec![token(2, "one", None)]);
        assert_eq!(added, same);
        let both = vec![token(3, "three", None), token(2, "three", None)];
        assert_eq!(state.apply(Stamp::MIN, both), same);
    }

    #[test]
    fn nothing_private_is_shown() {
        let mut state = State::default();
        let private = Some(Private::Secret(Secret::new("opensesame")));
        state.write([token(1, "opensesame", None)]);
        state.write([Op::Create(Put { private, ..put(2) })]);
        assert!(!format!("{state:?}").contains("sesame"));
    }

    impl State {
        /// At the microsecond of the revision before.
        fn write(&mut self, ops: impl IntoIterator<Item = Op>) {
            let at = i64::try_from(self.revision.0).expect("small");
            self.apply(Stamp::from_micros(at), ops.into_iter().collect())
                .expect("fits");
        }
    }

    fn id(number: u32) -> Id {
        let mut bytes = [0; Id::LEN];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        Id::from_bytes(bytes)
    }

    fn put(number: u32) -> Put {
        Put {
            kind: Kind::Pool,
            id: id(number),
            scope: Scope::Account(id(0)),
            name: format!("pool-{number}"),
            document: "{}".to_owned(),
            private: None,
        }
    }

    fn create(number: u32) -> Op {
        Op::Create(put(number))
    }

    fn replace(number: u32, expected: Option<u64>) -> Op {
        Op::Replace {
            put: put(number),
            expected: expected.map(Revision),
        }
    }

    fn delete(number: u32, expected: Option<u64>) -> Op {
        Op::Delete {
            kind: Kind::Pool,
            id: id(number),
            expected: expected.map(Revision),
        }
    }

    fn token(number: u32, text: &str, expires: Option<Stamp>) -> Op {
        let digest = Digest::of(text);
        Op::Create(Put {
            kind: Kind::Token,
            private: Some(Private::Token { digest, expires }),
            ..put(number)
        })
    }
}
