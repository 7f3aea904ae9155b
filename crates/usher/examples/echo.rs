//! WebSocket echo for `make bench`: an endpoint that sends back what it gets, and clients that
//! count the echoes.
//!
//! `echo serve ADDRESS` listens; `echo drive ADDRESS HOST CONNECTIONS SECONDS BYTES` sends messages
//! of that many bytes, one at a time on each connection, and prints one line of JSON.

#![allow(
    clippy::print_stdout,
    reason = "the report is what this program is for"
)]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::{Error, Message, client::IntoClientRequest as _};
use tokio_tungstenite::{WebSocketStream, accept_async, client_async};

type Failed = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failed> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", address] => serve(address.parse()?).await,
        ["drive", address, host, connections, seconds, bytes] => {
            let time = Duration::from_secs_f64(seconds.parse()?);
            drive(
                address.parse()?,
                host,
                connections.parse()?,
                time,
                bytes.parse()?,
            )
            .await
        }
        _ => Err(
            "usage: echo serve ADDRESS | echo drive ADDRESS HOST CONNECTIONS SECONDS BYTES".into(),
        ),
    }
}

async fn serve(address: SocketAddr) -> Result<(), Failed> {
    let listener = TcpListener::bind(address).await?;
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        tokio::spawn(async move {
            // A client that leaves ends it; there is nobody to tell.
            let _ = echo(socket).await;
        });
    }
}

async fn echo(socket: TcpStream) -> Result<(), Error> {
    let mut socket = accept_async(socket).await?;
    while let Some(message) = receive(&mut socket).await? {
        send(&mut socket, message).await?;
    }
    Ok(())
}

async fn drive(
    address: SocketAddr,
    host: &str,
    connections: usize,
    time: Duration,
    bytes: usize,
) -> Result<(), Failed> {
    let mut open = Vec::with_capacity(connections);
    for _ in 0..connections {
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        let request = format!("ws://{host}/").into_client_request()?;
        open.push(client_async(request, socket).await?.0);
    }
    let start = Instant::now();
    let mut clients = JoinSet::new();
    for mut socket in open {
        clients.spawn(async move {
            let mut times = Vec::new();
            while start.elapsed() < time {
                let sent = Instant::now();
                send(&mut socket, Message::binary(vec![b'x'; bytes])).await?;
                match receive(&mut socket).await? {
                    Some(echo) if echo.len() == bytes => times.push(sent.elapsed()),
                    _ => return Err(Error::ConnectionClosed),
                }
            }
            Ok(times)
        });
    }
    let (mut times, mut failed) = (Vec::new(), 0);
    while let Some(client) = clients.join_next().await {
        match client? {
            Ok(more) => times.extend(more),
            Err(_) => failed += 1,
        }
    }
    let took = start.elapsed().as_micros();
    times.sort_unstable();
    let quantile = |share: f64| {
        let place = (times.len() as f64 * share) as usize;
        times.get(place).map_or(0, Duration::as_micros)
    };
    println!(
        "{{\"requests\": {}, \"failed\": {failed}, \"us\": {took}, \"p50_us\": {}, \"p99_us\": {}}}",
        times.len(),
        quantile(0.5),
        quantile(0.99)
    );
    Ok(())
}

async fn send(socket: &mut WebSocketStream<TcpStream>, message: Message) -> Result<(), Error> {
    futures_util::SinkExt::send(socket, message).await
}

/// The next message with content; none when the other side has closed.
async fn receive(socket: &mut WebSocketStream<TcpStream>) -> Result<Option<Message>, Error> {
    loop {
        match futures_util::StreamExt::next(socket).await.transpose()? {
            Some(message) if message.is_binary() || message.is_text() => return Ok(Some(message)),
            Some(message) if message.is_close() => return Ok(None),
            Some(_) => {}
            None => return Ok(None),
        }
    }
}
