//! A front whose `/sale` is a waiting room with an owner, and an endpoint behind that says what it got.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use tokio::sync::oneshot;
use usher_core::admission::{Answer, Claims, Settings, Standing, Visitor};
use usher_core::id::Id;
use usher_edge::http::rooms::{Room, Rooms, WaitingPage};
use usher_edge::seal::Keys;
use usher_rooms::clock::Clock;
use usher_rooms::cookie::{Attributes, Jar, SameSite};
use usher_rooms::door::{Door, Json};
use usher_rooms::owner::{Found, OnStoreFailure, Post};
use usher_rooms::route::PrefixMatch;
use usher_rooms::words::Language;

use crate::block_on;
use crate::kit::{HOST, Origin, Setup, Usher, field, status};

pub(super) const ROOM: Id = Id::from_bytes([7; 16]);
pub(super) const PATH: &str = "/sale";
pub(super) const OWN: &str = "/sale/cdn-cgi/waitingroom";
pub(super) const SECRET: &str = "a secret of these tests, and no other";
/// Nobody's.
pub(super) const NOBODY: Visitor = Visitor::from_u128(u128::MAX);

/// A room's owner, on a thread of its own like a node's.
pub(super) struct Owner {
    pub(super) post: Post,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Owner {
    pub(super) fn start(settings: Settings, clock: Clock) -> Owner {
        let (begun, post) = channel();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            block_on(async {
                let found = Found::unkept();
                let post = found.start(settings, OnStoreFailure::Bounded, clock, 1);
                begun.send(post).expect("the test waits");
                let _ = stopped.await;
            });
        });
        Owner {
            post: post.recv().expect("an owner"),
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Nobody answers from now on.
    pub(super) fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it ends well");
        }
    }

    /// Sets this and waits until everybody can see it, and all that happened before.
    pub(super) fn set(&self, settings: Settings) {
        block_on(async {
            let set = self.post.set(settings, OnStoreFailure::Bounded).await;
            set.expect("an owner");
            // The answer to the second question comes after the news of the first.
            for _ in 0..2 {
                let asked = self.post.renew(NOBODY, None).expect("an owner");
                assert_eq!(asked.answer().await, Ok(Answer::Ended));
            }
        });
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        drop(self.stop.take());
    }
}

/// A front whose `/sale` is a waiting room.
pub(super) struct House {
    pub(super) usher: Usher,
    pub(super) owner: Owner,
    pub(super) clock: Clock,
    pub(super) settings: Settings,
    _origin: Origin,
}

/// What a test wants of its room.
pub(super) struct Plan {
    pub(super) settings: Settings,
    pub(super) setup: Box<dyn Fn(&mut Setup)>,
    pub(super) room: Box<dyn Fn(&mut Room)>,
}

impl Plan {
    /// A room of so many seats.
    pub(super) fn of(seats: u64) -> Plan {
        Plan {
            settings: Settings::new(seats, 1000),
            setup: Box::new(|_| {}),
            room: Box::new(|_| {}),
        }
    }

    pub(super) fn room(mut self, edit: impl Fn(&mut Room) + 'static) -> Plan {
        self.room = Box::new(edit);
        self
    }

    pub(super) fn open(self) -> House {
        self.before(site())
    }

    pub(super) fn before(self, origin: Origin) -> House {
        let clock = Clock::start(0);
        let owner = Owner::start(self.settings, clock);
        let mut setup = Setup::to(&[origin.address]);
        (self.setup)(&mut setup);
        let usher = setup.start();
        let mut room = room(owner.post.clone(), clock);
        (self.room)(&mut room);
        let mut rooms = Rooms::new();
        rooms.add(Arc::new(room), [(HOST, PATH)], PrefixMatch::Segments);
        usher.plane.open_rooms(rooms);
        House {
            usher,
            owner,
            clock,
            settings: self.settings,
            _origin: origin,
        }
    }
}

pub(super) fn room(post: Post, clock: Clock) -> Room {
    Room {
        name: "sale".to_owned(),
        door: Door {
            room: ROOM,
            jar: jar(),
            post,
            clock,
            bypass: Vec::new(),
            on_failure: OnStoreFailure::Bounded,
            revocable: false,
            json: Json::Exact,
            show_position: true,
        },
        page: WaitingPage::BuiltIn,
        language: Language::EnUs,
        negotiate_language: false,
        status: 200,
        json_extensions: false,
        status_stream: true,
    }
}

pub(super) fn keys(secret: &str) -> Arc<Keys> {
    Arc::new(Keys::new(&[secret]).expect("a good secret"))
}

pub(super) fn jar() -> Jar {
    jar_of(ROOM, SECRET)
}

pub(super) fn jar_of(room: Id, secret: &str) -> Jar {
    let attributes = Attributes {
        suffix: String::new(),
        path: PATH.to_owned(),
        domain: None,
        secure: false,
        same_site: SameSite::Lax,
    };
    Jar::new(room, &attributes, keys(secret))
}

/// An endpoint that says what it got, and in its head what the query asks for.
pub(super) fn site() -> Origin {
    Origin::new(|peer, _, _| {
        while let Some(first) = peer.exactly_or_end(1) {
            let mut head = format!("{}{}", char::from(first[0]), peer.head());
            if let Some(length) = field(&head, "content-length") {
                let body = peer.exactly(length.parse().expect("a length"));
                head += &String::from_utf8(body).expect("text");
            }
            let revoke = if head.contains("revoke") {
                "cf-waiting-room-COMMAND:  revoke \r\n"
            } else {
                ""
            };
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nCache-Control: public, max-age=60\r\n\
                 Surrogate-Control: max-age=600\r\n{revoke}Content-Length: {}\r\n\r\n{head}",
                head.len()
            ));
        }
    })
}

/// An answer, read.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) head: String,
    pub(super) body: String,
}

impl Told {
    pub(super) fn status(&self) -> u16 {
        status(&self.head)
    }

    pub(super) fn field(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }

    /// The endpoint answered.
    pub(super) fn is_inside(&self) -> bool {
        self.body.contains("X-Forwarded-For")
    }

    /// The cookie as a browser sends it back.
    pub(super) fn cookie(&self) -> String {
        let set = self.field("set-cookie").expect("a cookie");
        set.split(';').next().unwrap_or_default().to_owned()
    }

    /// What the cookie says.
    pub(super) fn claims(&self) -> Claims {
        let cookie = self.cookie();
        let value = cookie.split_once('=').expect("a value").1;
        jar().open_value(value.as_bytes()).expect("claims of ours")
    }

    pub(super) fn json(&self, key: &str) -> &str {
        let key = format!("\"{key}\":");
        let at = self
            .body
            .find(&key)
            .unwrap_or_else(|| panic!("{key} in {}", self.body));
        let rest = &self.body[at + key.len()..];
        rest.split([',', '}'])
            .next()
            .unwrap_or_default()
            .trim_matches('"')
    }
}

impl House {
    pub(super) fn ask(&self, method: &str, path: &str, lines: &[(&str, &str)]) -> Told {
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {HOST}\r\n");
        for (name, value) in lines {
            request += &format!("{name}: {value}\r\n");
        }
        let mut client = self.usher.client();
        client.send(request + "\r\n");
        let (head, body) = if method == "HEAD" {
            (client.head(), String::new())
        } else {
            client.message()
        };
        Told { head, body }
    }

    pub(super) fn visit(&self, cookie: &str) -> Told {
        self.ask("GET", PATH, &[("Cookie", cookie)])
    }

    /// A visitor who was let in: its cookie.
    pub(super) fn enter(&self) -> String {
        let told = self.ask("GET", PATH, &[]);
        assert!(told.is_inside(), "{told:?}");
        assert_eq!(told.claims().standing, Standing::Active);
        told.cookie()
    }

    /// A visitor who waits: its cookie.
    pub(super) fn queue(&self) -> String {
        let told = self.ask("GET", PATH, &[]);
        assert!(!told.is_inside(), "{told:?}");
        assert_eq!(told.claims().standing, Standing::Waiting);
        told.cookie()
    }

    /// Until what happened can be seen from outside.
    pub(super) fn settle(&self) {
        self.owner.set(self.settings);
    }

    pub(super) fn set(&mut self, edit: impl FnOnce(&mut Settings)) {
        edit(&mut self.settings);
        self.settle();
    }

    pub(super) fn status_of(&self, query: &str, cookie: &str) -> Told {
        let path = format!("{OWN}/status?room={ROOM}{query}");
        self.ask("GET", &path, &[("Cookie", cookie)])
    }
}

/// These claims, changed, as a cookie of ours.
pub(super) fn resealed(cookie: &str, edit: impl FnOnce(&mut Claims)) -> String {
    let value = cookie.split_once('=').expect("a value").1;
    let mut claims = jar().open_value(value.as_bytes()).expect("claims of ours");
    edit(&mut claims);
    let set = jar().set(&claims, 60);
    set.split(';').next().unwrap_or_default().to_owned()
}

pub(super) fn resealed_claims(cookie: &str) -> Claims {
    let value = cookie.split_once('=').expect("a value").1;
    jar().open_value(value.as_bytes()).expect("claims of ours")
}
