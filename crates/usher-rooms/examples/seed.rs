//! The waiting room that people build first, to measure against: a count in Redis.
//!
//! Written from the description of such a room on an edge function. Each request asks Redis for
//! `DBSIZE`. While it is below the capacity the request is forwarded, and the visitor's random id is
//! set with a time to live, again when half of that has passed. At the capacity `GET` tells
//! whether the visitor is inside already; whoever is not sees a page that reloads every 30 s. There
//! is no order, no place, and nothing that makes the count and the entry one step.
//!
//! `seed ADDRESS REDIS ENDPOINT CAPACITY SESSION_SECS`. Paths that begin with `/favicon` pass without
//! a question, as there; so the same program shows what the forwarding alone costs.

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

type Failed = Box<dyn std::error::Error + Send + Sync>;

const ID: &str = "__waiting_room_id";
const TIME: &str = "__waiting_room_last_update_time";
const PAGE: &str = "<title>Waiting Room</title>\n<meta http-equiv='refresh' content='30' />\n\
                    <h1>You are now in line.</h1>\n";

#[derive(Debug, Clone, Copy)]
struct Room {
    redis: SocketAddr,
    endpoint: SocketAddr,
    capacity: u64,
    session_secs: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failed> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, redis, endpoint, capacity, session] = &words[..] else {
        return Err("usage: seed ADDRESS REDIS ENDPOINT CAPACITY SESSION_SECS".into());
    };
    let room = Room {
        redis: redis.parse()?,
        endpoint: endpoint.parse()?,
        capacity: capacity.parse()?,
        session_secs: session.parse()?,
    };
    let listener = TcpListener::bind(address).await?;
    loop {
        let (client, _) = listener.accept().await?;
        client.set_nodelay(true)?;
        tokio::spawn(async move {
            // A client that leaves ends it; there is nobody to tell.
            let _ = serve(client, room).await;
        });
    }
}

/// One client, with a connection to Redis and one to the endpoint of its own.
async fn serve(client: TcpStream, room: Room) -> Result<(), Failed> {
    let mut client = Wire::new(client);
    let mut redis = Wire::connect(room.redis).await?;
    let mut endpoint = Wire::connect(room.endpoint).await?;
    loop {
        let Some(head) = client.head().await? else {
            return Ok(());
        };
        let answer = handle(&head, room, &mut redis, &mut endpoint).await?;
        client.stream.write_all(&answer).await?;
    }
}

async fn handle(
    head: &str,
    room: Room,
    redis: &mut Wire,
    endpoint: &mut Wire,
) -> Result<Vec<u8>, Failed> {
    let path = head.split(' ').nth(1).unwrap_or("/");
    if path.starts_with("/favicon") {
        return forward(head, endpoint, "").await;
    }
    let cookies = field(head, "cookie").unwrap_or_default();
    let id = cookie(cookies, ID).map_or_else(make_id, str::to_owned);
    let size: u64 = redis.command(&["DBSIZE"]).await?.parse()?;
    let inside = size < room.capacity || redis.command(&["GET", &id]).await? == "1";
    if !inside {
        let length = PAGE.len();
        return Ok(format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/html;charset=UTF-8\r\ncontent-length: \
             {length}\r\n\r\n{PAGE}"
        )
        .into_bytes());
    }
    let now = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
    let updated = cookie(cookies, TIME).and_then(|time| time.parse().ok());
    let due = now.saturating_sub(updated.unwrap_or(0)) > room.session_secs * 1000 / 2;
    let mut set = format!("set-cookie: {ID}={id}; path=/\r\n");
    if due {
        set.push_str(&format!("set-cookie: {TIME}={now}; path=/\r\n"));
    }
    // The endpoint is asked before the store is told: so it stands in the description.
    let answer = forward(head, endpoint, &set).await?;
    if due {
        let session = room.session_secs.to_string();
        redis.command(&["SETEX", &id, &session, "1"]).await?;
    }
    Ok(answer)
}

/// The answer of the endpoint, with these lines in its head.
async fn forward(head: &str, endpoint: &mut Wire, more: &str) -> Result<Vec<u8>, Failed> {
    endpoint.stream.write_all(head.as_bytes()).await?;
    let answer = endpoint.head().await?.ok_or("the endpoint is gone")?;
    let length = field(&answer, "content-length").ok_or("an answer without a length")?;
    let body = endpoint.body(length.parse()?).await?;
    let (line, fields) = answer.split_once("\r\n").ok_or("half an answer")?;
    let mut whole = format!("{line}\r\n{more}{fields}").into_bytes();
    whole.extend_from_slice(&body);
    Ok(whole)
}

/// A connection, and what was read from it too early.
struct Wire {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Wire {
    fn new(stream: TcpStream) -> Wire {
        Wire {
            stream,
            read: Vec::new(),
        }
    }

    async fn connect(address: SocketAddr) -> Result<Wire, Failed> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Wire::new(stream))
    }

    async fn more(&mut self) -> Result<bool, Failed> {
        let mut piece = [0; 4096];
        let count = self.stream.read(&mut piece).await?;
        self.read.extend_from_slice(&piece[..count]);
        Ok(count > 0)
    }

    /// Up to an empty line, that included; `None` at the end.
    async fn head(&mut self) -> Result<Option<String>, Failed> {
        loop {
            if let Some(end) = memchr::memmem::find(&self.read, b"\r\n\r\n") {
                let head: Vec<u8> = self.read.drain(..end + 4).collect();
                return Ok(Some(String::from_utf8(head)?));
            }
            if !self.more().await? {
                return Ok(None);
            }
        }
    }

    async fn body(&mut self, length: usize) -> Result<Vec<u8>, Failed> {
        while self.read.len() < length {
            if !self.more().await? {
                return Err("the endpoint is gone".into());
            }
        }
        Ok(self.read.drain(..length).collect())
    }

    async fn line(&mut self) -> Result<String, Failed> {
        loop {
            if let Some(end) = memchr::memmem::find(&self.read, b"\r\n") {
                let line: Vec<u8> = self.read.drain(..end + 2).collect();
                return Ok(String::from_utf8(line)?.trim_end().to_owned());
            }
            if !self.more().await? {
                return Err("the store is gone".into());
            }
        }
    }

    /// What Redis answers; nothing for what is not there.
    async fn command(&mut self, words: &[&str]) -> Result<String, Failed> {
        let mut command = format!("*{}\r\n", words.len());
        for word in words {
            command.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.stream.write_all(command.as_bytes()).await?;
        let answer = self.line().await?;
        match answer.split_at_checked(1) {
            Some((":" | "+", value)) => Ok(value.to_owned()),
            Some(("$", "-1")) => Ok(String::new()),
            Some(("$", _)) => self.line().await,
            _ => Err(answer.into()),
        }
    }
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let fields = head.split("\r\n").filter_map(|line| line.split_once(':'));
    let mut found = fields.filter(|(known, _)| known.eq_ignore_ascii_case(name));
    found.next().map(|(_, value)| value.trim())
}

fn cookie<'a>(cookies: &'a str, name: &str) -> Option<&'a str> {
    let pairs = cookies
        .split(';')
        .filter_map(|pair| pair.trim().split_once('='));
    let mut found = pairs.filter(|(known, _)| *known == name);
    found.next().map(|(_, value)| value)
}

/// Eight letters and digits.
fn make_id() -> String {
    use std::hash::{BuildHasher as _, RandomState};
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let mut draw = RandomState::new().hash_one(0);
    let letters = (0..8).map(|_| {
        let letter = LETTERS[(draw % LETTERS.len() as u64) as usize];
        draw /= LETTERS.len() as u64;
        char::from(letter)
    });
    letters.collect()
}
