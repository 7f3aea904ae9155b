//! What a waiting room adds to a request, in process: `cargo bench -p usher-edge --bench rooms`.
//! Goals for a visitor with a seat: 5 us at the median, 50 us at the 99th percentile.

#![allow(clippy::print_stdout, reason = "a bench prints what it saw")]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;

use usher_core::admission::{Answer, Claims, Settings, Visitor};
use usher_core::id::Id;
use usher_core::request::{Location, Request, Scheme};
use usher_core::rules::Condition;
use usher_core::rules::facts::Facts;
use usher_core::time::Wall;
use usher_edge::http::rooms::{Room, Rooms, WaitingPage};
use usher_edge::seal::Keys;
use usher_rooms::clock::Clock;
use usher_rooms::cookie::{Attributes, Jar, SameSite};
use usher_rooms::door::{Door, Json, Outcome, Presence, Step};
use usher_rooms::owner::{Found, OnStoreFailure};
use usher_rooms::route::PrefixMatch;
use usher_rooms::words::Language;

const ROOM: Id = Id::from_bytes([7; 16]);
const TIMES: usize = 200_000;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(run());
}

async fn run() {
    let clock = Clock::start(0);
    let settings = Settings::new(1, 1000).session(24 * 3_600_000);
    let post = Found::unkept().start(settings, OnStoreFailure::Bounded, clock, 1);
    let keys = Keys::new(&[Keys::generate()]).expect("a key");
    let attributes = Attributes {
        suffix: String::new(),
        path: "/".to_owned(),
        domain: None,
        secure: false,
        same_site: SameSite::Lax,
    };
    let jar = Jar::new(ROOM, &attributes, Arc::new(keys));
    let ask = async |visitor: u128| {
        let visitor = Visitor::from_u128(visitor);
        let pending = post.ask(visitor, None).expect("an owner");
        let claims = match pending.answer().await.expect("an answer") {
            Answer::Forward(seat) => Claims::seated(visitor, &seat, None, clock.now()),
            Answer::Wait(place) => Claims::waiting(visitor, &place, None, clock.now()),
            other => panic!("{other:?}"),
        };
        let set = jar.set(&claims, 300);
        set.split(';').next().unwrap_or_default().to_owned()
    };
    let (seated, waiting) = (ask(1).await, ask(2).await);
    let mut rooms = Rooms::new();
    let rule = r#"starts_with(http.request.uri.path, "/assets/")"#;
    let room = Room {
        name: "shop".to_owned(),
        door: Door {
            room: ROOM,
            jar,
            post,
            clock,
            bypass: vec![Condition::parse(rule).expect("a rule")],
            on_failure: OnStoreFailure::Bounded,
            revocable: true,
            json: Json::Exact,
            show_position: true,
        },
        page: WaitingPage::BuiltIn,
        language: Language::EnUs,
        negotiate_language: false,
        status: 200,
        json_extensions: false,
        status_stream: true,
    };
    let routes = [("shop.example.com", "/")];
    rooms.add(Arc::new(room), routes, PrefixMatch::Segments);
    figure("nobody's", &rooms, "www.example.com", &seated);
    figure("a visitor with a seat", &rooms, "shop.example.com", &seated);
    figure("a visitor who waits", &rooms, "shop.example.com", &waiting);
}

/// What an ordinary request of a browser costs, with this cookie among two others.
fn figure(name: &str, rooms: &Rooms, host: &str, cookie: &str) {
    let cookie = format!("session=0123456789abcdef; {cookie}; theme=dark");
    let lines = [
        ("host", host),
        ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0)"),
        ("accept", "text/html,application/xhtml+xml,*/*;q=0.8"),
        ("accept-language", "en-US,en;q=0.5"),
        ("accept-encoding", "gzip, deflate, br, zstd"),
        ("sec-fetch-dest", "document"),
        ("sec-fetch-mode", "navigate"),
        ("sec-fetch-site", "same-origin"),
        ("cookie", &cookie),
    ];
    let request = Request {
        host,
        method: "GET",
        uri: "/catalog/items?page=2",
        version: "HTTP/2",
        headers: &lines,
        scheme: Scheme::Https,
        client: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        location: Location::default(),
        time: Wall::from_millis(1_796_119_200_000),
        draw: 0,
    };
    let facts = Facts::of("", &request, &request.location, request.time);
    let mut presence = Presence::new();
    let mut once = || {
        let Ok(Some(room)) = rooms.owner_of(request.host, request.uri) else {
            return;
        };
        let look = room.door.look(&request, false);
        let step = (room.door).decide(&request, look.kind, Some(&facts), &mut presence, || 0);
        if let Step::Now(told) = step
            && let Outcome::Pass(mut pass) = told.outcome
        {
            black_box(room.door.answered(&mut pass, None));
            room.door.over(&pass);
        }
    };
    let mut times: Vec<u64> = (0..TIMES)
        .map(|_| {
            let start = Instant::now();
            once();
            u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
        })
        .collect();
    times.sort_unstable();
    let of = |part: f64| times[(part * (TIMES - 1) as f64) as usize] as f64 / 1000.0;
    println!(
        "rooms: {name}: {:.2} us at the median, {:.2} us at the 99th percentile",
        of(0.5),
        of(0.99)
    );
}
