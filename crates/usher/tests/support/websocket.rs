//! WebSockets at both ends of the binary under test.

use std::net::TcpStream;

use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::protocol::WebSocket;
use tokio_tungstenite::tungstenite::{Message, accept_hdr, client};

use super::config::HOST;
use super::endpoint::Visit;
use super::process::Usher;

/// Sends every message back; takes the subprotocol `chat` when it is offered.
pub fn echo(visit: &mut Visit) {
    #[expect(
        clippy::result_large_err,
        reason = "the shape that the library asks for"
    )]
    fn answer(request: &Request, mut response: Response) -> Result<Response, ErrorResponse> {
        if request
            .headers()
            .get("sec-websocket-protocol")
            .is_some_and(|offer| offer == "chat")
        {
            response
                .headers_mut()
                .insert("sec-websocket-protocol", "chat".parse().unwrap());
        }
        Ok(response)
    }
    let Ok(mut socket) = accept_hdr(visit.take_socket(), answer) else {
        return;
    };
    loop {
        match socket.read() {
            Ok(message) if message.is_text() || message.is_binary() => {
                if socket.send(message).is_err() {
                    return;
                }
            }
            Ok(_) => {} // the library answers pings and closes itself
            Err(_) => return,
        }
    }
}

/// A WebSocket to [`HOST`], opened.
pub fn open(usher: &Usher) -> WebSocket<TcpStream> {
    open_at(usher, HOST)
}

/// A WebSocket to this host, opened.
pub fn open_at(usher: &Usher, host: &str) -> WebSocket<TcpStream> {
    let socket = usher.connect().socket();
    let (socket, response) = client(format!("ws://{host}/socket"), socket).unwrap();
    assert_eq!(response.status(), 101);
    socket
}

/// Sends a message and insists on having it back.
pub fn echoes(socket: &mut WebSocket<TcpStream>) {
    socket.send(Message::text("still there")).unwrap();
    assert_eq!(socket.read().unwrap(), Message::text("still there"));
}
