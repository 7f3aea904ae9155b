//! Visitors over real HTTP: each has its cookie, all share a few hundred connections.
//!
//! A visitor comes back when the answer told it to, as a program that was written against the JSON
//! of a waiting room does. Most go in, look around and leave; some stay silent inside, some never
//! come back to the line, some are away for a while. When the server dies they notice, and ask again.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use usher_core::admission::{Claims, Standing};
use usher_rooms::cookie::Jar;

use super::witness::{Said, Statement, Witness};
use crate::support::config::HOST;
use crate::support::{Message, Wire};

/// How long until who got no answer asks again.
const AGAIN: Duration = Duration::from_millis(100);
/// Between two requests of one who is inside.
const LOOK: Duration = Duration::from_millis(200);
const LOOKS: u8 = 2;

/// Where visitors go.
pub struct Site {
    /// The path of the room.
    pub path: String,
    /// The id of the room.
    pub room: String,
    pub jar: Jar,
    /// For how long a wanderer is away: longer than it is held for present, shorter than its place is
    /// kept.
    pub away: Duration,
}

pub struct Crowd {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    site: Site,
    /// Nobody listens while it is `None`.
    address: RwLock<Option<SocketAddr>>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    due: BinaryHeap<Due>,
    ended: Vec<Guest>,
    /// Visitors in the hands of a connection.
    busy: usize,
    /// Visitors who have been inside.
    entered: usize,
    /// Whoever waits has asked since this was last raised; see [`Crowd::wait_for_everybody`].
    round: u64,
    over: bool,
}

struct Due(Instant, Guest);

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        self.0 == other.0
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    /// The earliest is the greatest, and first out of the heap.
    fn cmp(&self, other: &Due) -> Ordering {
        other.0.cmp(&self.0)
    }
}

/// What a visitor is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Looks around and says that it leaves.
    Leaves,
    /// Looks around and is not heard of again.
    Idles,
    /// Does not come back to the line.
    GivesUp,
    /// Is away from the line for a while.
    Wanders,
}

struct Guest {
    witness: Witness,
    manner: Manner,
    /// The cookie as it was given.
    cookie: Option<String>,
    claims: Option<Claims>,
    looks: u8,
    wandered: bool,
    entered: bool,
    round: u64,
}

impl Crowd {
    /// So many visitors arrive at once, over so many connections.
    pub fn start(site: Site, address: SocketAddr, visitors: usize, connections: usize) -> Crowd {
        let now = Instant::now();
        let due = (0..visitors)
            .map(|number| Due(now, Guest::new(number)))
            .collect();
        let shared = Arc::new(Shared {
            site,
            address: RwLock::new(Some(address)),
            state: Mutex::new(State {
                due,
                ..State::default()
            }),
            changed: Condvar::new(),
        });
        let threads = (0..connections)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.serve())
            })
            .collect();
        Crowd { shared, threads }
    }

    /// Waits until so many have been inside.
    pub fn wait_entered(&self, count: usize, within: Duration) {
        let what = format!("{count} visitors inside");
        self.wait(&what, within, |state| state.entered >= count);
    }

    /// Waits until each visitor is through with it.
    pub fn wait_ended(&self, within: Duration) {
        self.wait("the end of all visits", within, |state| {
            state.due.is_empty() && state.busy == 0
        });
    }

    /// Waits until whoever is still about has had an answer from now on.
    pub fn wait_for_everybody(&self, within: Duration) {
        let round = {
            let mut state = self.shared.state.lock().unwrap();
            state.round += 1;
            state.round
        };
        self.wait("an answer for everybody", within, |state| {
            state.busy == 0 && state.due.iter().all(|due| due.1.round >= round)
        });
    }

    fn wait(&self, what: &str, within: Duration, until: impl Fn(&State) -> bool) {
        let end = Instant::now() + within;
        let mut state = self.shared.state.lock().unwrap();
        while !until(&state) {
            let left = end.saturating_duration_since(Instant::now());
            let dead = self.threads.iter().any(JoinHandle::is_finished);
            assert!(!left.is_zero() && !dead, "not within {within:?}: {what}");
            // A thread that has failed tells nobody, so look for it now and then.
            let pause = left.min(Duration::from_secs(1));
            state = self.shared.changed.wait_timeout(state, pause).unwrap().0;
        }
    }

    /// From here on nobody connects, until [`Crowd::go_on`]: another server may get the address.
    pub fn hold(&self) {
        *self.shared.address.write().unwrap() = None;
    }

    /// The server is there again.
    pub fn go_on(&self, address: SocketAddr) {
        *self.shared.address.write().unwrap() = Some(address);
    }

    /// Ends it, and gives what all of them say.
    pub fn stop(self) -> Vec<Witness> {
        self.shared.state.lock().unwrap().over = true;
        self.shared.changed.notify_all();
        for thread in self.threads {
            thread.join().expect("no visitor fails");
        }
        let mut state = self.shared.state.lock().unwrap();
        let State { due, ended, .. } = std::mem::take(&mut *state);
        let mut all: Vec<Witness> = (due.into_iter().map(|due| due.1))
            .chain(ended)
            .map(|guest| guest.witness)
            .collect();
        all.sort_by_key(|witness| witness.number);
        all
    }
}

impl Shared {
    fn serve(&self) {
        let mut wire = None;
        while let Some(mut guest) = self.next() {
            let next = self.ask(&mut wire, &mut guest);
            let mut state = self.state.lock().unwrap();
            state.busy -= 1;
            if guest.is_inside() && !guest.entered {
                guest.entered = true;
                state.entered += 1;
            }
            match next {
                Some(pause) => state.due.push(Due(Instant::now() + pause, guest)),
                None => state.ended.push(guest),
            }
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Who is to ask next, when it is time.
    fn next(&self) -> Option<Guest> {
        let mut state = self.state.lock().unwrap();
        loop {
            if state.over {
                return None;
            }
            let now = Instant::now();
            let pause = match state.due.peek() {
                Some(due) if due.0 <= now => {
                    let Due(_, mut guest) = state.due.pop().expect("just seen");
                    state.busy += 1;
                    guest.round = state.round;
                    return Some(guest);
                }
                Some(due) => due.0 - now,
                None => Duration::from_secs(1),
            };
            state = self.changed.wait_timeout(state, pause).unwrap().0;
        }
    }

    /// One exchange; when the visitor comes again, if it does.
    fn ask(&self, wire: &mut Option<Wire>, guest: &mut Guest) -> Option<Duration> {
        if wire.is_none() {
            // Held until it is connected, so that nobody connects behind the back of `hold`.
            let address = self.address.read().unwrap();
            let socket = address.and_then(|address| TcpStream::connect(address).ok());
            *wire = socket.map(Wire::over);
        }
        let Some(open) = wire else {
            guest.round = 0;
            return Some(AGAIN);
        };
        let leaving = guest.is_leaving();
        let request = guest.request(&self.site, leaving);
        let sent = now_ms();
        let answer = match open.try_send(request) {
            Ok(()) => open.try_response().ok(),
            Err(_) => None,
        };
        let received = now_ms();
        if answer
            .as_ref()
            .is_none_or(|a| a.names("connection", "close"))
        {
            *wire = None;
        }
        let (said, next) = match &answer {
            Some(answer) => guest.hear(&self.site, answer, leaving),
            None => (Said::Silence { leaving }, (!leaving).then_some(AGAIN)),
        };
        guest.witness.statements.push(Statement {
            sent,
            received,
            said,
        });
        next
    }
}

impl Guest {
    fn new(number: usize) -> Guest {
        let manner = match number % 20 {
            3 | 13 => Manner::Idles,
            7 => Manner::GivesUp,
            17 => Manner::Wanders,
            _ => Manner::Leaves,
        };
        Guest {
            witness: Witness {
                number,
                statements: Vec::new(),
            },
            manner,
            cookie: None,
            claims: None,
            looks: 0,
            wandered: false,
            entered: false,
            round: 0,
        }
    }

    fn is_inside(&self) -> bool {
        (self.claims).is_some_and(|claims| claims.standing == Standing::Active)
    }

    fn is_leaving(&self) -> bool {
        self.is_inside() && self.looks >= LOOKS
    }

    fn request(&self, site: &Site, leaving: bool) -> String {
        let head = if leaving {
            let room = &site.room;
            format!(
                "POST /cdn-cgi/waitingroom/leave?room={room} HTTP/1.1\r\nOrigin: http://{HOST}\r\nSec-Fetch-Site: same-origin\r\nContent-Length: 0\r\n"
            )
        } else {
            let (path, number) = (&site.path, self.witness.number);
            format!("GET {path}/{number} HTTP/1.1\r\nAccept: application/json\r\n")
        };
        let cookie = match &self.cookie {
            Some(cookie) => format!("Cookie: {cookie}\r\n"),
            None => String::new(),
        };
        format!("{head}Host: {HOST}\r\n{cookie}\r\n")
    }

    /// What an answer says, and when to come again.
    fn hear(&mut self, site: &Site, answer: &Message, leaving: bool) -> (Said, Option<Duration>) {
        let status = answer.status();
        if leaving {
            let said = match status {
                200 | 204 => Said::Left,
                _ => Said::Other(status),
            };
            return (said, None);
        }
        let claims = self.take_cookie(site, answer);
        if answer.field("usher-waiting-room").is_some() {
            return self.wait(site, claims, answer);
        }
        if status != 200 {
            return (Said::Other(status), None);
        }
        self.looks += 1;
        let next = match self.manner {
            Manner::Idles if self.looks >= LOOKS => None,
            _ => Some(LOOK),
        };
        (Said::Inside { claims }, next)
    }

    fn wait(
        &mut self,
        site: &Site,
        claims: Option<Claims>,
        answer: &Message,
    ) -> (Said, Option<Duration>) {
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let refresh = body["cfWaitingRoom"]["refreshIntervalSeconds"].as_u64();
        let Some(refresh) = refresh else {
            return (Said::Other(answer.status()), None);
        };
        let position = body["usher"]["position"].as_u64();
        let away = body["usher"]["aheadAway"].as_u64().unwrap_or(0);
        // Not all at the same moment of each second.
        let spread = Duration::from_millis(self.witness.number as u64 * 7 % 97);
        let mut next = Some(Duration::from_secs(refresh) + spread);
        match self.manner {
            Manner::GivesUp => next = None,
            Manner::Wanders if !self.wandered => {
                self.wandered = true;
                next = Some(site.away);
            }
            _ => {}
        }
        let said = Said::Waits {
            claims,
            position,
            away,
        };
        (said, next)
    }

    /// Keeps the cookie that comes along, as a browser does, and says what is in it.
    fn take_cookie(&mut self, site: &Site, answer: &Message) -> Option<Claims> {
        let line = answer.field("set-cookie")?;
        let (pair, _) = line.split_once(';').unwrap_or((line, ""));
        let (name, value) = pair.split_once('=').expect("a cookie");
        assert_eq!(name, site.jar.name());
        let claims = site.jar.open_value(value.as_bytes());
        assert!(
            claims.is_some() || value.is_empty(),
            "a cookie that does not open: {line}"
        );
        self.cookie = claims.map(|_| pair.to_owned());
        self.claims = claims;
        claims
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}
