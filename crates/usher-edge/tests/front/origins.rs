//! Endpoints that say who they are, and what one request came to.

use std::net::SocketAddr;

use usher_core::catalog::Draft;

use crate::kit::{HOST, Origin, Setup, Usher, field, status};

/// An endpoint that answers every request with its name, a `Set-Cookie` of its own, and the head
/// that it got.
pub(crate) fn named(name: &'static str) -> Origin {
    Origin::new(move |peer, _, _| {
        while let Some(first) = peer.exactly_or_end(1) {
            let head = format!("{}{}", char::from(first[0]), peer.head());
            let code = match head.split(' ').nth(1) {
                Some("/missing") => "404 Not Found",
                _ => "200 OK",
            };
            let body = format!("{name}\r\n{head}");
            peer.send(format!(
                "HTTP/1.1 {code}\r\nSet-Cookie: own=1\r\nX-Origin: {name}\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ));
        }
    })
}

/// A front before endpoints of equal weight.
pub(crate) fn equal(addresses: &[SocketAddr], edit: impl Fn(&mut Draft) + 'static) -> Setup {
    let mut setup = Setup::to(addresses);
    setup.edit = Box::new(move |draft| {
        for endpoint in &mut draft.pools[0].endpoints {
            endpoint.weight = 1.0;
        }
        edit(draft);
    });
    setup
}

/// An answer, read.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) head: String,
    /// Which endpoint it came from.
    pub(crate) by: String,
    /// What that endpoint got.
    pub(crate) seen: String,
}

impl Told {
    pub(crate) fn status(&self) -> u16 {
        status(&self.head)
    }

    /// Every value of a field.
    pub(crate) fn all(&self, name: &str) -> Vec<String> {
        let lines = self.head.lines().skip(1);
        let fields = lines.filter_map(|line| line.split_once(": "));
        let fields = fields.filter(|(found, _)| found.eq_ignore_ascii_case(name));
        fields.map(|(_, value)| value.to_owned()).collect()
    }

    /// The `Set-Cookie` that is ours.
    pub(crate) fn set_cookie(&self) -> Option<String> {
        let mut all = self.all("set-cookie").into_iter();
        all.find(|value| value.starts_with("__cflb="))
    }

    /// The cookie as a browser would send it back.
    pub(crate) fn cookie(&self) -> Option<String> {
        let cookie = self.set_cookie()?;
        Some(cookie.split(';').next().unwrap_or_default().to_owned())
    }

    pub(crate) fn seen(&self, name: &str) -> Option<&str> {
        field(&self.seen, name)
    }
}

/// One request for `path` with these header lines, on a connection of its own.
pub(crate) fn ask(usher: &Usher, path: &str, lines: &[(&str, &str)]) -> Told {
    let mut request = format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\n");
    for (name, value) in lines {
        request += &format!("{name}: {value}\r\n");
    }
    let (head, body) = usher.ask(&(request + "\r\n"));
    told(head, &body)
}

pub(crate) fn told(head: String, body: &str) -> Told {
    let (by, seen) = body.split_once("\r\n").unwrap_or_default();
    Told {
        head,
        by: by.to_owned(),
        seen: seen.to_owned(),
    }
}
