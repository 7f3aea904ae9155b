//! What the control API refuses, and that nothing is left of it; what it took, and that all of it is.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::control_api::{empty, errors, id, pool};
use crate::support::api::result;
use crate::support::config::{HOST, TOKEN};
use crate::support::{Config, Usher, Wire, eventually};

#[test]
fn bytes_that_are_no_text_and_lists_that_nobody_means_change_nothing() {
    let usher = empty();
    let base = usher.base();
    let path = format!("{base}/pools");
    let address = usher.address("api");
    let bytes = b"{\"name\": \"\xff\xfe\", \"origins\": []}";
    let head = format!(
        "POST /client/v4{path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        bytes.len()
    );
    let answer = Wire::connect(address).exchange([head.as_bytes(), bytes].concat());
    assert_eq!(errors(&answer), (400, vec![(6007, "-".to_owned())]));
    // Ids of nothing, ten thousand of them: told, and not one answer of megabytes for each.
    let kept = usher.made(&path, &pool("kept"));
    let unknown: Vec<String> = (0..10_000).map(|number| format!("{number:032x}")).collect();
    let body = json!({"name": HOST, "proxied": true, "default_pools": unknown, "fallback_pool": id(&kept)});
    let balancers = format!("{}/load_balancers", usher.zone());
    let refused = usher.call("POST", &balancers, &body.to_string());
    let (status, found) = errors(&refused);
    assert_eq!(status, 400);
    assert!(
        found.iter().all(|(_, it)| it.starts_with("/default_pools")),
        "{:?}",
        found[0]
    );
    let origins: Vec<Value> = (0..10_000)
        .map(|number| json!({"name": format!("o{number}"), "address": "192.0.2.1", "port": number + 1}))
        .collect();
    let refused = usher.call(
        "POST",
        &path,
        &json!({"name": "many", "origins": origins}).to_string(),
    );
    assert_eq!(errors(&refused).0, 400);
    // An id of this kind of another kind, and of another account.
    let monitors = format!("{base}/monitors/{}", id(&kept));
    assert_eq!(errors(&usher.call("GET", &monitors, "")).0, 404);
    let other = format!("/accounts/{:032x}/load_balancers/pools/{}", 7, id(&kept));
    for (method, body) in [("GET", ""), ("PUT", "{}"), ("PATCH", "{}"), ("DELETE", "")] {
        assert_eq!(errors(&usher.call(method, &other, body)).0, 404, "{method}");
    }
    let names = result(&usher.call("GET", &path, ""));
    assert_eq!(names.as_array().unwrap().len(), 1);
}

#[test]
fn of_writers_that_contradict_each_other_one_wins_each_time() {
    let usher = empty();
    let path = format!("{}/pools", usher.base());
    let writers = 8;
    let start = Barrier::new(writers);
    let made: Vec<u16> = thread::scope(|scope| {
        let all: Vec<_> = (0..writers)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    usher
                        .call("POST", &path, &pool("same").to_string())
                        .status()
                })
            })
            .collect();
        all.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let won = made.iter().filter(|status| **status == 200).count();
    assert_eq!(won, 1, "a name is given once: {made:?}");
    assert!(
        made.iter().all(|status| [200, 400].contains(status)),
        "{made:?}"
    );
    // Each of these is whole: no answer mixes two of them.
    let kept = result(&usher.call("GET", &path, ""));
    let one = format!("{path}/{}", id(&kept[0]));
    thread::scope(|scope| {
        for writer in 0..writers {
            let (usher, one) = (&usher, &one);
            scope.spawn(move || {
                for turn in 0..10 {
                    let name = format!("w{writer}t{turn}");
                    let body = json!({"name": "same", "description": name,
                        "origins": [{"name": name, "address": "192.0.2.1"}]});
                    let told = result(&usher.call("PUT", one, &body.to_string()));
                    assert_eq!(told["description"], told["origins"][0]["name"]);
                    let seen = result(&usher.call("GET", one, ""));
                    assert_eq!(seen["description"], seen["origins"][0]["name"]);
                }
            });
        }
    });
}

#[test]
fn every_write_that_was_answered_outlives_a_kill_and_none_is_there_twice() {
    let writes = match std::env::var_os("USHER_SOAK").is_some_and(|value| value == "1") {
        true => 10_000,
        false => 400,
    };
    let folder = tempfile::TempDir::with_prefix("usher-store-").unwrap();
    let url = format!("sqlite:{}", folder.path().join("usher.db").display());
    let config = Config::new().set(&["store"], json!({"url": url}));
    let usher = Usher::start(&config);
    let path = format!("{}/pools", usher.base());
    let api = usher.address("api");
    let writers = 4;
    let done = AtomicUsize::new(0);
    let acknowledged: Vec<String> = thread::scope(|scope| {
        let all: Vec<_> = (0..writers)
            .map(|writer| {
                let (path, done) = (&path, &done);
                scope.spawn(move || write_until_gone(api, path, writer, writes, done))
            })
            .collect();
        eventually("half of the writes", || {
            (done.load(Ordering::SeqCst) >= writes / 2).then_some(())
        });
        // In the middle: nobody knows of which write.
        usher.serving().signal(Signal::KILL);
        all.into_iter().flat_map(|it| it.join().unwrap()).collect()
    });
    assert!(acknowledged.len() >= writes / 2);
    drop(usher);
    let again = Usher::start(&config);
    let kept = result(&again.call("GET", &path, ""));
    let kept = kept.as_array().unwrap();
    let names: Vec<&str> = kept.iter().map(|it| it["name"].as_str().unwrap()).collect();
    let distinct: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(names.len(), distinct.len(), "none is there twice");
    for name in &acknowledged {
        assert!(distinct.contains(name.as_str()), "{name} was acknowledged");
    }
    assert!(
        names.len() <= acknowledged.len() + writers,
        "one each was under way"
    );
    for it in kept {
        assert_eq!(it["origins"][0]["name"], it["name"], "none is half there");
    }
}

/// Creates pools until the node is gone or all are made; the names of those that were answered.
fn write_until_gone(
    api: SocketAddr,
    path: &str,
    writer: usize,
    writes: usize,
    done: &AtomicUsize,
) -> Vec<String> {
    let mut wire = Wire::connect(api);
    let mut names = Vec::new();
    let mut turn = 0;
    while done.load(Ordering::SeqCst) < writes {
        let name = format!("w{writer}t{turn}");
        let origins = json!([{"name": name, "address": "192.0.2.1"}]);
        let body = json!({"name": name, "origins": origins}).to_string();
        let request = format!(
            "POST /client/v4{path} HTTP/1.1\r\nHost: {api}\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let Ok(()) = wire.try_send(&request) else {
            break;
        };
        match wire.try_response() {
            Ok(answer) if answer.status() == 200 => {
                done.fetch_add(1, Ordering::SeqCst);
                names.push(name);
                turn += 1;
            }
            // Faster than a token may; the same again.
            Ok(answer) if answer.status() == 429 => {}
            Ok(answer) => panic!("{answer:?}"),
            Err(_) => break,
        }
    }
    names
}
