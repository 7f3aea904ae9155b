//! The store beside a second, simpler one that must agree: a list of resources, a list of changes.
//!
//! Whatever is done to it, in whatever order and with restarts in between, the store shows the same
//! resources in the same order, tells the same history, and reports the same differences.

mod support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use proptest::collection::vec;
use proptest::prelude::*;
use support::{Kept, id, intent, pool};
use usher_store::{
    AuditQuery, Change, ChangeError, Conflict, Intent, Kind, Op, Put, Repeat, RepeatKey, Revision,
    State, Store, Tombstone, Written,
};

const KINDS: [Kind; 2] = [Kind::Pool, Kind::Monitor];

type Answer = Result<Written, ChangeError<String>>;

/// What is asked of one resource.
#[derive(Debug, Clone)]
enum Ask {
    Create(usize, u32, u8),
    Replace(usize, u32, u8, Expect),
    Delete(usize, u32, Expect),
}

/// The revision that whoever asks has seen.
#[derive(Debug, Clone, Copy)]
enum Expect {
    Any,
    Newest,
    Older,
}

#[derive(Debug, Clone)]
enum Step {
    Change(Vec<Ask>),
    /// Is, or claims to be, one that was sent before.
    Repeat(Vec<Ask>, u8, bool),
    /// Several at once, in an order that only the store knows.
    Together(Vec<Vec<Ask>>),
    /// Seconds go by.
    Wait(i64),
    Restart,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_store_and_the_model_agree(steps in vec(step(), 1..30)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(agree(steps));
    }
}

async fn agree(steps: Vec<Step>) {
    let kept = Kept::new();
    let mut store = kept.open().await;
    let mut model = Model::default();
    let mut seconds = 0;
    for step in steps {
        seconds += 1;
        let now = intent(seconds * 1_000_000);
        match step {
            Step::Change(asks) => {
                let answer = send(&store, now.clone(), asks.clone(), None).await;
                assert_eq!(answer, model.change(&now, &asks));
            }
            Step::Repeat(asks, key, again) => {
                let key_of = RepeatKey::new("token", &key.to_string(), b"");
                let repeat = Repeat { key: key_of, again };
                let now = Intent {
                    repeat: Some(repeat),
                    ..now
                };
                let answer = send(&store, now.clone(), asks.clone(), None).await;
                assert_eq!(answer, model.repeat(&now, &asks, key, again, seconds));
            }
            Step::Together(changes) => together(&store, &mut model, &now, changes).await,
            Step::Wait(more) => seconds += more,
            Step::Restart => {
                store.close().await.expect("closes");
                store = kept.open().await;
            }
        }
        model.compare(&store).await;
    }
}

/// Sends all at once; each check notes when its turn is.
async fn together(store: &Arc<dyn Store>, model: &mut Model, now: &Intent, changes: Vec<Vec<Ask>>) {
    let turns = Arc::new(Mutex::new(Vec::new()));
    let tasks: Vec<_> = changes
        .iter()
        .cloned()
        .enumerate()
        .map(|(number, asks)| {
            let (store, now, turns) = (Arc::clone(store), now.clone(), Arc::clone(&turns));
            tokio::spawn(async move { send(&store, now, asks, Some((number, turns))).await })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.expect("no panic"));
    }
    let turns = turns.lock().expect("no panic").clone();
    assert_eq!(turns.len(), changes.len());
    for number in turns {
        assert_eq!(answers[number], model.change(now, &changes[number]));
    }
}

type Turns = Arc<Mutex<Vec<usize>>>;

async fn send(
    store: &Arc<dyn Store>,
    intent: Intent,
    asks: Vec<Ask>,
    turn: Option<(usize, Turns)>,
) -> Answer {
    let (now, check_asks) = (intent.at.as_micros(), asks);
    let check = move |state: &State| {
        if let Some((number, turns)) = turn {
            turns.lock().expect("no panic").push(number);
        }
        let mut ops = Vec::new();
        for ask in &check_asks {
            let newest = |kind: usize, number: u32| {
                let found = state.find(KINDS[kind], id(number));
                found.map_or(Revision(0), |resource| resource.revision)
            };
            let taken = |put: &Put| {
                let found = state.named(put.kind, put.scope, &put.name);
                found.is_some_and(|found| found.id != put.id)
            };
            let op = ask.op(now, newest);
            if let Op::Create(put) | Op::Replace { put, .. } = &op
                && put.kind == Kind::Pool
                && taken(put)
            {
                return Err(put.name.clone());
            }
            ops.push(op);
        }
        let answer = format!("{} at {now}", ops.len());
        Ok(Change { ops, answer })
    };
    store.change(intent, check).await
}

impl Ask {
    fn op(&self, now: i64, newest: impl Fn(usize, u32) -> Revision) -> Op {
        let put = |kind: usize, number: u32, name: u8| Put {
            kind: KINDS[kind],
            name: format!("name-{name}"),
            document: format!("{{\"at\": {now}}}"),
            ..pool(number)
        };
        let expected = |kind, number, expect| match expect {
            Expect::Any => None,
            Expect::Newest => Some(newest(kind, number)),
            Expect::Older => Some(Revision(newest(kind, number).0 + 1000)),
        };
        match *self {
            Ask::Create(kind, number, name) => Op::Create(put(kind, number, name)),
            Ask::Replace(kind, number, name, expect) => Op::Replace {
                put: put(kind, number, name),
                expected: expected(kind, number, expect),
            },
            Ask::Delete(kind, number, expect) => Op::Delete {
                kind: KINDS[kind],
                id: id(number),
                expected: expected(kind, number, expect),
            },
        }
    }
}

/// A resource in the model: what was put, when it was created, when it was changed, by which change.
#[derive(Debug, Clone, PartialEq)]
struct Held {
    put: Put,
    created: i64,
    modified: i64,
    revision: u64,
}

#[derive(Debug, Default)]
struct Model {
    revision: u64,
    /// In the order of creation.
    held: Vec<Held>,
    /// Of each resource that is gone, which change took it.
    gone: BTreeMap<(Kind, usher_core::id::Id), u64>,
    /// Before and after of each write of each change.
    history: Vec<Vec<(Option<String>, Option<String>)>>,
    answers: BTreeMap<u8, (i64, Written)>,
}

impl Model {
    fn change(&mut self, intent: &Intent, asks: &[Ask]) -> Answer {
        let now = intent.at.as_micros();
        let newest = |kind: usize, number| {
            let found = self.find(KINDS[kind], id(number));
            Revision(found.map_or(0, |at| self.held[at].revision))
        };
        let ops: Vec<Op> = asks.iter().map(|ask| ask.op(now, newest)).collect();
        for op in &ops {
            if let Op::Create(put) | Op::Replace { put, .. } = op {
                let taken = |held: &Held| held.put.kind == put.kind && held.put.name == put.name;
                // Of several with that name the oldest is found, and it may be this one.
                let first = self.held.iter().find(|held| taken(held));
                if put.kind == Kind::Pool && first.is_some_and(|held| held.put.id != put.id) {
                    return Err(ChangeError::Refused(put.name.clone()));
                }
            }
        }
        let answer = format!("{} at {now}", ops.len());
        self.fit(&ops).map_err(ChangeError::Conflict)?;
        if !ops.is_empty() {
            self.revision += 1;
            let writes = ops.into_iter().map(|op| self.write(op, now)).collect();
            self.history.push(writes);
        }
        let (revision, repeated) = (Revision(self.revision), false);
        Ok(Written {
            revision,
            answer,
            repeated,
        })
    }

    fn repeat(
        &mut self,
        intent: &Intent,
        asks: &[Ask],
        key: u8,
        again: bool,
        seconds: i64,
    ) -> Answer {
        if again
            && let Some((then, written)) = self.answers.get(&key)
            && seconds - then < 60
        {
            let repeated = true;
            return Ok(Written {
                repeated,
                ..written.clone()
            });
        }
        let before = self.revision;
        let written = self.change(intent, asks)?;
        if self.revision > before {
            self.answers.insert(key, (seconds, written.clone()));
        }
        Ok(written)
    }

    fn find(&self, kind: Kind, id: usher_core::id::Id) -> Option<usize> {
        let same = |held: &Held| (held.put.kind, held.put.id) == (kind, id);
        self.held.iter().position(same)
    }

    fn fit(&self, ops: &[Op]) -> Result<(), Conflict> {
        for (at, op) in ops.iter().enumerate() {
            let (kind, id) = op.target();
            if ops[..at].iter().any(|other| other.target() == (kind, id)) {
                return Err(Conflict::Twice { kind, id });
            }
            let found = self.find(kind, id).map(|at| &self.held[at]);
            let expected = match op {
                Op::Create(_) if found.is_some() => return Err(Conflict::Exists { kind, id }),
                Op::Create(_) => continue,
                Op::Replace { expected, .. } | Op::Delete { expected, .. } => *expected,
            };
            let Some(found) = found else {
                return Err(Conflict::Missing { kind, id });
            };
            let found = Revision(found.revision);
            if let Some(expected) = expected.filter(|expected| *expected != found) {
                return Err(Conflict::Stale {
                    kind,
                    id,
                    expected,
                    found,
                });
            }
        }
        Ok(())
    }

    fn write(&mut self, op: Op, now: i64) -> (Option<String>, Option<String>) {
        let revision = self.revision;
        let (kind, id) = op.target();
        let found = self.find(kind, id);
        let before = found.map(|at| self.held[at].put.document.clone());
        match op {
            Op::Create(put) => {
                self.gone.remove(&(kind, id));
                let after = put.document.clone();
                self.held.push(Held {
                    put,
                    created: now,
                    modified: now,
                    revision,
                });
                (before, Some(after))
            }
            Op::Replace { put, .. } => {
                let after = put.document.clone();
                let held = &mut self.held[found.expect("fits")];
                (held.put, held.modified, held.revision) = (put, now, revision);
                (before, Some(after))
            }
            Op::Delete { .. } => {
                self.held.remove(found.expect("fits"));
                self.gone.insert((kind, id), revision);
                (before, None)
            }
        }
    }

    async fn compare(&self, store: &Arc<dyn Store>) {
        let state = store.state();
        assert_eq!(state.revision().0, self.revision);
        for kind in KINDS {
            let shown: Vec<Held> = state
                .all(kind)
                .map(|resource| Held {
                    put: Put {
                        kind: resource.kind,
                        id: resource.id,
                        scope: resource.scope,
                        name: resource.name.clone(),
                        document: resource.document.clone(),
                        private: resource.private.clone(),
                    },
                    created: resource.created_on.as_micros(),
                    modified: resource.modified_on.as_micros(),
                    revision: resource.revision.0,
                })
                .collect();
            let of_kind = |held: &&Held| held.put.kind == kind;
            let wanted: Vec<Held> = self.held.iter().filter(of_kind).cloned().collect();
            assert_eq!(shown, wanted);
        }
        for known in 0..=self.revision {
            self.compare_since(&state, known);
        }
        let query = AuditQuery {
            limit: 1000,
            ..AuditQuery::default()
        };
        let page = store.audit(query).await.expect("read");
        let told: Vec<Vec<_>> = page
            .rows
            .into_iter()
            .rev()
            .map(|row| row.items)
            .map(|items| {
                items
                    .into_iter()
                    .map(|item| (item.before, item.after))
                    .collect()
            })
            .collect();
        assert_eq!(told, self.history);
    }

    fn compare_since(&self, state: &State, known: u64) {
        let delta = state.since(Revision(known));
        assert!(!delta.whole);
        let mut changed: Vec<_> = delta
            .changed
            .iter()
            .map(|found| (found.kind, found.id))
            .collect();
        changed.sort();
        let newer = self.held.iter().filter(|held| held.revision > known);
        let mut wanted: Vec<_> = newer.map(|held| (held.put.kind, held.put.id)).collect();
        wanted.sort();
        assert_eq!(changed, wanted);
        let key = |stone: &Tombstone| ((stone.kind, stone.id), stone.revision.0);
        let removed: BTreeMap<_, _> = delta.removed.iter().map(key).collect();
        assert_eq!(removed.len(), delta.removed.len());
        let mut wanted = self.gone.clone();
        wanted.retain(|_, revision| *revision > known);
        assert_eq!(removed, wanted);
    }
}

fn step() -> impl Strategy<Value = Step> {
    let asks = || vec(ask(), 0..4);
    prop_oneof![
        8 => asks().prop_map(Step::Change),
        4 => (asks(), 0..3_u8, any::<bool>()).prop_map(|(asks, key, again)| Step::Repeat(asks, key, again)),
        3 => vec(asks(), 2..6).prop_map(Step::Together),
        1 => (1..90_i64).prop_map(Step::Wait),
        1 => Just(Step::Restart),
    ]
}

fn ask() -> impl Strategy<Value = Ask> {
    let (kind, number, name) = (0..KINDS.len(), 0..6_u32, 0..8_u8);
    let expect = prop_oneof![
        4 => Just(Expect::Any),
        2 => Just(Expect::Newest),
        1 => Just(Expect::Older),
    ];
    prop_oneof![
        4 => (kind.clone(), number.clone(), name.clone()).prop_map(|(k, n, name)| Ask::Create(k, n, name)),
        3 => (kind.clone(), number.clone(), name, expect.clone()).prop_map(|(k, n, name, e)| Ask::Replace(k, n, name, e)),
        2 => (kind, number, expect).prop_map(|(k, n, e)| Ask::Delete(k, n, e)),
    ]
}
