//! What a request is, as far as a room cares.

use std::ops::ControlFlow;

use usher_core::admission::door::Kind;
use usher_core::request::Request;

/// Who is answered in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Json {
    /// Nobody.
    #[default]
    Never,
    /// Who accepts `application/json` and names nothing else.
    Exact,
    /// Also who names it with parameters, or likes nothing better.
    Lenient,
}

/// What a request is, as far as a room cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Its kind.
    pub kind: Kind,
    /// It is answered in JSON.
    pub json: bool,
}

impl Look {
    /// The look of `request`. A program that is answered in JSON is a visitor, whatever its browser
    /// calls the request. `websocket`: nobody reads a page there.
    pub(super) fn of(request: &Request<'_>, websocket: bool, json: Json) -> Look {
        let mut origin = false;
        let mut asks_method = false;
        let mut part = websocket;
        let mut wants_json = false;
        request.headers.visit(&mut |name, value| {
            if name.eq_ignore_ascii_case(b"origin") {
                origin = true;
            } else if name.eq_ignore_ascii_case(b"access-control-request-method") {
                asks_method = true;
            } else if name.eq_ignore_ascii_case(b"sec-fetch-dest") {
                let value = value.trim_ascii();
                part |= !value.is_empty()
                    && !value.eq_ignore_ascii_case(b"document")
                    && !value.eq_ignore_ascii_case(b"iframe");
            } else if name.eq_ignore_ascii_case(b"accept") {
                wants_json = match json {
                    Json::Never => false,
                    Json::Exact => value.trim_ascii().eq_ignore_ascii_case(b"application/json"),
                    Json::Lenient => likes_json(value),
                };
            }
            ControlFlow::Continue(())
        });
        let kind = match request.method {
            "HEAD" => Kind::Head,
            "OPTIONS" if origin && asks_method => Kind::Preflight,
            _ if part && !wants_json => Kind::Subrequest,
            _ => Kind::Navigation,
        };
        Look {
            kind,
            json: wants_json,
        }
    }
}

/// Whether no media type in this `Accept` is liked better than `application/json`.
fn likes_json(accept: &[u8]) -> bool {
    let (mut json, mut best) = (0.0_f32, 0.0_f32);
    for range in accept.split(|&byte| byte == b',') {
        let mut parts = range.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        let media = parts.next().unwrap_or_default();
        let quality = parts.find_map(|part| {
            let value = part.strip_prefix(b"q=").or(part.strip_prefix(b"Q="))?;
            let number = std::str::from_utf8(value).ok()?.parse::<f32>();
            Some(number.unwrap_or(0.0).clamp(0.0, 1.0))
        });
        let quality = quality.unwrap_or(1.0);
        best = best.max(quality);
        if media.eq_ignore_ascii_case(b"application/json") {
            json = json.max(quality);
        }
    }
    json > 0.0 && json >= best
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use usher_core::request::{Location, Scheme};
    use usher_core::time::Wall;

    use super::*;

    fn look(method: &str, lines: &[(&str, &str)], websocket: bool, json: Json) -> Look {
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
        Look::of(&request, websocket, json)
    }

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
            let found = look(method, lines, false, Json::Exact);
            assert_eq!(found.kind, expected, "{method} {lines:?}");
        }
        assert_eq!(look("GET", &[], true, Json::Exact).kind, Kind::Subrequest);
    }

    #[test]
    fn who_is_answered_in_json() {
        let rows = [
            ("application/json", true, true),
            (" Application/JSON ", true, true),
            ("application/json; charset=utf-8", false, true),
            ("application/json, text/html", false, true),
            ("text/html, application/json;q=0.9", false, false),
            ("text/html;q=0.5, application/json", false, true),
            ("application/json;q=0", false, false),
            ("application/json;q=x, text/html", false, false),
            ("*/*", false, false),
            ("", false, false),
        ];
        for (accept, exact, lenient) in rows {
            let json = |by| look("GET", &[("accept", accept)], false, by).json;
            let found = [Json::Never, Json::Exact, Json::Lenient].map(json);
            assert_eq!(found, [false, exact, lenient], "{accept}");
        }
    }
}
