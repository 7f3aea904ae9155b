//! What every engine of the store promises, tried on each that there is.

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::{Kept, at, create, delete, id, intent, names, pool, replace, write, written};
use usher_store::token::Digest;
use usher_store::{
    AuditQuery, Change, ChangeError, Conflict, Event, EventKind, EventPart, EventQuery, Fault,
    Intent, Kind, Op, Private, Put, Repeat, RepeatKey, Retention, Revision, Scope, Secret, State,
    Store,
};

#[tokio::test]
async fn a_change_is_kept_with_its_audit_row() {
    let kept = Kept::new();
    let store = kept.open().await;
    written(&store, vec![create(pool(1)), create(pool(2))]).await;
    let changed = Put {
        document: "{\"name\":\"pool-1\", \"weight\": 0.50}".to_owned(),
        ..pool(1)
    };
    written(&store, vec![replace(changed.clone()), delete(2)]).await;
    let told = store.state();
    store.close().await.expect("closes");

    let store = kept.open().await;
    let state = store.state();
    assert_eq!(state, told);
    assert_eq!(state.revision(), Revision(2));
    let one = state.find(Kind::Pool, id(1)).expect("kept");
    assert_eq!(one.document, changed.document);
    assert_eq!((one.created_on, one.modified_on), (at(0), at(1)));
    assert_eq!(one.revision, Revision(2));

    let page = store.audit(AuditQuery::default()).await.expect("read");
    assert_eq!((page.total, page.next), (2, None));
    let [newest, oldest] = &page.rows[..] else {
        panic!("{page:?}");
    };
    assert_eq!((newest.revision, newest.at), (Revision(2), at(1)));
    assert_eq!(newest.actor, intent(0).actor);
    assert_eq!(newest.what, "PUT /pools");
    let documents: Vec<_> = newest
        .items
        .iter()
        .map(|item| (item.id, item.before.clone(), item.after.clone()))
        .collect();
    assert_eq!(
        documents,
        [
            (id(1), Some(pool(1).document), Some(changed.document)),
            (id(2), Some(pool(2).document), None),
        ]
    );
    assert!(oldest.items.iter().all(|item| item.before.is_none()));
}

#[tokio::test]
async fn bytes_come_back_as_they_went_in() {
    let kept = Kept::new();
    let store = kept.open().await;
    let odd = "{\"a\":1.50,\n\t\"ü\":\"\u{1f6a6}\u{0}'\";--}";
    let put = Put {
        name: odd.to_owned(),
        document: odd.repeat(3),
        ..pool(1)
    };
    written(&store, vec![create(put.clone())]).await;
    store.close().await.expect("closes");
    let store = kept.open().await;
    let state = store.state();
    let found = state.named(Kind::Pool, put.scope, odd).expect("kept");
    assert_eq!(found.document, put.document);
    let page = store.audit(AuditQuery::default()).await.expect("read");
    assert_eq!(page.rows[0].items[0].after, Some(put.document));
}

#[tokio::test]
async fn lists_keep_the_order_of_creation_across_a_restart() {
    let kept = Kept::new();
    let store = kept.open().await;
    written(&store, vec![create(pool(3)), create(pool(1))]).await;
    written(&store, vec![create(pool(2))]).await;
    written(&store, vec![replace(pool(3))]).await;
    let order = ["pool-3", "pool-1", "pool-2"];
    assert_eq!(names(&store), order);
    store.close().await.expect("closes");
    assert_eq!(names(&kept.open().await), order);
}

#[tokio::test]
async fn what_does_not_fit_writes_nothing() {
    let kept = Kept::new();
    let store = kept.open().await;
    written(&store, vec![create(pool(1))]).await;
    let kind = Kind::Pool;
    for (op, conflict) in [
        (create(pool(1)), Conflict::Exists { kind, id: id(1) }),
        (replace(pool(9)), Conflict::Missing { kind, id: id(9) }),
        (delete(9), Conflict::Missing { kind, id: id(9) }),
        (
            Op::Replace {
                put: pool(1),
                expected: Some(Revision(7)),
            },
            Conflict::Stale {
                kind,
                id: id(1),
                expected: Revision(7),
                found: Revision(1),
            },
        ),
    ] {
        let half = vec![create(pool(2)), op];
        let answer = write(&store, intent(9), half).await;
        assert_eq!(answer, Err(ChangeError::Conflict(conflict)));
    }
    let refused = store
        .change(intent(9), |state: &State| {
            Err::<Change, _>(format!("{} pools are enough", state.count(Kind::Pool)))
        })
        .await;
    let reason = "1 pools are enough".to_owned();
    assert_eq!(refused, Err(ChangeError::Refused(reason)));
    assert_eq!(store.state().revision(), Revision(1));
    let page = store.audit(AuditQuery::default()).await.expect("read");
    assert_eq!(page.total, 1);
}

#[tokio::test]
async fn a_change_that_writes_nothing_leaves_no_trace() {
    let kept = Kept::new();
    let store = kept.open().await;
    written(&store, vec![create(pool(1))]).await;
    let answer = written(&store, Vec::new()).await;
    assert_eq!(answer.revision, Revision(1));
    assert_eq!(answer.answer, "0 written");
    let page = store.audit(AuditQuery::default()).await.expect("read");
    assert_eq!(page.total, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_writers_one_gets_the_name() {
    let kept = Kept::new();
    let store = kept.open().await;
    let writers: Vec<_> = (0..64)
        .map(|number| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let check = move |state: &State| {
                    let put = Put {
                        name: format!("name-{}", number % 4),
                        ..pool(number)
                    };
                    if state.named(put.kind, put.scope, &put.name).is_some() {
                        return Err(put.name);
                    }
                    let (ops, answer) = (vec![create(put)], String::new());
                    Ok(Change { ops, answer })
                };
                store.change(intent(0), check).await
            })
        })
        .collect();
    let (mut got, mut refused) = (0, 0);
    for writer in writers {
        match writer.await.expect("no panic") {
            Ok(_) => got += 1,
            Err(ChangeError::Refused(_)) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((got, refused), (4, 60));
    assert_eq!(store.state().count(Kind::Pool), 4);
    assert_eq!(store.state().revision(), Revision(4));
}

#[tokio::test]
async fn a_check_that_panics_fails_alone() {
    let kept = Kept::new();
    let store = kept.open().await;
    let (first, broken, last) = tokio::join!(
        write(&store, intent(0), vec![create(pool(1))]),
        store.change(intent(0), |_: &State| -> Result<Change, String> {
            panic!("a check with a fault")
        }),
        write(&store, intent(0), vec![create(pool(2))]),
    );
    assert!(first.is_ok() && last.is_ok());
    let Err(ChangeError::Store(error)) = broken else {
        panic!("{broken:?}");
    };
    assert!(matches!(error.fault, Fault::Internal(_)), "{error}");
    assert_eq!(names(&store).len(), 2);
}

#[tokio::test]
async fn a_watcher_wakes_to_the_newest_state_and_learns_what_it_missed() {
    let kept = Kept::new();
    let store = kept.open().await;
    let mut watcher = store.watch();
    let known = watcher.borrow_and_update().revision();
    written(&store, vec![create(pool(1)), create(pool(2))]).await;
    written(&store, vec![delete(1)]).await;
    watcher.changed().await.expect("the store is open");
    let state = Arc::clone(&watcher.borrow_and_update());
    assert_eq!(state.revision(), Revision(2));
    let delta = state.since(known);
    assert!(!delta.whole);
    assert_eq!(delta.changed.len(), 1);
    assert_eq!(delta.removed[0].id, id(1));
    store.close().await.expect("closes");
    // Also what a store before this process deleted.
    let delta = kept.open().await.state().since(Revision(1));
    assert_eq!((delta.whole, delta.removed[0].id), (false, id(1)));
}

#[tokio::test]
async fn a_request_that_is_sent_again_gets_the_first_answer() {
    let kept = Kept::new();
    let mut store = kept.open().await;
    let send = async |store: &Arc<dyn Store>, number, second: i64, body: &str, again| {
        let key = RepeatKey::new("token", "/pools", body.as_bytes());
        let intent = Intent {
            repeat: Some(Repeat { key, again }),
            ..intent(second * 1_000_000)
        };
        let put = pool(number);
        let answer = put.name.clone();
        let check = |_: &State| -> Result<Change, String> {
            let ops = vec![create(put)];
            Ok(Change { ops, answer })
        };
        let written = store.change(intent, check).await.expect("written");
        (written.answer, written.repeated)
    };
    let told = |number: u32, repeated| (format!("pool-{number}"), repeated);
    assert_eq!(send(&store, 1, 0, "a", false).await, told(1, false));
    assert_eq!(send(&store, 2, 1, "a", true).await, told(1, true));
    // It says that it is new, so it is.
    assert_eq!(send(&store, 3, 2, "a", false).await, told(3, false));
    assert_eq!(send(&store, 4, 3, "a", true).await, told(3, true));
    assert_eq!(send(&store, 5, 3, "b", true).await, told(5, false));
    store.close().await.expect("closes");
    store = kept.open().await;
    assert_eq!(send(&store, 6, 61, "a", true).await, told(3, true));
    assert_eq!(send(&store, 7, 62, "a", true).await, told(7, false));
    assert_eq!(names(&store).len(), 4);
    assert_eq!(store.state().revision(), Revision(4));
}

#[tokio::test]
async fn a_refusal_is_not_remembered_for_repeats() {
    let kept = Kept::new();
    let store = kept.open().await;
    let again = |again| Intent {
        repeat: Some(Repeat {
            key: RepeatKey::new("token", "/pools", b""),
            again,
        }),
        ..intent(0)
    };
    let refused = store
        .change(again(false), |_: &State| Err::<Change, _>("no"))
        .await;
    assert_eq!(refused, Err(ChangeError::Refused("no")));
    let then = write(&store, again(true), vec![create(pool(1))]).await;
    assert!(!then.expect("written").repeated);
}

#[tokio::test]
async fn the_audit_log_is_asked_in_pages() {
    let kept = Kept::new();
    let store = kept.open().await;
    for number in 0..5 {
        written(&store, vec![create(pool(number))]).await;
    }
    let by_other = Intent {
        actor: usher_store::Actor {
            token: None,
            name: "other".to_owned(),
        },
        ..intent(5)
    };
    let ops = vec![replace(pool(2))];
    write(&store, by_other, ops).await.expect("written");
    let ask = async |query: AuditQuery| {
        let page = store.audit(query).await.expect("read");
        let revisions: Vec<u64> = page.rows.iter().map(|row| row.revision.0).collect();
        (revisions, page.total, page.next)
    };
    let all = AuditQuery::default();
    let limit = 2;
    let two = AuditQuery {
        limit,
        ..all.clone()
    };
    assert_eq!(ask(two.clone()).await, (vec![6, 5], 6, Some(5)));
    let before = Some(5);
    let then = AuditQuery {
        before,
        ..two.clone()
    };
    assert_eq!(ask(then).await, (vec![4, 3], 6, Some(3)));
    let skip = 5;
    let last = AuditQuery { skip, ..two };
    assert_eq!(ask(last).await, (vec![1], 6, None));
    let resource = Some((Kind::Pool, id(2)));
    let of_one = AuditQuery {
        resource,
        ..all.clone()
    };
    assert_eq!(ask(of_one).await, (vec![6, 3], 2, None));
    let actor = Some("other".to_owned());
    let by_one = AuditQuery {
        actor,
        ..all.clone()
    };
    assert_eq!(ask(by_one).await, (vec![6], 1, None));
    let span = AuditQuery {
        since: Some(at(1)),
        until: Some(at(3)),
        ..all
    };
    assert_eq!(ask(span).await, (vec![3, 2], 2, None));
}

#[tokio::test]
async fn of_the_audit_log_the_newest_is_kept() {
    let mut kept = Kept::new();
    kept.retention.audit_max = 3;
    let store = kept.open().await;
    for number in 0..10 {
        written(&store, vec![create(pool(number))]).await;
    }
    let page = store.audit(AuditQuery::default()).await.expect("read");
    let revisions: Vec<u64> = page.rows.iter().map(|row| row.revision.0).collect();
    assert_eq!(revisions, [10, 9, 8]);
}

#[tokio::test]
async fn events_are_found_by_what_can_be_asked() {
    let kept = Kept::new();
    let store = kept.open().await;
    assert!(store.record(event(1, 1, true, &[("a", true), ("b", true)])));
    assert!(store.record(event(2, 1, false, &[("a", false), ("b", true)])));
    assert!(store.record(event(3, 2, true, &[("c", true)])));
    let turned = Event {
        kind: EventKind::Enablement,
        healthy: None,
        ..event(4, 2, true, &[])
    };
    assert!(store.record(turned.clone()));
    store.flush().await.expect("kept");
    let ask = async |query: EventQuery| {
        let page = store.events(query).await.expect("read");
        let ids: Vec<u64> = page.rows.iter().map(|row| row.id).collect();
        (ids, page.total, page.next)
    };
    let all = EventQuery::default();
    assert_eq!(ask(all.clone()).await, (vec![4, 3, 2, 1], 4, None));
    let page = store.events(all.clone()).await.expect("read");
    let newest = &page.rows[0];
    assert_eq!((newest.at, newest.subject), (turned.at, turned.subject));
    assert_eq!(
        (newest.kind, &newest.document),
        (turned.kind, &turned.document)
    );
    let query = |change: &dyn Fn(&mut EventQuery)| {
        let mut query = all.clone();
        change(&mut query);
        query
    };
    for (asked, found) in [
        (query(&|q| q.subject = Some(id(1))), vec![2, 1]),
        (
            query(&|q| q.subject_name = Some("pool-2".into())),
            vec![4, 3],
        ),
        (query(&|q| q.subject_name = Some("pool".into())), vec![]),
        (query(&|q| q.healthy = Some(false)), vec![2]),
        (query(&|q| q.healthy = Some(true)), vec![3, 1]),
        (query(&|q| q.kind = Some(EventKind::Health)), vec![3, 2, 1]),
        (query(&|q| q.account = Some(id(0))), vec![4, 3, 2, 1]),
        (query(&|q| q.account = Some(id(7))), vec![]),
        (query(&|q| q.part = Some("b".into())), vec![2, 1]),
        (query(&|q| q.part_healthy = Some(false)), vec![2]),
        (query(&|q| q.since = Some(at(3))), vec![4, 3]),
        (query(&|q| q.until = Some(at(3))), vec![2, 1]),
    ] {
        let total = found.len() as u64;
        assert_eq!(ask(asked.clone()).await, (found, total, None), "{asked:?}");
    }
    // One endpoint that is both, not one of each.
    let both = query(&|q| {
        q.part = Some("b".into());
        q.part_healthy = Some(false);
    });
    assert_eq!(ask(both).await, (vec![], 0, None));
    let limit = query(&|q| q.limit = 3);
    assert_eq!(ask(limit.clone()).await, (vec![4, 3, 2], 4, Some(2)));
    let before = EventQuery {
        before: Some(2),
        ..limit.clone()
    };
    assert_eq!(ask(before).await, (vec![1], 4, None));
    let skip = EventQuery { skip: 3, ..limit };
    assert_eq!(ask(skip).await, (vec![1], 4, None));
}

#[tokio::test]
async fn of_events_the_newest_are_kept_and_no_number_comes_twice() {
    let mut kept = Kept::new();
    kept.retention.events_max = 5;
    let store = kept.open().await;
    for micros in 0..200 {
        assert!(store.record(event(micros, 1, true, &[("a", true)])));
    }
    store.flush().await.expect("kept");
    store.close().await.expect("closes");
    let store = kept.open().await;
    let page = store.events(EventQuery::default()).await.expect("read");
    let ids: Vec<u64> = page.rows.iter().map(|row| row.id).collect();
    assert_eq!(ids, [200, 199, 198, 197, 196]);
}

#[tokio::test]
async fn events_that_find_no_room_are_counted() {
    let kept = Kept::new();
    let store = kept.open().await;
    // Nothing awaits here, so nobody takes any meanwhile.
    let taken = (0..5000)
        .filter(|micros| store.record(event(*micros, 1, true, &[])))
        .count();
    assert_eq!(taken, 4096);
    assert_eq!(store.events_dropped(), 5000 - 4096);
    store.close().await.expect("closes");
    let page = kept.open().await.events(EventQuery::default()).await;
    assert_eq!(page.expect("read").total, 4096);
}

#[tokio::test]
async fn the_last_use_of_a_token_is_kept_while_there_is_one() {
    let kept = Kept::new();
    let store = kept.open().await;
    let token = |number| {
        create(Put {
            kind: Kind::Token,
            scope: Scope::Installation,
            private: Some(Private::Token {
                digest: Digest::of(&format!("text-{number}")),
                expires: Some(at(1)),
            }),
            ..pool(number)
        })
    };
    written(&store, vec![token(1), token(2)]).await;
    assert_eq!(store.last_use(id(1)), None);
    store.note_use(id(1), at(5));
    store.note_use(id(1), at(6));
    store.note_use(id(2), at(7));
    store.note_use(id(3), at(8));
    assert_eq!(store.last_use(id(1)), Some(at(6)));
    assert_eq!(store.last_use(id(3)), None);
    store.close().await.expect("closes");

    let store = kept.open().await;
    assert_eq!(store.last_use(id(1)), Some(at(6)));
    assert_eq!(store.last_use(id(2)), Some(at(7)));
    let holder = store.state();
    let holder = holder.holder(&Digest::of("text-2"), at(0));
    assert_eq!(holder.map(|token| token.id), Ok(id(2)));
    let gone = Op::Delete {
        kind: Kind::Token,
        id: id(1),
        expected: None,
    };
    written(&store, vec![gone]).await;
    store.note_use(id(2), at(9));
    store.close().await.expect("closes");
    let store = kept.open().await;
    assert_eq!(store.last_use(id(1)), None);
    assert_eq!(store.last_use(id(2)), Some(at(9)));
    assert_eq!(store.state().revision(), Revision(2));
}

#[tokio::test]
async fn what_is_private_is_kept_and_not_told() {
    let kept = Kept::new();
    let store = kept.open().await;
    let secret = Some(Private::Secret(Secret::new("opensesame")));
    let put = Put {
        kind: Kind::WebhookDestination,
        private: secret.clone(),
        ..pool(1)
    };
    written(&store, vec![create(put)]).await;
    let page = store.audit(AuditQuery::default()).await.expect("read");
    assert!(!format!("{page:?}").contains("sesame"));
    store.close().await.expect("closes");
    let state = kept.open().await.state();
    let found = state.find(Kind::WebhookDestination, id(1));
    assert_eq!(found.expect("kept").private, secret);
}

#[tokio::test]
async fn who_asks_first_makes_the_secret() {
    let kept = Kept::new();
    let store = kept.open().await;
    let (one, other) = tokio::join!(
        store.secret("seal", Secret::new("one")),
        store.secret("seal", Secret::new("other")),
    );
    let first = one.expect("kept");
    assert_eq!(other.expect("kept"), first);
    let another = store.secret("session", Secret::new("third")).await;
    assert_eq!(another.expect("kept").expose(), "third");
    store.close().await.expect("closes");
    let again = kept.open().await.secret("seal", Secret::new("new")).await;
    assert_eq!(again.expect("kept"), first);
}

#[tokio::test]
async fn a_closed_store_tells_what_it_knows_and_takes_nothing() {
    let kept = Kept::new();
    let store = kept.open().await;
    written(&store, vec![create(pool(1))]).await;
    store.close().await.expect("closes");
    store.close().await.expect("is closed");
    assert_eq!(names(&store), ["pool-1"]);
    let late = write(&store, intent(0), vec![create(pool(2))]).await;
    let Err(ChangeError::Store(error)) = late else {
        panic!("{late:?}");
    };
    assert_eq!(error.fault, Fault::Closed);
    let audit = store.audit(AuditQuery::default()).await;
    assert_eq!(audit.expect_err("closed").fault, Fault::Closed);
    assert!(!store.record(event(0, 1, true, &[])));
    assert_eq!(store.events_dropped(), 1);
}

#[tokio::test]
async fn a_store_that_is_dropped_has_kept_what_it_took() {
    let kept = Kept::new();
    let store = kept.open().await;
    written(&store, vec![create(pool(1))]).await;
    assert!(store.record(event(1, 1, true, &[])));
    let place = kept.path();
    drop(store);
    // Its writer ends by itself and lets go then.
    let patience = Duration::from_secs(30);
    let store = usher_store::sqlite::Sqlite::open(&place, Retention::default(), patience).await;
    let store: Arc<dyn Store> = Arc::new(store.expect("opens"));
    assert_eq!(names(&store), ["pool-1"]);
    let page = store.events(EventQuery::default()).await.expect("read");
    assert_eq!(page.total, 1);
}

fn event(micros: i64, pool: u32, healthy: bool, parts: &[(&str, bool)]) -> Event {
    Event {
        at: at(micros),
        kind: EventKind::Health,
        account: id(0),
        subject: id(pool),
        subject_name: format!("pool-{pool}"),
        healthy: Some(healthy),
        parts: parts
            .iter()
            .map(|(name, healthy)| EventPart {
                name: (*name).to_owned(),
                healthy: Some(*healthy),
            })
            .collect(),
        document: format!("{{\"at\": {micros}}}"),
    }
}
