//! Answers of the proxy itself. They name the cause for programs and for people, and nothing that
//! a page could not know: no address, no name of a machine.

use usher_edge::http1::{BodyLength, end_head, write_field, write_framing, write_status_line};

use crate::cause::Cause;

/// What a tunnel is answered with.
pub(crate) const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// A whole answer. `keep`: the connection stays; `head`: a `HEAD` was asked, so no body follows.
pub(crate) fn of(cause: Cause, host: &str, keep: bool, head: bool) -> Vec<u8> {
    let body = match host {
        "" => format!("{}\n", text(cause)),
        _ => format!("{host}: {}\n", text(cause)),
    };
    let proxy_status = format!("usher; error={}", cause.proxy_error());
    let mut fields: Vec<(&str, &str)> = vec![
        ("content-type", "text/plain; charset=utf-8"),
        ("cache-control", "no-store"),
        ("proxy-status", &proxy_status),
        ("usher-egress", cause.as_str()),
    ];
    match cause {
        Cause::Guardrails => fields.extend([
            ("cf-mitigated", "guardrails"),
            ("cf-brapi-guardrails-reason", "not-in-allowlist"),
        ]),
        Cause::Credential => fields.push(("proxy-authenticate", "Basic realm=\"usher\"")),
        _ => {}
    }
    if !keep {
        fields.push(("connection", "close"));
    }
    let mut out = Vec::with_capacity(512);
    const WELL_FORMED: &str = "what is written here is well formed";
    write_status_line(&mut out, cause.status(), b"").expect(WELL_FORMED);
    for (name, value) in fields {
        write_field(&mut out, name.as_bytes(), value.as_bytes()).expect(WELL_FORMED);
    }
    write_framing(&mut out, BodyLength::Exactly(body.len() as u64));
    end_head(&mut out);
    if !head {
        out.extend_from_slice(body.as_bytes());
    }
    out
}

fn text(cause: Cause) -> &'static str {
    match cause {
        Cause::Unassigned => "this browser is not in use",
        Cause::Guardrails => "this session's guardrails do not allow this host",
        Cause::Host => "this host is denied",
        Cause::Port => "this port is denied",
        Cause::Address => "this host lies where pages must not reach",
        Cause::Traffic => "this session has used up its traffic",
        Cause::Connections => "this browser has too many connections open",
        Cause::Credential => "the proxy wants this browser's credential",
        Cause::Malformed => "not a request that a proxy can serve",
        Cause::Name => "the name has no address",
        Cause::NameTimeout => "no name server answered in time",
        Cause::Refused => "the connection was refused",
        Cause::Unreachable => "there is no way to the server",
        Cause::ConnectTimeout => "no connection in time",
        Cause::Connect => "the connection failed",
        Cause::Empty => "the server closed the connection without an answer",
        Cause::Answer => "the server's answer is malformed",
        Cause::Cut => "the server's answer ended too early",
        Cause::Silent => "nothing came in time",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_is_whole() {
        for cause in Cause::ALL {
            let text = String::from_utf8(of(cause, "example.com", false, false)).expect("text");
            let (head, body) = text.split_once("\r\n\r\n").expect("a head");
            assert!(
                head.starts_with(&format!("HTTP/1.1 {} ", cause.status())),
                "{head}"
            );
            assert!(
                head.contains(&format!("content-length: {}", body.len())),
                "{head}"
            );
            assert!(
                head.contains(&format!("\r\nusher-egress: {}\r\n", cause.as_str())),
                "{head}"
            );
            assert!(body.starts_with("example.com: "));
        }
        let bare = String::from_utf8(of(Cause::Guardrails, "", true, true)).expect("text");
        assert!(bare.ends_with("\r\n\r\n") && !bare.contains("connection:"));
        assert!(bare.contains("cf-brapi-guardrails-reason: not-in-allowlist\r\n"));
    }
}
