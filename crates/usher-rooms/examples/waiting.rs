//! Visitors for `bench/rooms.py`: a million who wait, or a thousand at one instant.
//!
//! `waiting crowd ADDRESS HOST ROOM VISITORS CONNECTIONS REFRESH RAMP SECONDS PID` lets visitors arrive
//! over RAMP seconds; each has a cookie of its own and asks for its place every REFRESH seconds from
//! then on. After the ramp and one refresh more, the polls of SECONDS seconds are measured, and the
//! CPU of process PID meanwhile. A poll is timed from the moment at which it was due, not from the one
//! at which a connection was free for it: a server that stalls has everybody wait, not only one.
//!
//! `waiting burst ADDRESS HOST PATH VISITORS MARK` sends that many first requests at one instant, each
//! on a connection of its own, and counts the answers whose body is MARK.
//!
//! One thread, which leaves the other core of two to the server. Each prints one line of JSON.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "the report is what this program is for, and it reads the clock"
)]

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::fd::OwnedFd;
use rustix::time::Timespec;

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// The longest cookie, name and value.
const COOKIE_MAX: usize = 255;
/// An answer of a poll is a few hundred bytes of header and a kilobyte of JSON.
const ANSWER_MAX: usize = 64 * 1024;

fn main() -> Result<(), Failed> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [
            "crowd",
            address,
            host,
            room,
            visitors,
            connections,
            refresh,
            ramp,
            seconds,
            pid,
        ] => {
            let plan = Plan {
                visitors: visitors.parse()?,
                refresh_ms: refresh.parse::<u64>()? * 1000,
                ramp_ms: ramp.parse::<u64>()? * 1000,
                measured_ms: seconds.parse::<u64>()? * 1000,
                pid: pid.parse()?,
            };
            let asks = Asks::new(host, room);
            Crowd::new(address.parse()?, connections.parse()?, asks, plan)?.run()
        }
        ["burst", address, host, path, visitors, mark] => {
            burst(address.parse()?, host, path, visitors.parse()?, mark)
        }
        _ => Err(
            "usage: waiting crowd ADDRESS HOST ROOM VISITORS CONNECTIONS REFRESH RAMP SECONDS PID | \
             waiting burst ADDRESS HOST PATH VISITORS MARK"
                .into(),
        ),
    }
}

struct Plan {
    visitors: u32,
    refresh_ms: u64,
    ramp_ms: u64,
    measured_ms: u64,
    pid: u32,
}

impl Plan {
    /// When this visitor arrives, us.
    fn arrives(&self, visitor: u32) -> u64 {
        u64::from(visitor) * self.ramp_ms * 1000 / u64::from(self.visitors)
    }
}

/// What is sent, but for the cookie.
struct Asks {
    first: Vec<u8>,
    poll: Vec<u8>,
}

impl Asks {
    fn new(host: &str, room: &str) -> Asks {
        let ask = |more: &str, end: &str| {
            format!(
                "GET /cdn-cgi/waitingroom/status?room={room}{more} HTTP/1.1\r\nHost: {host}\r\n\
                 Accept: application/json\r\n{end}"
            )
            .into_bytes()
        };
        Asks {
            first: ask("&new", "\r\n"),
            poll: ask("", "Cookie: "),
        }
    }
}

/// Everybody's cookie, one after the other: a million must not cost more than their bytes.
struct Cookies {
    bytes: Vec<u8>,
    lengths: Vec<u8>,
}

impl Cookies {
    fn new(visitors: u32) -> Cookies {
        Cookies {
            bytes: vec![0; visitors as usize * COOKIE_MAX],
            lengths: vec![0; visitors as usize],
        }
    }

    fn of(&self, visitor: u32) -> &[u8] {
        let begin = visitor as usize * COOKIE_MAX;
        &self.bytes[begin..begin + usize::from(self.lengths[visitor as usize])]
    }

    fn keep(&mut self, visitor: u32, cookie: &[u8]) -> bool {
        let Ok(length) = u8::try_from(cookie.len()) else {
            return false;
        };
        let begin = visitor as usize * COOKIE_MAX;
        self.bytes[begin..begin + cookie.len()].copy_from_slice(cookie);
        self.lengths[visitor as usize] = length;
        true
    }
}

/// Of the times in `/proc`, as Linux has it for all programs.
const TICKS_PER_SEC: f64 = 100.0;

/// A request that is due, or on its way: whose, and since when, us.
type Due = (u32, u64);

struct Connection {
    socket: TcpStream,
    asked: Option<Due>,
    due: VecDeque<Due>,
    answer: Vec<u8>,
}

#[derive(Default)]
struct Counts {
    arrived: u64,
    polls: u64,
    failed: u64,
    entered: u64,
    /// Due and not yet sent, at most.
    behind: usize,
}

struct Crowd {
    poll: OwnedFd,
    connections: Vec<Connection>,
    asks: Asks,
    plan: Plan,
    cookies: Cookies,
    /// By the millisecond of a refresh: who asks then.
    turns: Vec<Vec<u32>>,
    begun: Instant,
    request: Vec<u8>,
    counts: Counts,
    /// Of the measured polls, us.
    latencies: Vec<u32>,
    waiting: usize,
}

impl Crowd {
    fn new(address: SocketAddr, connections: u32, asks: Asks, plan: Plan) -> Result<Crowd, Failed> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut open = Vec::new();
        for number in 0..connections {
            let socket = TcpStream::connect(address)?;
            socket.set_nodelay(true)?;
            socket.set_nonblocking(true)?;
            let data = epoll::EventData::new_u64(u64::from(number));
            epoll::add(&poll, &socket, data, epoll::EventFlags::IN)?;
            open.push(Connection {
                socket,
                asked: None,
                due: VecDeque::new(),
                answer: Vec::new(),
            });
        }
        let mut turns = vec![Vec::new(); usize::try_from(plan.refresh_ms)?];
        for visitor in 0..plan.visitors {
            let turn = plan.arrives(visitor) / 1000 % plan.refresh_ms;
            turns[usize::try_from(turn)?].push(visitor);
        }
        Ok(Crowd {
            poll,
            connections: open,
            cookies: Cookies::new(plan.visitors),
            turns,
            begun: Instant::now(),
            request: Vec::new(),
            counts: Counts::default(),
            latencies: Vec::new(),
            waiting: 0,
            asks,
            plan,
        })
    }

    fn run(mut self) -> Result<(), Failed> {
        let from_ms = self.plan.ramp_ms + self.plan.refresh_ms;
        let until_ms = from_ms + self.plan.measured_ms;
        let memory_before = resident(self.plan.pid)?;
        let mut cpu_before = None;
        self.begun = Instant::now();
        let mut turn = 0;
        let mut events = Vec::with_capacity(self.connections.len());
        loop {
            let now = self.micros();
            while turn <= now / 1000 && turn < until_ms {
                self.issue(turn)?;
                turn += 1;
            }
            if cpu_before.is_none() && now >= from_ms * 1000 {
                cpu_before = Some(cpu_secs(self.plan.pid)?);
            }
            if now >= until_ms * 1000 {
                break;
            }
            events.clear();
            let pause = Timespec {
                tv_sec: 0,
                tv_nsec: 500_000,
            };
            match epoll::wait(
                &self.poll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&pause),
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                self.read(usize::try_from(event.data.u64())?)?;
            }
        }
        let cpu = cpu_secs(self.plan.pid)? - cpu_before.unwrap_or_default();
        let memory = resident(self.plan.pid)?.saturating_sub(memory_before);
        self.report(cpu, memory);
        Ok(())
    }

    fn micros(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Everybody who asks in this millisecond, evenly through it.
    fn issue(&mut self, turn: u64) -> Result<(), Failed> {
        let at = usize::try_from(turn % self.plan.refresh_ms)?;
        let visitors = std::mem::take(&mut self.turns[at]);
        let many = visitors.len().max(1) as u64;
        for (place, visitor) in visitors.iter().enumerate() {
            if self.plan.arrives(*visitor) / 1000 > turn {
                continue;
            }
            let due = turn * 1000 + place as u64 * 1000 / many;
            let number = *visitor as usize % self.connections.len();
            self.connections[number].due.push_back((*visitor, due));
            self.waiting += 1;
            self.send(number)?;
        }
        self.turns[at] = visitors;
        self.counts.behind = self.counts.behind.max(self.waiting);
        Ok(())
    }

    /// The next request of this connection, if it is free.
    fn send(&mut self, number: usize) -> Result<(), Failed> {
        let connection = &mut self.connections[number];
        if connection.asked.is_some() {
            return Ok(());
        }
        let Some((visitor, due)) = connection.due.pop_front() else {
            return Ok(());
        };
        self.waiting -= 1;
        let cookie = self.cookies.of(visitor);
        self.request.clear();
        if cookie.is_empty() {
            self.request.extend_from_slice(&self.asks.first);
        } else {
            self.request.extend_from_slice(&self.asks.poll);
            self.request.extend_from_slice(cookie);
            self.request.extend_from_slice(b"\r\n\r\n");
        }
        // A few hundred bytes on a connection with nothing under way: there is room for them.
        connection.socket.write_all(&self.request)?;
        connection.asked = Some((visitor, due));
        Ok(())
    }

    fn read(&mut self, number: usize) -> Result<(), Failed> {
        let connection = &mut self.connections[number];
        let mut piece = [0; 8192];
        match connection.socket.read(&mut piece) {
            Ok(0) => return Err(format!("connection {number} was closed").into()),
            Ok(count) => connection.answer.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        if connection.answer.len() > ANSWER_MAX {
            return Err("an endless answer".into());
        }
        let Some(answer) = Answer::parse(&connection.answer)? else {
            return Ok(());
        };
        let Some((visitor, due)) = connection.asked.take() else {
            return Err("an answer that nobody asked for".into());
        };
        let first = self.cookies.of(visitor).is_empty();
        let kept = match answer.cookie {
            Some(cookie) => self.cookies.keep(visitor, cookie),
            // A poll that came too soon is answered from the same cookie.
            None => !first,
        };
        let waits = memchr::memmem::find(answer.body, b"\"inWaitingRoom\":true").is_some();
        let good = answer.status == 200 && kept;
        connection.answer.clear();
        self.counts.failed += u64::from(!good);
        self.counts.arrived += u64::from(first && good);
        self.counts.entered += u64::from(good && !waits);
        if !first {
            self.counts.polls += 1;
            let from_us = (self.plan.ramp_ms + self.plan.refresh_ms) * 1000;
            if due >= from_us {
                let took = self.micros().saturating_sub(due);
                self.latencies.push(u32::try_from(took).unwrap_or(u32::MAX));
            }
        }
        self.send(number)
    }

    fn report(mut self, cpu_secs: f64, memory: u64) {
        self.latencies.sort_unstable();
        let polls = self.latencies.len();
        let quantile = |share: f64| {
            let place = (polls as f64 * share) as usize;
            self.latencies
                .get(place.min(polls.saturating_sub(1)))
                .copied()
                .unwrap_or(0)
        };
        let seconds = self.plan.measured_ms as f64 / 1000.0;
        println!(
            "{{\"visitors\": {}, \"arrived\": {}, \"entered\": {}, \"failed\": {}, \"polls\": {polls}, \
             \"polls_per_second\": {:.0}, \"p50_us\": {}, \"p90_us\": {}, \"p99_us\": {}, \
             \"p999_us\": {}, \"max_us\": {}, \"behind_max\": {}, \"cpu_us_per_poll\": {:.2}, \
             \"server_bytes_per_visitor\": {}}}",
            self.plan.visitors,
            self.counts.arrived,
            self.counts.entered,
            self.counts.failed,
            polls as f64 / seconds,
            quantile(0.5),
            quantile(0.9),
            quantile(0.99),
            quantile(0.999),
            quantile(1.0),
            self.counts.behind,
            cpu_secs * 1e6 / polls.max(1) as f64,
            memory / u64::from(self.plan.visitors.max(1)),
        );
    }
}

/// As much of an answer as matters here.
struct Answer<'a> {
    status: u16,
    cookie: Option<&'a [u8]>,
    body: &'a [u8],
}

impl Answer<'_> {
    /// `None` while some of it is still to come.
    fn parse(bytes: &[u8]) -> Result<Option<Answer<'_>>, Failed> {
        let Some(end) = memchr::memmem::find(bytes, b"\r\n\r\n") else {
            return Ok(None);
        };
        let head = std::str::from_utf8(&bytes[..end])?;
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1));
        let (mut length, mut cookie) = (None, None);
        for line in lines {
            let Some((name, value)) = line.split_once(':') else {
                continue;
            };
            if name.eq_ignore_ascii_case("content-length") {
                length = Some(value.trim().parse::<usize>()?);
            } else if name.eq_ignore_ascii_case("set-cookie") {
                let pair = value.trim().split(';').next().unwrap_or_default();
                cookie = Some(pair.as_bytes());
            }
        }
        let length = length.ok_or("an answer without a length")?;
        let body = &bytes[end + 4..];
        if body.len() < length {
            return Ok(None);
        }
        Ok(Some(Answer {
            status: status.ok_or("an answer without a status")?.parse()?,
            cookie,
            body: &body[..length],
        }))
    }
}

fn burst(
    address: SocketAddr,
    host: &str,
    path: &str,
    visitors: usize,
    mark: &str,
) -> Result<(), Failed> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let mut sockets = Vec::with_capacity(visitors);
    for _ in 0..visitors {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(Duration::from_secs(30)))?;
        sockets.push(socket);
    }
    let begun = Instant::now();
    for socket in &mut sockets {
        socket.write_all(request.as_bytes())?;
    }
    let sent = begun.elapsed();
    let (mut let_in, mut outside, mut failed) = (0, 0, 0);
    for socket in &mut sockets {
        match whole(socket) {
            Ok(answer) => {
                let parsed = Answer::parse(&answer)?;
                let body = parsed.map_or(&b""[..], |answer| answer.body);
                match body == mark.as_bytes() {
                    true => let_in += 1,
                    false => outside += 1,
                }
            }
            Err(_) => failed += 1,
        }
    }
    println!(
        "{{\"visitors\": {visitors}, \"let_in\": {let_in}, \"outside\": {outside}, \"failed\": \
         {failed}, \"sent_within_ms\": {:.1}}}",
        sent.as_secs_f64() * 1e3
    );
    Ok(())
}

fn whole(socket: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    let mut piece = [0; 16 * 1024];
    loop {
        let count = socket.read(&mut piece)?;
        answer.extend_from_slice(&piece[..count]);
        let parsed = Answer::parse(&answer).map_err(io::Error::other)?;
        if parsed.is_some() {
            return Ok(answer);
        }
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
}

/// User and system time of the process, seconds.
fn cpu_secs(pid: u32) -> Result<f64, Failed> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may hold anything; what is counted stands behind it.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let mut ticks = fields.split_whitespace().skip(11);
    let mut next = || -> Result<f64, Failed> { Ok(ticks.next().ok_or("a short stat")?.parse()?) };
    let used = next()? + next()?;
    Ok(used / TICKS_PER_SEC)
}

/// Resident memory of the process, bytes.
fn resident(pid: u32) -> Result<u64, Failed> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB"));
    let kilobytes: u64 = kilobytes.ok_or("no VmRSS")?.trim().parse()?;
    Ok(kilobytes * 1024)
}
