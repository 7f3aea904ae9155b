//! Queue and seats outlive the process: stopped, killed, followed by another; and what holds when
//! they cannot be written down.

use std::fs;
use std::process::Command;

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use serde_json::{Value, json};

use crate::support::api::named;
use crate::support::config::HOST;
use crate::support::process::Folder;
use crate::support::{Config, Endpoint, Usher, Visitor, eventually};

/// Two rooms that are kept in `kept`, whichever folder the process runs in.
fn config(endpoint: &Endpoint, kept: &Folder, seats: u32) -> Config {
    let path = |name: &str| kept.path().join(name).display().to_string();
    let room = |path: &str| {
        json!({
            "host": HOST, "path": path, "total_active_users": seats, "new_users_per_minute": 1000,
            "usher": {"refresh_interval_seconds": 1, "json_extensions": true},
        })
    };
    Config::serving([endpoint.origin("a")])
        .set(
            &["store"],
            json!({"url": format!("sqlite:{}", path("usher.db"))}),
        )
        .set(&["state_folder"], json!(path("state")))
        .set(&["pid_file"], json!("usher.pid"))
        .set(&["waiting_rooms", "sale"], room("/sale"))
        .set(&["waiting_rooms", "other"], room("/other"))
}

fn enters(usher: &Usher, visitor: &mut Visitor) -> bool {
    visitor.enters(usher, "/sale", "a")
}

fn room(usher: &Usher, name: &str) -> Value {
    named(&usher.state()["rooms"], name).clone()
}

fn position(usher: &Usher, visitor: &mut Visitor) -> Option<u64> {
    let id = room(usher, "sale")["id"].as_str().unwrap().to_owned();
    visitor.position(usher, &id)
}

/// One inside, two in line.
fn fill(usher: &Usher) -> [Visitor; 3] {
    let mut all = [(); 3].map(|()| Visitor::new());
    for (nth, visitor) in all.iter_mut().enumerate() {
        assert_eq!(enters(usher, visitor), nth == 0, "{nth}");
    }
    all
}

/// They are where they were, and a newcomer is behind them.
fn are_there(usher: &Usher, [first, second, third]: &mut [Visitor; 3]) {
    assert!(enters(usher, first), "a seat is kept");
    let mut newcomer = Visitor::new();
    assert!(!enters(usher, &mut newcomer));
    // Whoever comes back is heard of again; until all have, places count those who are there.
    for visitor in [&mut *second, &mut *third] {
        assert!(!enters(usher, visitor));
    }
    assert_eq!(position(usher, second), Some(1));
    assert_eq!(position(usher, third), Some(2));
    assert!(position(usher, &mut newcomer) >= Some(3));
}

fn leaves(usher: &Usher, visitor: &mut Visitor) {
    let id = room(usher, "sale")["id"].as_str().unwrap().to_owned();
    let path = format!("/sale/cdn-cgi/waitingroom/leave?room={id}");
    let gone = visitor.send(&mut usher.connect(), "POST", &path, "Content-Length: 0\r\n");
    assert_eq!(gone.status(), 204);
}

#[test]
fn a_restart_keeps_queue_and_seats() {
    let endpoint = Endpoint::named("a");
    let kept = Folder::new();
    let config = config(&endpoint, &kept, 1);
    let usher = Usher::start(&config);
    let mut all = fill(&usher);
    assert_eq!(usher.stop().code(), Some(0));

    let usher = Usher::start(&config);
    assert_eq!(room(&usher, "sale")["seats"], 1);
    are_there(&usher, &mut all);
    let [first, second, third] = &mut all;
    leaves(&usher, first);
    eventually("the next in line", || enters(&usher, second).then_some(()));
    assert!(!enters(&usher, third));
}

#[test]
fn a_killed_process_forgets_nobody_and_lets_in_nobody_too_many() {
    let endpoint = Endpoint::named("a");
    let kept = Folder::new();
    let config = config(&endpoint, &kept, 1);
    let mut all = None;
    for round in 0..3 {
        let mut usher = Usher::start(&config);
        match &mut all {
            None => all = Some(fill(&usher)),
            Some(all) => are_there(&usher, all),
        }
        usher.signal(Signal::KILL);
        assert_eq!(usher.wait().code(), None, "round {round}");
    }
}

#[test]
fn another_process_takes_the_rooms_over() {
    let endpoint = Endpoint::named("a");
    let kept = Folder::new();
    let mut usher = Usher::start(&config(&endpoint, &kept, 1));
    let mut all = fill(&usher);
    for _ in 0..3 {
        let before = usher.hand_over();
        // Those who come while the rooms change hands wait for it.
        let _ = before;
        are_there(&usher, &mut all);
        assert_eq!(room(&usher, "sale")["trouble"], Value::Null);
    }
    let [first, second, third] = &mut all;
    leaves(&usher, first);
    eventually("the next in line", || enters(&usher, second).then_some(()));
    assert!(!enters(&usher, third));
}

#[test]
fn visitors_who_come_during_a_hand_over_get_one_seat_among_them() {
    let endpoint = Endpoint::named("a");
    let kept = Folder::new();
    let mut usher = Usher::start(&config(&endpoint, &kept, 5));
    let address = usher.address("http");
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let rush = std::thread::spawn(move || {
        let mut inside = 0;
        let mut come = 0;
        while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            let mut wire = crate::support::Wire::connect(address);
            let answer = Visitor::new().send(&mut wire, "GET", "/sale", "Connection: close\r\n");
            assert_eq!(answer.status(), 200, "{answer:?}");
            inside += u32::from(answer.text() == "a");
            come += 1;
        }
        (come, inside)
    });
    usher.hand_over();
    usher.hand_over();
    drop(stop);
    let (come, inside) = rush.join().unwrap();
    assert!(come > 5 && inside == 5, "{inside} of {come}");
}

#[test]
fn a_damaged_journal_stops_its_room_alone() {
    let endpoint = Endpoint::named("a");
    let kept = Folder::new();
    let config = config(&endpoint, &kept, 1);
    let usher = Usher::start(&config);
    let [mut first, mut second, _] = fill(&usher);
    let id = room(&usher, "sale")["id"].as_str().unwrap().to_owned();
    assert_eq!(usher.stop().code(), Some(0));
    let log = kept.path().join("live").join(&id).join("1.log");
    let whole = fs::read(&log).unwrap();
    let mut bytes = whole.clone();
    bytes[20] ^= 1;
    fs::write(&log, &bytes).unwrap();

    let usher = Usher::start(&config);
    let told = usher.wait_stderr("waiting room sale: room journal ");
    assert!(told.contains("1.log: damaged at byte"), "{told}");
    assert!(enters(&usher, &mut first), "its cookie says that it may");
    assert!(!enters(&usher, &mut second));
    assert!(!enters(&usher, &mut Visitor::new()));
    assert!(Visitor::new().enters(&usher, "/other", "a"));
    let trouble = room(&usher, "sale")["trouble"].clone();
    assert!(
        trouble
            .as_str()
            .is_some_and(|words| words.contains("journal")),
        "{trouble}"
    );
    assert_eq!(room(&usher, "other")["trouble"], Value::Null);
    assert_eq!(usher.metric("usher_room_degraded{room=\"sale\"}"), 1.0);
    assert_eq!(usher.metric("usher_room_degraded{room=\"other\"}"), 0.0);

    // Put right, the next reload has it run.
    fs::write(&log, &whole).unwrap();
    usher.reload(&config);
    assert_eq!(room(&usher, "sale")["trouble"], Value::Null);
    assert!(enters(&usher, &mut first));
    assert_eq!(position(&usher, &mut second), Some(1));
}

#[test]
fn an_end_that_does_not_read_is_told_and_an_empty_log_is_damage() {
    let endpoint = Endpoint::named("a");
    let kept = Folder::new();
    let config = config(&endpoint, &kept, 1);
    let usher = Usher::start(&config);
    let mut all = fill(&usher);
    let id = room(&usher, "sale")["id"].as_str().unwrap().to_owned();
    let log = kept.path().join("live").join(&id).join("1.log");
    drop(usher.kill());
    // As a commit that came half to the disk.
    let mut bytes = fs::read(&log).unwrap();
    bytes.extend(*b"\xf5uj1\0");
    fs::write(&log, bytes).unwrap();

    let usher = Usher::start(&config);
    let told = usher.wait_stderr("waiting room sale: room journal ");
    assert!(told.contains("1.log: the last "), "{told}");
    are_there(&usher, &mut all);
    assert_eq!(room(&usher, "sale")["trouble"], Value::Null);
    assert_eq!(usher.stop().code(), Some(0));

    let usher = Usher::start(&config);
    are_there(&usher, &mut all);
    let told = usher.stderr();
    assert!(!told.contains("do not read"), "once is enough: {told}");
    assert_eq!(usher.stop().code(), Some(0));

    fs::write(&log, b"").unwrap();
    let usher = Usher::start(&config);
    let told = usher.wait_stderr("waiting room sale: room journal ");
    assert!(
        told.contains("1.log: damaged at byte 0: it is empty"),
        "{told}"
    );
    assert_eq!(usher.metric("usher_room_degraded{room=\"sale\"}"), 1.0);
    assert!(!enters(&usher, &mut Visitor::new()));
    assert_eq!(room(&usher, "other")["trouble"], Value::Null);
}

#[test]
fn a_folder_that_is_removed_while_running_is_told_and_written_anew() {
    let endpoint = Endpoint::named("a");
    let kept = Folder::new();
    let config = config(&endpoint, &kept, 1).set(
        &["waiting_rooms", "other", "usher", "on_store_failure"],
        json!("closed"),
    );
    let usher = Usher::start(&config);
    let mut all = fill(&usher);
    let live = kept.path().join("live");
    let aside = kept.path().join("aside");
    // What stands in its place keeps it from being made again until the trouble has been seen.
    fs::rename(&live, &aside).unwrap();
    fs::write(&live, b"").unwrap();
    fs::remove_dir_all(&aside).unwrap();
    for name in ["sale", "other"] {
        eventually("the trouble is told", || {
            room(&usher, name)["trouble"].is_string().then_some(())
        });
    }
    usher.expect_stderr("its file was removed");
    assert_eq!(usher.metric("usher_room_degraded{room=\"sale\"}"), 1.0);
    are_there(&usher, &mut all);
    assert!(!Visitor::new().enters(&usher, "/other", "a"), "closed");

    fs::remove_file(&live).unwrap();
    for name in ["sale", "other"] {
        eventually("it is written again", || {
            room(&usher, name)["trouble"].is_null().then_some(())
        });
    }
    eventually("the lock", || live.join("lock").exists().then_some(()));
    drop(usher.kill());
    let usher = Usher::start(&config);
    are_there(&usher, &mut all);
}

#[test]
fn a_second_process_does_not_touch_the_rooms_of_the_first() {
    let endpoint = Endpoint::named("a");
    let kept = Folder::new();
    let config = config(&endpoint, &kept, 1);
    let usher = Usher::start(&config);
    let mut all = fill(&usher);
    // Another database in the same folder: the rooms are those of the first process.
    let path = kept.path().join("second.db");
    let second = config.set(
        &["store", "url"],
        json!(format!("sqlite:{}", path.display())),
    );
    let ended = Folder::with(&second.text()).run(&["run", "--config", "usher.yaml"]);
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(
        ended.stderr.contains("another process owns them"),
        "{ended:?}"
    );
    are_there(&usher, &mut all);
}

/// From now on the process can write no file beyond so many bytes.
fn bound_files(usher: &Usher, bytes: Option<u64>) {
    let pid = i32::try_from(usher.pid()).ok().and_then(Pid::from_raw);
    let limit = Rlimit {
        current: bytes,
        maximum: None,
    };
    prlimit(pid, Resource::Fsize, limit).unwrap();
}

/// The process is told of a full disk instead of being ended by it.
fn start_bounded(config: &Config) -> Usher {
    let folder = Folder::with(&config.text());
    let usher = folder.command(&["run", "--config", "usher.yaml"]);
    let mut command = Command::new("sh");
    command
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(usher.get_program())
        .args(usher.get_args())
        .current_dir(folder.path())
        .stdin(std::process::Stdio::null());
    Usher::spawn(folder, command)
}

#[test]
fn a_full_disk_under_the_journal_is_told_and_gone_through() {
    let endpoint = Endpoint::named("a");
    let kept = Folder::new();
    let config = config(&endpoint, &kept, 2).set(
        &["waiting_rooms", "other", "usher", "on_store_failure"],
        json!("closed"),
    );
    let usher = start_bounded(&config);
    let mut first = Visitor::new();
    assert!(enters(&usher, &mut first));
    bound_files(&usher, Some(1));
    // Bounded: the room goes on from memory. Closed: nobody new comes in.
    let mut second = Visitor::new();
    assert!(enters(&usher, &mut second));
    let _tried = Visitor::new().enters(&usher, "/other", "a");
    for name in ["sale", "other"] {
        eventually("the trouble is told", || {
            room(&usher, name)["trouble"].is_string().then_some(())
        });
    }
    usher.expect_stderr("a room's journal cannot be written");
    assert!(
        !enters(&usher, &mut Visitor::new()),
        "two seats are two seats"
    );
    assert!(!Visitor::new().enters(&usher, "/other", "a"));
    assert!(enters(&usher, &mut first));
    let degraded = |name: &str| usher.metric(&format!("usher_room_degraded{{room=\"{name}\"}}"));
    assert_eq!((degraded("sale"), degraded("other")), (1.0, 1.0));

    bound_files(&usher, None);
    for name in ["sale", "other"] {
        eventually("it is written again", || {
            room(&usher, name)["trouble"].is_null().then_some(())
        });
    }
    assert_eq!(usher.stop().code(), Some(0));
    // What happened meanwhile is written, too.
    let usher = Usher::start(&config);
    assert!(enters(&usher, &mut first));
    assert!(enters(&usher, &mut second));
    assert!(!enters(&usher, &mut Visitor::new()));
}

#[test]
fn rooms_that_are_not_kept_make_everybody_new() {
    let endpoint = Endpoint::named("a");
    let kept = Folder::new();
    let config = config(&endpoint, &kept, 1).set(&["live_state"], json!({"journal": "off"}));
    let usher = Usher::start(&config);
    let [mut first, mut second, _] = fill(&usher);
    assert!(!kept.path().join("live").exists());
    assert_eq!(usher.stop().code(), Some(0));
    let usher = Usher::start(&config);
    // The seat that the old cookie speaks of is forgotten, or there would be two.
    assert!(enters(&usher, &mut second));
    assert!(!enters(&usher, &mut first));
    usher.reload_text(&config.set(&["live_state"], json!({})).text(), "rejected");
    usher.expect_stderr("live_state.journal changed");
}
