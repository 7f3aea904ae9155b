//! A rush: thousands of visitors at once, a process that is killed in the middle, and a judge.
//!
//! The log of the room and what the visitors were told are judged offline. With `USHER_SOAK=1` it is
//! 20,000 visitors, all of whom get through.

mod crowd;
mod judge;
mod witness;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};
use usher_core::id::Id;
use usher_edge::seal::Keys;
use usher_rooms::cookie::{Attributes, Jar, SameSite};
use usher_rooms::owner::{Event, history};

use self::crowd::{Crowd, Site};
use self::judge::{Breach, Rules, judge};
use self::witness::{Presence, Said, Witness, cross};
use crate::support::api::result;
use crate::support::config::HOST;
use crate::support::{Config, Endpoint, Usher};

const SECRET: &str = "a-secret-of-the-test-that-is-long-enough";
const PATH: &str = "/sale";

/// How big a rush is.
struct Scale {
    visitors: usize,
    connections: usize,
    total: u64,
    per_minute: u64,
    refresh_secs: u64,
    kills: usize,
    /// Until everybody is through, or only until the minute is full.
    to_the_end: bool,
    /// Bounds each wait; nothing depends on how much of it is needed.
    patience: Duration,
}

const GATE: Scale = Scale {
    visitors: 2_000,
    connections: 100,
    total: 150,
    per_minute: 900,
    refresh_secs: 4,
    kills: 1,
    to_the_end: false,
    patience: Duration::from_secs(180),
};

const SOAK: Scale = Scale {
    visitors: 20_000,
    connections: 300,
    total: 800,
    per_minute: 4_000,
    refresh_secs: 20,
    kills: 3,
    to_the_end: true,
    patience: Duration::from_secs(1_800),
};

impl Scale {
    fn present_ms(&self) -> u64 {
        (2 * self.refresh_secs + 5) * 1000
    }
}

#[test]
fn a_rush_is_let_in_by_the_rules_though_the_process_is_killed() {
    let soak = std::env::var_os("USHER_SOAK").is_some_and(|value| value == "1");
    let scale = if soak { SOAK } else { GATE };
    let endpoint = Endpoint::named("a");
    let config = config(&endpoint, &scale);
    let mut usher = Usher::start(&config);
    let room = room_id(&usher, "sale");
    let keeper = Keeper::start(&usher, &room);
    let site = Site {
        path: PATH.to_owned(),
        jar: jar(&room),
        room: room.clone(),
        away: Duration::from_millis(scale.present_ms() + 3_000),
    };
    let (count, connections) = (scale.visitors, scale.connections);
    let crowd = Crowd::start(site, usher.address("http"), count, connections);
    let goal = if scale.to_the_end {
        scale.visitors * 9 / 10
    } else {
        usize::try_from(scale.per_minute).unwrap() - scale.kills * 8
    };
    for kill in 1..=scale.kills {
        crowd.wait_entered(goal * kill / (scale.kills + 1), scale.patience);
        crowd.hold();
        let folder = usher.kill();
        keeper.look();
        usher = Usher::start_in(folder);
        crowd.go_on(usher.address("http"));
    }
    if scale.to_the_end {
        crowd.wait_ended(scale.patience);
    } else {
        crowd.wait_entered(goal, scale.patience);
        // Whoever would be let in by mistake has the time to be.
        crowd.wait_for_everybody(scale.patience);
    }
    let witnesses = crowd.stop();
    assert!(usher.stop().success());
    let events = keeper.events(&room);
    judged(&scale, &events, &witnesses, &endpoint);
}

fn judged(scale: &Scale, events: &[Event], witnesses: &[Witness], endpoint: &Endpoint) {
    let rules = Rules {
        present_ms: scale.present_ms(),
        ..Rules::of(scale.total, scale.per_minute)
    };
    let presence = Presence::of(witnesses, rules.present_ms);
    let account = judge(&rules, events, &|visitor, at| presence.certain(visitor, at));
    let reached: BTreeSet<usize> = (endpoint.arrived().iter())
        .filter_map(|message| message.target().strip_prefix(PATH)?.strip_prefix('/'))
        .map(|number| number.parse().expect("a visitor"))
        .collect();
    let mut breaches: Vec<Breach> = account.breaches.clone();
    breaches.extend(cross(&rules, &account, witnesses, &reached));
    let waited = (witnesses.iter())
        .filter(|witness| {
            let first = witness.statements.first();
            first.is_some_and(|one| matches!(one.said, Said::Waits { .. }))
        })
        .count();
    let answers: usize = witnesses.iter().map(|one| one.statements.len()).sum();
    println!(
        "{} visitors, {answers} answers, {waited} of them waited; {} admitted, {} called, {} late; \
         {} reached the endpoint; at most {} of {} seats, {} of {} in a minute; crashes {:?}, {} seats remembered; \
         {} events, {} breaches",
        witnesses.len(),
        account.admissions.len(),
        account.calls.len(),
        account.late.len(),
        reached.len(),
        account.seats_max,
        rules.limits[0].1.total,
        account.minute_max,
        rules.limits[0].1.per_minute,
        account.recoveries,
        account.remembered,
        events.len(),
        breaches.len(),
    );
    let shown: Vec<String> = breaches.iter().take(20).map(ToString::to_string).collect();
    assert!(
        breaches.is_empty(),
        "{} breaches:\n{}",
        breaches.len(),
        shown.join("\n")
    );
    // The rush was one: both limits were reached, and the crash was a crash.
    assert_eq!(account.recoveries.len(), scale.kills);
    assert_eq!(account.seats_max, scale.total);
    assert!(waited > scale.visitors / 2, "{waited} waited");
    let nobody = (witnesses.iter()).filter(|one| one.statements.is_empty());
    assert_eq!(nobody.count(), 0, "everybody was told something");
}

fn config(endpoint: &Endpoint, scale: &Scale) -> Config {
    let room = json!({
        "zone": "example.com",
        "host": HOST,
        "path": PATH,
        "total_active_users": scale.total,
        "new_users_per_minute": scale.per_minute,
        "json_response_enabled": true,
        "usher": {
            "session_duration_seconds": 5,
            "refresh_interval_seconds": scale.refresh_secs,
            "json_extensions": true,
        },
    });
    Config::serving([endpoint.origin("a")])
        .set(&["store"], json!({"url": "sqlite:usher.db"}))
        .set(&["secrets"], json!({"seal": [SECRET]}))
        .set(&["access_log"], Value::Null)
        .set(&["waiting_rooms", "sale"], room)
}

/// What opens the cookies of that room.
fn jar(room: &str) -> Jar {
    let attributes = Attributes {
        suffix: String::new(),
        path: PATH.to_owned(),
        domain: None,
        secure: false,
        same_site: SameSite::Lax,
    };
    let keys = Keys::new(&[SECRET]).expect("a secret");
    Jar::new(id(room), &attributes, Arc::new(keys))
}

fn id(text: &str) -> Id {
    let number = u128::from_str_radix(text, 16).expect("32 hexadecimal digits");
    Id::from_bytes(number.to_be_bytes())
}

/// The id of the room with this name.
pub fn room_id(usher: &Usher, name: &str) -> String {
    let text = |value: &Value| value["id"].as_str().expect("an id").to_owned();
    let zones = result(&usher.api_get("/client/v4/zones?name=example.com"));
    let path = format!("/client/v4/zones/{}/waiting_rooms", text(&zones[0]));
    let rooms = result(&usher.api_get(&path));
    let mut rooms = rooms.as_array().expect("a list").iter();
    text(rooms.find(|room| room["name"] == name).expect("the room"))
}

/// Keeps every log of a room: the room removes them when a snapshot says the same.
struct Keeper {
    live: PathBuf,
    kept: tempfile::TempDir,
    over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Keeper {
    fn start(usher: &Usher, room: &str) -> Keeper {
        let live = usher.path("live").join(room);
        // On the same file system: what is kept is a second name.
        let beside = usher.folder().path().parent().expect("a folder of folders");
        let kept = tempfile::tempdir_in(beside).expect("a folder");
        let over = Arc::new(AtomicBool::new(false));
        let (from, to, told) = (live.clone(), kept.path().to_owned(), Arc::clone(&over));
        let thread = std::thread::spawn(move || {
            // A log lives for a minute at least, and no event tells of a new one.
            while !told.load(Ordering::SeqCst) {
                link_logs(&from, &to);
                std::thread::park_timeout(Duration::from_secs(1));
            }
        });
        let keeper = Keeper {
            live,
            kept,
            over,
            thread,
        };
        keeper.look();
        keeper
    }

    fn look(&self) {
        link_logs(&self.live, self.kept.path());
    }

    /// All that the logs say.
    fn events(self, room: &str) -> Vec<Event> {
        self.look();
        self.over.store(true, Ordering::SeqCst);
        self.thread.thread().unpark();
        self.thread.join().expect("it only looks");
        let mut logs: Vec<(u64, PathBuf)> = (std::fs::read_dir(self.kept.path()).unwrap())
            .map(|entry| {
                let path = entry.unwrap().path();
                let number = path.file_stem().expect("a name").to_string_lossy();
                (number.parse().expect("a number"), path)
            })
            .collect();
        logs.sort();
        let numbers: Vec<u64> = logs.iter().map(|(number, _)| *number).collect();
        let all: Vec<u64> = (1..=logs.len() as u64).collect();
        assert_eq!(numbers, all, "every log was kept");
        let logs = logs.iter();
        logs.flat_map(|(_, path)| history(path, id(room)).expect("a log"))
            .collect()
    }
}

fn link_logs(from: &Path, to: &Path) {
    let entries = std::fs::read_dir(from).into_iter().flatten();
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|kind| kind == "log") {
            // It may be there already.
            let _ = std::fs::hard_link(&path, to.join(path.file_name().expect("a file")));
        }
    }
}
