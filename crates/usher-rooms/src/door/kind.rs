//! What kind of request it is, as far as a room cares.

use std::ops::ControlFlow;

use usher_core::request::Request;

use super::Kind;

/// The kind of `request`. Where a room answers `json`, a program that asks for it is a visitor,
/// whatever its browser calls the request.
pub(super) fn of(request: &Request<'_>, json: bool) -> Kind {
    let mut origin = false;
    let mut asks_method = false;
    let mut part = false;
    let mut wants_json = false;
    request.headers.visit(&mut |name, value| {
        if name.eq_ignore_ascii_case(b"origin") {
            origin = true;
        } else if name.eq_ignore_ascii_case(b"access-control-request-method") {
            asks_method = true;
        } else if name.eq_ignore_ascii_case(b"sec-fetch-dest") {
            let value = value.trim_ascii();
            part = !value.is_empty()
                && !value.eq_ignore_ascii_case(b"document")
                && !value.eq_ignore_ascii_case(b"iframe");
        } else if name.eq_ignore_ascii_case(b"accept") {
            wants_json = value.trim_ascii().eq_ignore_ascii_case(b"application/json");
        }
        ControlFlow::Continue(())
    });
    match request.method {
        "HEAD" => Kind::Head,
        "OPTIONS" if origin && asks_method => Kind::Preflight,
        _ if part && !(json && wants_json) => Kind::Subrequest,
        _ => Kind::Navigation,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use usher_core::request::{Location, Scheme};
    use usher_core::time::Wall;

    use super::*;

    #[test]
    fn a_request_is_of_the_kind_that_its_lines_say() {
        type Lines = [(&'static str, &'static str)];
        let rows: [(&str, &Lines, Kind); 9] = [
            ("GET", &[], Kind::Navigation),
            ("POST", &[("Sec-Fetch-Dest", "document")], Kind::Navigation),
            ("GET", &[("sec-fetch-dest", "iframe")], Kind::Navigation),
            ("GET", &[("sec-fetch-dest", "image")], Kind::Subrequest),
            ("GET", &[("sec-fetch-dest", "empty")], Kind::Subrequest),
            (
                "GET",
                &[
                    ("sec-fetch-dest", "empty"),
                    ("Accept", " Application/JSON "),
                ],
                Kind::Navigation,
            ),
            (
                "GET",
                &[
                    ("sec-fetch-dest", "empty"),
                    ("Accept", "application/json, text/html"),
                ],
                Kind::Subrequest,
            ),
            ("HEAD", &[], Kind::Head),
            (
                "OPTIONS",
                &[
                    ("Origin", "https://example.com"),
                    ("Access-Control-Request-Method", "PUT"),
                ],
                Kind::Preflight,
            ),
        ];
        for (method, lines, expected) in rows {
            let lines: Vec<(&[u8], &[u8])> = lines
                .iter()
                .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
                .collect();
            let request = Request {
                host: "example.com",
                method,
                uri: "/",
                version: "HTTP/1.1",
                headers: &lines,
                scheme: Scheme::Http,
                client: IpAddr::V4(Ipv4Addr::LOCALHOST),
                location: Location::default(),
                time: Wall::from_millis(0),
                draw: 0,
            };
            assert_eq!(of(&request, true), expected, "{method} {lines:?}");
        }
    }
}
