//! A table per rule. Each text is parsed whole and byte by byte, and must come to the same.

use super::*;
use crate::http1::FramingFault;

const HOST: &str = "Host: example.com\r\n";

#[test]
fn a_plain_request_is_taken_apart() {
    let (buf, head) = accepted(
        "GET /a?b=c HTTP/1.1\r\nHost: Example.com:8080\r\nX-Empty:\r\nX-A: \t b c \r\n\r\nrest",
    );
    assert_eq!(head.len, buf.len() - 4);
    assert_eq!(head.method, Method::Get);
    assert_eq!(head.method_name.of(&buf), b"GET");
    assert_eq!(head.target.of(&buf), b"/a?b=c");
    assert_eq!(head.path(&buf), b"/a?b=c");
    assert_eq!(head.version, Version::Http11);
    assert_eq!(head.authority.of(&buf), b"Example.com:8080");
    assert_eq!(head.host.of(&buf), b"Example.com");
    assert_eq!(head.port, Some(8080));
    assert_eq!(head.fields.value(&buf, b"x-empty"), Some(&b""[..]));
    assert_eq!(head.fields.value(&buf, b"x-a"), Some(&b"b c"[..]));
    assert_eq!(head.body, BodyLength::Empty);
    assert!(head.keep_alive);
    assert!(!head.websocket && !head.expect_continue && head.upgrade.is_none());
}

#[test]
fn framing_is_read_in_one_way_only() {
    use FramingFault::*;
    let body = |fields: &str| {
        accepted(&format!("POST / HTTP/1.1\r\n{HOST}{fields}\r\n"))
            .1
            .body
    };
    assert_eq!(body("Content-Length: 5\r\n"), BodyLength::Exactly(5));
    assert_eq!(body("Content-Length: 0\r\n"), BodyLength::Exactly(0));
    assert_eq!(
        body("content-length:18446744073709551615\r\n"),
        BodyLength::Exactly(u64::MAX)
    );
    assert_eq!(body("Transfer-Encoding: chunked\r\n"), BodyLength::Chunked);
    assert_eq!(
        body("transfer-encoding:\tCHUNKED \r\n"),
        BodyLength::Chunked
    );
    // Another name, which is not passed on either.
    assert_eq!(body("Transfer_Encoding: chunked\r\n"), BodyLength::Empty);

    for (fields, fault) in [
        (
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            TeWithCl,
        ),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            TeWithCl,
        ),
        (
            "Transfer-Encoding: xchunked\r\nContent-Length: x\r\n",
            TeWithCl,
        ),
        ("Transfer-Encoding: chunked, identity\r\n", TeUnsupported),
        ("Transfer-Encoding: identity, chunked\r\n", TeUnsupported),
        ("Transfer-Encoding: gzip, chunked\r\n", TeUnsupported),
        ("Transfer-Encoding: chunked, chunked\r\n", TeUnsupported),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            TeUnsupported,
        ),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
            TeUnsupported,
        ),
        (
            "Transfer-Encoding: \r\nTransfer-Encoding: chunked\r\n",
            TeUnsupported,
        ),
        ("Transfer-Encoding:\r\n", TeUnsupported),
        ("Transfer-Encoding: identity\r\n", TeUnsupported),
        ("Transfer-Encoding: xchunked\r\n", TeUnsupported),
        ("Transfer-Encoding: chunkedx\r\n", TeUnsupported),
        ("Transfer-Encoding: chunked;q=1\r\n", TeUnsupported),
        ("Transfer-Encoding: \"chunked\"\r\n", TeUnsupported),
        ("Transfer-Encoding: chunked,\r\n", TeUnsupported),
        ("Transfer-Encoding: ,chunked\r\n", TeUnsupported),
        ("Transfer-Encoding: \u{85}chunked\r\n", TeUnsupported),
        ("Content-Length: 5\r\nContent-Length: 5\r\n", ClRepeated),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", ClRepeated),
        ("Content-Length: 5, 5\r\n", ClMalformed),
        ("Content-Length: +5\r\n", ClMalformed),
        ("Content-Length: -5\r\n", ClMalformed),
        ("Content-Length: 5 5\r\n", ClMalformed),
        ("Content-Length: 0x5\r\n", ClMalformed),
        ("Content-Length: 5.0\r\n", ClMalformed),
        ("Content-Length:\r\n", ClMalformed),
        ("Content-Length: five\r\n", ClMalformed),
        ("Content-Length: 18446744073709551616\r\n", ClMalformed),
        (
            "Content-Length: 99999999999999999999999999\r\n",
            ClMalformed,
        ),
    ] {
        refused(
            &format!("POST / HTTP/1.1\r\n{HOST}{fields}\r\n"),
            fault.into(),
        );
    }
    refused(
        "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        TeInHttp10.into(),
    );
    refused(
        &format!("POST / HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\x0b\r\n\r\n"),
        HeadFault::FieldValue.into(),
    );
}

#[test]
fn a_host_is_one_and_well_formed() {
    for (field, host, port) in [
        ("example.com", "example.com", None),
        ("example.com.", "example.com.", None),
        ("example.com:", "example.com", None),
        ("example.com:443", "example.com", Some(443)),
        ("a_b.example", "a_b.example", None),
        ("192.0.2.1:80", "192.0.2.1", Some(80)),
        ("[2001:db8::1]", "[2001:db8::1]", None),
        ("[2001:db8::1]:8443", "[2001:db8::1]", Some(8443)),
    ] {
        let (buf, head) = accepted(&format!("GET / HTTP/1.1\r\nHost: {field}\r\n\r\n"));
        assert_eq!((head.host.of(&buf), head.port), (host.as_bytes(), port));
    }
    for field in [
        "",
        " ",
        "a b",
        "a,b",
        "a/b",
        "a@b",
        "user:pw@a",
        "a?b",
        "a#b",
        "a\\b",
        "a%41",
        "a:b",
        "a:80:80",
        "a:65536",
        "a:+80",
        "a: 80",
        ":80",
        "[::1",
        "[::1]x",
        "[::1]:x",
        "[fe80::1%25eth0]",
        "[]",
        "::1",
        "\u{e9}.example",
        &"a".repeat(256),
    ] {
        refused(
            &format!("GET / HTTP/1.1\r\nHost: {field}\r\n\r\n"),
            RequestFault::HostMalformed,
        );
    }
    refused("GET / HTTP/1.1\r\n\r\n", RequestFault::HostMissing);
    refused("GET / HTTP/1.0\r\n\r\n", RequestFault::HostMissing);
    refused(
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        RequestFault::HostRepeated,
    );
    refused(
        "GET / HTTP/1.0\r\nHost: a\r\nhost: b\r\n\r\n",
        RequestFault::HostRepeated,
    );
    refused(
        "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        HeadFault::FieldName.into(),
    );
}

#[test]
fn a_target_has_a_form_that_its_method_allows() {
    for (line, form, path) in [
        ("GET / HTTP/1.1", Form::Origin, "/"),
        ("GET //a/../b?c?d HTTP/1.1", Form::Origin, "//a/../b?c?d"),
        ("GET http://example.com HTTP/1.1", Form::Absolute, "/"),
        (
            "GET HTTP://EXAMPLE.com/a?b HTTP/1.1",
            Form::Absolute,
            "/a?b",
        ),
        ("GET http://example.com:80/ HTTP/1.1", Form::Absolute, "/"),
        ("GET http://example.com:/ HTTP/1.1", Form::Absolute, "/"),
        ("OPTIONS http://example.com HTTP/1.1", Form::Absolute, "*"),
        ("OPTIONS http://example.com/ HTTP/1.1", Form::Absolute, "/"),
        ("OPTIONS * HTTP/1.1", Form::Asterisk, "*"),
        ("TRACE / HTTP/1.1", Form::Origin, "/"),
    ] {
        let (buf, head) = accepted(&format!("{line}\r\n{HOST}\r\n"));
        assert_eq!(
            (head.form, head.path(&buf)),
            (form, path.as_bytes()),
            "{line}"
        );
        assert_eq!(head.host.of(&buf), b"example.com");
    }
    for line in [
        "GET * HTTP/1.1",
        "GET a HTTP/1.1",
        "GET example.com HTTP/1.1",
        "GET ?a HTTP/1.1",
        "GET /a#b HTTP/1.1",
        "GET /a b HTTP/1.1",
        "GET /\u{7f} HTTP/1.1",
        "GET /\u{e9} HTTP/1.1",
        "GET /\0 HTTP/1.1",
        "GET /\t HTTP/1.1",
        "GET  / HTTP/1.1",
        "GET ftp://example.com/ HTTP/1.1",
        "GET http:// HTTP/1.1",
        "GET http:///a HTTP/1.1",
        "GET http://user@example.com/ HTTP/1.1",
        "GET http://example.com?a HTTP/1.1",
        "OPTIONS ** HTTP/1.1",
        "CONNECT / HTTP/1.1",
        "CONNECT example.com HTTP/1.1",
        "CONNECT http://example.com:443 HTTP/1.1",
    ] {
        refused(&format!("{line}\r\n{HOST}\r\n"), RequestFault::Target);
    }
    for line in [
        "GET http://example.org/ HTTP/1.1",
        "GET http://example.com:81/ HTTP/1.1",
        "GET https://example.com.evil.example/ HTTP/1.1",
    ] {
        refused(
            &format!("{line}\r\n{HOST}\r\n"),
            RequestFault::HostContradicts,
        );
    }
    for version in ["1.0", "1.1"] {
        refused(
            &format!("GET http://example.com/ HTTP/{version}\r\n\r\n"),
            RequestFault::HostMissing,
        );
    }
    refused(
        "GET https://example.com/ HTTP/1.1\r\nHost: example.com:80\r\n\r\n",
        RequestFault::HostContradicts,
    );

    let (buf, head) =
        accepted("GET http://example.com:81/ HTTP/1.0\r\nHost: example.com:81\r\n\r\n");
    assert_eq!(
        (head.authority.of(&buf), head.host.of(&buf), head.port),
        (&b"example.com:81"[..], &b"example.com"[..], Some(81))
    );
    for host in ["example.com:443", "example.com", "example.org"] {
        let text = format!("CONNECT example.com:443 HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let (buf, head) = accepted(&text);
        assert_eq!(
            (head.method, head.form, head.target.of(&buf)),
            (Method::Connect, Form::Authority, &b"example.com:443"[..])
        );
    }
}

#[test]
fn a_request_line_has_three_parts() {
    use RequestFault::*;
    for (line, fault) in [
        ("GET /", Http09),
        ("GET /a", Http09),
        ("POST /", RequestLine),
        ("GET", RequestLine),
        ("GET ", RequestLine),
        ("GET / ", RequestLine),
        ("GET / HTTP/1.1 ", RequestLine),
        ("GET / http/1.1", RequestLine),
        ("GET / HTTP/1.10", RequestLine),
        ("GET / HTTP/01.1", RequestLine),
        ("GET / HTTP/1", RequestLine),
        ("GET / HTTP/1,1", RequestLine),
        ("GET / ICY/1.1", RequestLine),
        ("GET / HTTP/2.0", Version),
        ("GET / HTTP/3.0", Version),
        ("GET / HTTP/1.2", Version),
        ("GET / HTTP/0.9", Version),
        ("PRI * HTTP/2.0", Http2Preface),
        ("PRI /* HTTP/2.0", Version),
        (" GET / HTTP/1.1", Method),
        ("G(T / HTTP/1.1", Method),
        ("G\u{e9}T / HTTP/1.1", Method),
        ("\x16\x03\x01\x02", Method),
        ("\tGET / HTTP/1.1", Method),
        ("ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG / HTTP/1.1", Method),
    ] {
        refused(&format!("{line}\r\n{HOST}\r\n"), fault);
    }
    let (buf, head) = accepted(&format!("M-SEARCH / HTTP/1.1\r\n{HOST}\r\n"));
    assert_eq!(
        (head.method, head.method_name.of(&buf)),
        (crate::http1::Method::Other, &b"M-SEARCH"[..])
    );
    assert_eq!(
        accepted(&format!("get / HTTP/1.1\r\n{HOST}\r\n")).1.method,
        crate::http1::Method::Other
    );
}

#[test]
fn what_is_no_answer_waits_for_no_end() {
    // The faults show before a line, or the head, is whole.
    let limits = HeadLimits::default();
    for (start, fault) in [
        (b"\x16\x03".to_vec(), RequestFault::Method),
        (b"GET /\r\n".to_vec(), RequestFault::Http09),
        (b"PRI * HTTP/2.0\r\n".to_vec(), RequestFault::Http2Preface),
        (
            [&b"GET /"[..], &[b'a'; 16 * 1024 + 10]].concat(),
            RequestFault::TargetTooLong,
        ),
        (
            [&b"GET / HTTP/1.1\r\nA: "[..], &[b'a'; 64 * 1024]].concat(),
            HeadFault::TooLarge.into(),
        ),
        (
            [&b"GET / HTTP/1.1\r\n"[..], &b"A: b\r\n".repeat(129)].concat(),
            HeadFault::TooManyFields.into(),
        ),
        (
            b"GET / HTTP/1.1\r\nA: b\r\n ".to_vec(),
            HeadFault::ObsFold.into(),
        ),
    ] {
        assert_eq!(
            parse_request(&start, &limits, &mut RequestHead::new()),
            Err(fault)
        );
    }
}

#[test]
fn limits_are_exact() {
    let limits = HeadLimits {
        head_bytes: 100,
        fields: 3,
        target_bytes: 20,
    };
    let of = |text: String| parse_request(text.as_bytes(), &limits, &mut RequestHead::new());
    let target = |len: usize| {
        of(format!(
            "GET /{} HTTP/1.1\r\n{HOST}\r\n",
            "a".repeat(len - 1)
        ))
    };
    assert_eq!(target(20), Ok(Parsed::Complete));
    assert_eq!(target(21), Err(RequestFault::TargetTooLong));
    let fields = |count: usize| {
        of(format!(
            "GET / HTTP/1.1\r\n{HOST}{}\r\n",
            "a:\r\n".repeat(count - 1)
        ))
    };
    assert_eq!(fields(3), Ok(Parsed::Complete));
    assert_eq!(fields(4), Err(HeadFault::TooManyFields.into()));
    let fixed = format!("GET / HTTP/1.1\r\n{HOST}a:\r\n\r\n").len();
    let bytes = |len: usize| {
        of(format!(
            "GET / HTTP/1.1\r\n{HOST}a:{}\r\n\r\n",
            "b".repeat(len - fixed)
        ))
    };
    assert_eq!(bytes(100), Ok(Parsed::Complete));
    assert_eq!(bytes(101), Err(HeadFault::TooLarge.into()));
    assert_eq!(HeadFault::TooLarge.as_str(), "head-too-large");
    assert_eq!(RequestFault::from(HeadFault::TooLarge).status(), Some(431));
    assert_eq!(RequestFault::TargetTooLong.status(), Some(414));

    let many = |count: usize| {
        let limits = HeadLimits {
            fields: 1024,
            ..HeadLimits::default()
        };
        let text = format!(
            "GET / HTTP/1.1\r\n{HOST}{}\r\n",
            "a: b\r\n".repeat(count - 1)
        );
        parse_request(text.as_bytes(), &limits, &mut RequestHead::new())
    };
    assert_eq!(many(33), Ok(Parsed::Complete));
    assert_eq!(many(1024), Ok(Parsed::Complete));
    assert_eq!(many(1025), Err(HeadFault::TooManyFields.into()));
}

#[test]
fn lines_and_fields_have_one_shape() {
    use HeadFault::*;
    for (text, fault) in [
        ("GET / HTTP/1.1\nHost: a\r\n\r\n", BareLf),
        ("GET / HTTP/1.1\r\nHost: a\n\r\n", BareLf),
        ("GET / HTTP/1.1\r\nHost: a\r\n\n", BareLf),
        ("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", BareLf),
        ("GET / HTTP/1.1\r\nHost: a\r\nA: b\rc\r\n\r\n", FieldValue),
        ("GET / HTTP/1.1\r\nHost: a\r\nA: b\r\r\n\r\n", FieldValue),
        ("GET / HTTP/1.1\r\nHost: a\r\n\rA: b\r\n\r\n", BareCr),
        ("GET / HTTP/1.1\r\nHost: a\r\nA: b\0\r\n\r\n", FieldValue),
        ("GET / HTTP/1.1\r\nHost: a\r\nA: \x08\r\n\r\n", FieldValue),
        ("GET / HTTP/1.1\r\nHost: a\r\nA: \x7f\r\n\r\n", FieldValue),
        ("GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n c\r\n\r\n", ObsFold),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n\tc: d\r\n\r\n",
            ObsFold,
        ),
        ("GET / HTTP/1.1\r\n Host: a\r\n\r\n", ObsFold),
        ("GET / HTTP/1.1\r\nHost: a\r\nA : b\r\n\r\n", FieldName),
        ("GET / HTTP/1.1\r\nHost: a\r\nA\t: b\r\n\r\n", FieldName),
        ("GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", FieldName),
        ("GET / HTTP/1.1\r\nHost: a\r\nA\r\n\r\n", FieldName),
        ("GET / HTTP/1.1\r\nHost: a\r\nA B: c\r\n\r\n", FieldName),
        ("GET / HTTP/1.1\r\nHost: a\r\nA\0: c\r\n\r\n", FieldName),
        ("GET / HTTP/1.1\r\nHost: a\r\n\u{c4}: c\r\n\r\n", FieldName),
        ("GET / HTTP/1.1\r\nHost: a\r\n\"A\": c\r\n\r\n", FieldName),
        ("GET / HTTP/1.1\r\nHost: a\r\nA(b): c\r\n\r\n", FieldName),
    ] {
        refused(text, fault.into());
    }
    let (buf, head) = accepted(&format!("GET / HTTP/1.1\r\n{HOST}A: caf\u{e9}\tx\r\n\r\n"));
    assert_eq!(
        head.fields.value(&buf, b"a"),
        Some("caf\u{e9}\tx".as_bytes())
    );
}

#[test]
fn a_few_empty_lines_before_a_request_are_taken() {
    let (buf, head) = accepted(&format!("\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\n{HOST}\r\n"));
    assert_eq!((head.len, head.target.of(&buf)), (buf.len(), &b"/"[..]));
    refused(
        &format!("\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\n{HOST}\r\n"),
        RequestFault::RequestLine,
    );
}

#[test]
fn connections_are_kept_as_the_version_says() {
    let kept = |version: &str, options: &str| {
        accepted(&format!("GET / HTTP/{version}\r\n{HOST}{options}\r\n"))
            .1
            .keep_alive
    };
    assert!(kept("1.1", ""));
    assert!(kept("1.1", "Connection: keep-alive\r\n"));
    assert!(!kept("1.1", "Connection: close\r\n"));
    assert!(!kept("1.1", "Connection: Keep-Alive, CLOSE\r\n"));
    assert!(!kept(
        "1.1",
        "Connection: keep-alive\r\nConnection: close\r\n"
    ));
    assert!(kept("1.1", "Proxy-Connection: close\r\n"));
    assert!(!kept("1.0", ""));
    assert!(kept("1.0", "Connection: keep-alive\r\n"));
    assert!(!kept("1.0", "Connection: keep-alive, close\r\n"));
    assert!(!kept("1.0", "Keep-Alive: timeout=5\r\n"));
}

#[test]
fn fields_of_this_hop_stay_here() {
    let (buf, head) = accepted(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close, X-Secret, TE,, Upgrade\r\nX-Secret: 1\r\nx-secret: 2\r\n\
             TE: trailers\r\nKeep-Alive: 5\r\nProxy-Connection: close\r\nProxy-Authorization: x\r\nTrailer: a\r\n\
             Upgrade: h2c\r\nHTTP2-Settings: x\r\nContent-Length: 0\r\nContent_Length: 1\r\nX_Forwarded_For: 192.0.2.1\r\n\
             X-Forwarded-Port: 1\r\nAccept: */*\r\nCookie: a=b\r\nX-Secret-2: 3\r\nA_B: c\r\n\r\n",
    );
    let kept: Vec<_> = head
        .fields
        .iter()
        .filter(|field| field.forwarded)
        .map(|field| field.name.of(&buf))
        .collect();
    assert_eq!(
        kept,
        [
            &b"X-Forwarded-Port"[..],
            b"Accept",
            b"Cookie",
            b"X-Secret-2",
            b"A_B"
        ]
    );
    assert_eq!(head.upgrade.map(|value| value.of(&buf)), Some(&b"h2c"[..]));
    assert!(!head.websocket);
}

#[test]
fn connection_cannot_take_what_is_meant_for_everyone() {
    for name in [
        "Host",
        "content-length",
        "Authorization",
        "Cookie",
        "X-Forwarded-For",
        "X-Forwarded-Proto",
        "X-Forwarded-Port",
        "Forwarded",
        "CF-Connecting-IP",
        "Cache-Control",
        "Content-Type",
        "Range",
    ] {
        refused(
            &format!("GET / HTTP/1.1\r\n{HOST}Connection: close, {name}\r\n\r\n"),
            RequestFault::ConnectionNominates,
        );
    }
    for options in ["a b", "close;x", "\"close\"", "close\u{85}"] {
        refused(
            &format!("GET / HTTP/1.1\r\n{HOST}Connection: {options}\r\n\r\n"),
            RequestFault::Connection,
        );
    }
    accepted(&format!(
        "GET / HTTP/1.1\r\n{HOST}Connection: {}\r\n\r\n",
        ["a"; 16].join(",")
    ));
    refused(
        &format!(
            "GET / HTTP/1.1\r\n{HOST}Connection: {}\r\n\r\n",
            ["a"; 17].join(",")
        ),
        RequestFault::Connection,
    );
}

#[test]
fn a_websocket_is_asked_for_in_full() {
    let asks = |line: &str, fields: &str| {
        accepted(&format!("{line}\r\n{HOST}{fields}\r\n"))
            .1
            .websocket
    };
    let upgrade = "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n";
    assert!(asks("GET / HTTP/1.1", upgrade));
    assert!(asks(
        "GET / HTTP/1.1",
        "Connection: upgrade\r\nUpgrade: foo, websocket\r\n"
    ));
    assert!(!asks("POST / HTTP/1.1", upgrade));
    assert!(!asks("GET / HTTP/1.0", upgrade));
    assert!(!asks("GET / HTTP/1.1", "Upgrade: websocket\r\n"));
    assert!(!asks("GET / HTTP/1.1", "Connection: upgrade\r\n"));
    assert!(!asks(
        "GET / HTTP/1.1",
        "Connection: upgrade\r\nUpgrade: h2c\r\n"
    ));
    assert!(!asks(
        "GET / HTTP/1.1",
        "Connection: upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n"
    ));
    assert!(!asks(
        "GET / HTTP/1.1",
        &format!("{upgrade}Content-Length: 1\r\n")
    ));
    assert!(!asks(
        "GET / HTTP/1.1",
        &format!("{upgrade}Transfer-Encoding: chunked\r\n")
    ));
}

#[test]
fn only_one_expectation_is_known() {
    let expects = |version: &str, value: &str| {
        accepted(&format!(
            "POST / HTTP/{version}\r\n{HOST}Expect: {value}\r\n\r\n"
        ))
        .1
        .expect_continue
    };
    assert!(expects("1.1", "100-Continue"));
    assert!(!expects("1.0", "100-continue"));
    let (_, head) = accepted("POST / HTTP/1.0\r\nHost: a\r\nExpect: 200-ok\r\n\r\n");
    assert!(head.fields.iter().all(|field| !field.forwarded));
    refused(
        &format!("POST / HTTP/1.1\r\n{HOST}Expect: 200-ok\r\n\r\n"),
        RequestFault::Expectation,
    );
    refused(
        &format!("POST / HTTP/1.1\r\n{HOST}Expect: 100-continue\r\nExpect: x\r\n\r\n"),
        RequestFault::Expectation,
    );
    assert_eq!(RequestFault::Expectation.status(), Some(417));
}

#[test]
fn no_byte_is_scanned_twice() {
    let text = format!(
        "GET / HTTP/1.1\r\n{HOST}{}",
        "X-Field: value\r\n".repeat(100)
    );
    let mut head = RequestHead::new();
    for len in 1..=text.len() {
        let start = &text.as_bytes()[..len];
        assert_eq!(
            parse_request(start, &HeadLimits::default(), &mut head),
            Ok(Parsed::Partial)
        );
        assert_eq!(head.scan.seen(), len);
        assert!(
            head.fields.is_empty(),
            "fields are tokenised once, at the end"
        );
    }
}

#[test]
fn a_head_is_used_again_without_a_trace() {
    let limits = HeadLimits::default();
    let mut head = RequestHead::new();
    let first = format!(
        "POST http://example.com/a HTTP/1.0\r\n{HOST}Connection: keep-alive\r\nContent-Length: 3\r\n\r\n"
    );
    assert_eq!(
        parse_request(first.as_bytes(), &limits, &mut head),
        Ok(Parsed::Complete)
    );
    assert_eq!(
        parse_request(b"GET / HTTP/1.1\r\nBroken\r\n\r\n", &limits, &mut head),
        Err(HeadFault::FieldName.into())
    );
    assert_eq!(
        parse_request(b"GET / HT", &limits, &mut head),
        Ok(Parsed::Partial)
    );
    head.reset();
    let last = format!("GET / HTTP/1.1\r\n{HOST}\r\n");
    assert_eq!(
        parse_request(last.as_bytes(), &limits, &mut head),
        Ok(Parsed::Complete)
    );
    let (_, fresh) = accepted(&last);
    assert_eq!(format!("{head:?}"), format!("{fresh:?}"));
}

/// Parses `text` at once and byte by byte; both must take it in the same way.
fn accepted(text: &str) -> (Vec<u8>, RequestHead) {
    let (whole, trickled) = parsed_both_ways(text);
    assert_eq!(whole.as_ref().map(|_| ()), Ok(()), "{text:?}");
    assert_eq!(format!("{whole:?}"), format!("{trickled:?}"), "{text:?}");
    (text.as_bytes().to_vec(), whole.unwrap())
}

fn refused(text: &str, fault: RequestFault) {
    let (whole, trickled) = parsed_both_ways(text);
    assert_eq!(whole.map(|_| ()), Err(fault), "{text:?}");
    assert_eq!(trickled.map(|_| ()), Err(fault), "byte by byte: {text:?}");
}

type Outcome = Result<RequestHead, RequestFault>;

fn parsed_both_ways(text: &str) -> (Outcome, Outcome) {
    let limits = HeadLimits::default();
    let parse_in = |steps: std::ops::RangeInclusive<usize>| {
        let mut head = RequestHead::new();
        for len in steps {
            if parse_request(&text.as_bytes()[..len], &limits, &mut head)? == Parsed::Complete {
                return Ok(head);
            }
        }
        panic!("no end: {text:?}");
    };
    (parse_in(text.len()..=text.len()), parse_in(1..=text.len()))
}
