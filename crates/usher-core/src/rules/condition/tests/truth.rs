//! What is true of the sample request: every operator, function and field.

use super::super::{Field, FrontKind};
use super::*;

#[test]
fn orders_of_strings() {
    check(
        true,
        r###"
        http.host eq "shop.example.com"
        http.host == "shop.example.com"
        http.host ne "other.example.com"
        http.host != "Shop.example.com"
        http.host lt "shop.example.con"
        http.host < "t"
        http.host le "shop.example.com"
        http.host <= "shop.example.com"
        http.host gt "shop.example.co"
        http.host > "Shop"
        http.host ge "shop.example.com"
        http.host >= "shop.example.com"
        http.host eq "\x73hop.\145xample.com"
        http.host eq r"shop.example.com"
        http.host eq r##"shop.example.com"##
        http.host<"t"
        "###,
    );
    check(
        false,
        r#"
        http.host eq "Shop.example.com"
        http.host ne "shop.example.com"
        http.host lt "shop.example.com"
        http.host gt "shop.example.com"
        http.host eq "shop.example.co"
        http.host eq ""
        "#,
    );
}

#[test]
fn parts_of_strings() {
    check(
        true,
        r#"
        http.host contains "example"
        http.host contains ""
        http.host contains "shop.example.com"
        http.host matches "^shop\.[a-z]+\.com$"
        http.host matches "e.a"
        http.host ~ r"\.com$"
        http.host matches "(?i)SHOP"
        http.request.headers["x-json"][0] matches "\"name\":\"[^"]+\""
        http.host wildcard "*.example.com"
        http.host wildcard "SHOP.*"
        http.host wildcard "*"
        http.host strict wildcard "shop.*.com"
        http.host in {"a" "shop.example.com"}
        http.host in {r"shop.example.com"}
        "#,
    );
    check(
        false,
        r#"
        http.host contains "Example"
        http.host matches "^example"
        http.host matches "SHOP"
        http.host wildcard "*.example"
        http.host strict wildcard "SHOP.*"
        http.host in {"a" "shop"}
        http.host in {}
        "#,
    );
}

#[test]
fn integers() {
    check(
        true,
        "
        http.request.timestamp.sec eq 1764547200
        http.request.timestamp.sec ne 0
        http.request.timestamp.sec gt -1
        http.request.timestamp.sec >= 1764547200
        http.request.timestamp.sec lt 9223372036854775807
        http.request.timestamp.sec in {1 5..7 1764547200..1764547201}
        http.request.timestamp.sec in {0x0..0x7fffffff}
        len(http.request.method) eq 03
        ",
    );
    check(
        false,
        "
        http.request.timestamp.sec lt 1764547200
        http.request.timestamp.sec in {1 5..7 -9..1764547199}
        http.request.timestamp.sec in {}
        ",
    );
}

#[test]
fn addresses() {
    check(
        true,
        "
        ip.src eq 203.0.113.77
        ip.src == ::ffff:203.0.113.77
        ip.src ne 203.0.113.78
        ip.src ne ::1
        ip.src in {203.0.113.0/24}
        ip.src in {::/0 203.0.113.70..203.0.113.80}
        ip.src in {128.0.0.0/1}
        cidr(ip.src, 24, 48) eq 203.0.113.0
        cidr(ip.src, 0, 0) eq 0.0.0.0
        cidr(cidr(ip.src, 24, 48), 16, 48) in {203.0.0.0}
        ",
    );
    check(
        false,
        "
        ip.src eq 203.0.113.78
        ip.src in {0.0.0.0/1}
        ip.src in {::/0}
        ip.src in {}
        cidr(ip.src, 32, 48) eq 203.0.113.0
        ",
    );
    let headers = headers();
    let mut mapped = facts(Front::Http(http("/", &headers)));
    mapped.client = "::ffff:192.0.2.9".parse().unwrap();
    assert!(parsed("ip.src in {192.0.2.0/24}").matches(&mapped));
    mapped.client = "2001:db8::7".parse().unwrap();
    assert!(parsed("ip.src in {2001:db8::/32}").matches(&mapped));
    assert!(parsed("cidr(ip.src, 0, 32) eq 2001:db8::").matches(&mapped));
    assert!(!parsed("ip.src in {0.0.0.0/0}").matches(&mapped));
}

#[test]
fn logic_and_its_order() {
    check(
        true,
        r#"
        ssl
        not not ssl
        !!ssl
        true
        not false
        ssl eq true
        ssl ne false
        ssl and ssl
        ssl && ssl
        ssl or false
        false || ssl
        ssl xor false
        ssl ^^ false
        ssl xor ssl xor ssl
        true or true and false
        true xor true and false
        true or true xor true
        not false and true
        not (false or false)
        (ssl)
        false or http.host eq "shop.example.com" and http.request.method eq "GET"
        "#,
    );
    check(
        false,
        "
        not ssl
        ! ssl
        ssl eq false
        ssl and false
        ssl xor ssl
        (true or true) and false
        (true xor true) and true
        (true or true) xor true
        not (false or true)
        ",
    );
    assert!(holds("") && holds(" \n\t"), "no condition is always true");
}

#[test]
fn maps_arrays_and_what_is_missing() {
    check(
        true,
        r#"
        http.request.headers["x-tag"][0] eq "one"
        http.request.headers["x-tag"][1] eq "Two"
        http.request.headers["host"][0] eq "shop.example.com"
        http.request.headers["x-empty"][0] eq ""
        http.request.uri.args["tag"][1] eq "b%20c"
        http.request.uri.args["Tag"][0] eq "X"
        http.request.uri.args["flag"][0] eq ""
        http.request.uri.args["empty"][0] eq ""
        http.request.uri.args[""][0] eq "nameless"
        http.request.uri.args.names[0] eq "id"
        http.request.uri.args.values[0] eq "7"
        http.request.headers.names[1] eq "user-agent"
        http.request.cookies["theme"][0] eq "dark"
        http.request.cookies["lang"][0] eq "de"
        len(http.request.headers["x-tag"]) eq 2
        len(http.request.uri.args.names) eq 7
        not len(http.request.headers["nope"]) >= 0
        len(http.request.headers["x-empty"]) >= 0
        not http.request.headers["nope"][0] eq "x"
        not http.request.headers["nope"][0] ne "x"
        not http.request.headers["x-tag"][2] ne "x"
        "#,
    );
    check(
        false,
        r#"
        http.request.headers["nope"][0] eq ""
        http.request.headers["nope"][0] ne "x"
        http.request.headers["nope"][0] contains ""
        http.request.headers["nope"][0] in {"" "x"}
        http.request.headers["nope"][0] lt "x"
        http.request.headers["nope"][0] matches ""
        http.request.headers["nope"][0] wildcard "*"
        http.request.headers["x-tag"][2] eq ""
        http.request.headers["X-Tag"][0] eq "one"
        http.request.uri.args["TAG"][0] eq "a"
        http.request.cookies["Theme"][0] eq "dark"
        len(http.request.headers["nope"]) eq 0
        len(http.request.headers["nope"]) lt 1
        len(http.request.headers["nope"][0]) eq 0
        lower(http.request.headers["nope"][0]) ne "x"
        concat(http.request.headers["nope"][0], "x") ne "y"
        starts_with(http.request.headers["nope"][0], "")
        starts_with(http.host, http.request.headers["nope"][0])
        dns.qry.qu
        dns.qry.qu eq false
        dns.qry.type ge 0
        dns.qry.name ne "x"
        "#,
    );
}

#[test]
fn any_and_all() {
    check(
        true,
        r#"
        any(http.request.headers["x-tag"][*] eq "Two")
        all(http.request.headers["x-tag"][*] in {"one" "Two"})
        any(not http.request.headers["x-tag"][*] eq "one")
        any(http.request.headers[*][*] contains "Linux")
        any(http.request.headers[*][0] eq "one")
        any(http.request.headers[*][1] eq "Two")
        any(http.request.headers.names[*] eq "x-tag")
        any(http.request.headers.values[*] eq "text/html")
        any(http.request.uri.args.values[*] eq "a")
        any(http.request.uri.args[*][1] eq "b%20c")
        any(http.request.cookies[*][*] eq "abc123")
        any(lower(http.request.headers["x-tag"][*])[*] eq "two")
        any(upper(lower(http.request.headers["x-tag"][*])[*])[*] eq "TWO")
        any(len(http.request.headers["x-tag"][*])[*] in {3})
        any(starts_with(http.request.headers["x-tag"][*], "T"))
        any(ends_with(lower(http.request.headers["x-tag"][*])[*], "wo"))
        any(concat(http.request.headers["x-tag"][*], "!")[*] eq "Two!")
        any(url_decode(http.request.uri.args.values[*])[*] eq "b c")
        any(starts_with(http.request.headers["x-tag"][*], http.request.headers["x-tag"][1]))
        any((http.request.headers["x-tag"][*] eq "Two"))
        any(http.request.headers["x-tag"][*] contains "T" and http.request.headers["x-tag"][*] contains "o")
        any(http.request.headers["x-tag"][*] eq "x" or http.request.headers["x-tag"][*] eq "Two")
        any(http.request.headers["x-tag"][*] eq "one") and ssl
        lower(http.request.headers["x-tag"][*])[1] eq "two"
        concat(http.request.headers["x-tag"][*], "/", http.host)[0] eq "one/shop.example.com"
        len(lower(http.request.headers["x-tag"][*])) eq 2
        len(http.request.headers["x-tag"][*])[0] eq 3
        starts_with(http.request.headers["x-tag"][*], "T")[1]
        any(http.request.headers["x-tag"][*] eq "one") eq true
        "#,
    );
    check(
        false,
        r#"
        any(http.request.headers["x-tag"][*] eq "two")
        all(http.request.headers["x-tag"][*] eq "one")
        any(http.request.headers["nope"][*] ne "x")
        all(http.request.headers["nope"][*] eq "x")
        any(not http.request.headers["nope"][*] eq "x")
        any(http.request.headers[*][0] eq "Two")
        any(http.request.headers["x-tag"][*] contains "T" and http.request.headers["x-tag"][*] contains "n")
        all(lower(http.request.headers["x-tag"][*])[*] eq "one")
        starts_with(http.request.headers["x-tag"][*], "T")[0]
        starts_with(http.request.headers["x-tag"][*], "T")[2]
        "#,
    );
    let none = Lines::new();
    let empty = facts(Front::Http(http("/", &none)));
    for always in [
        r#"all(http.request.headers.names[*] eq "x")"#,
        r#"all(http.request.uri.args.values[*] eq "x")"#,
        r#"len(http.request.uri.args.names) eq 0"#,
    ] {
        assert!(
            parsed(always).matches(&empty),
            "{always}: an array of nothing is there"
        );
    }
}

#[test]
fn functions() {
    check(
        true,
        r#"
        lower(http.request.method) eq "get"
        upper(http.host) eq "SHOP.EXAMPLE.COM"
        len(http.host) eq 16
        starts_with(http.host, "shop.")
        starts_with(http.host, lower(http.host))
        ends_with(http.host, ".com")
        ends_with(http.request.uri.path, "")
        concat("a", http.host, "-", len(http.host)) eq "ashop.example.com-16"
        concat("a", "b") eq "ab"
        substring(http.host, 5) eq "example.com"
        substring(http.host, 0, 4) eq "shop"
        substring(http.host, -3) eq "com"
        substring(http.host, 5, -4) eq "example"
        substring(http.host, -100, 4) eq "shop"
        substring(http.host, 5, 1000) eq "example.com"
        substring(http.host, 1000) eq ""
        substring(http.host, 4, 2) eq ""
        substring(http.host, -9223372036854775808, 9223372036854775807) eq "shop.example.com"
        to_string(http.request.timestamp.sec) eq "1764547200"
        to_string(ssl) eq "true"
        to_string(ip.src) eq "203.0.113.77"
        to_string(cidr(ip.src, 8, 8)) eq "203.0.0.0"
        url_decode(http.request.uri.path) eq "/blog/post 1"
        url_decode(http.request.uri.path, "ru") eq "/blog/post 1"
        remove_bytes(http.host, ".e") eq "shopxamplcom"
        remove_bytes(http.host, "") eq "shop.example.com"
        lookup_json_string(http.request.headers["x-json"][0], "user", "name") eq "Ada"
        lookup_json_string(http.request.headers["x-json"][0], "user", "roles", 1) eq "dev"
        lookup_json_integer(http.request.headers["x-json"][0], "user", "age") gt 30
        lookup_json_integer(http.request.headers["x-json"][0], "n") eq -5
        lookup_json_string(lower(http.request.headers["x-json"][0]), "user", "name") eq "ada"
        "#,
    );
    check(
        false,
        r#"
        starts_with(http.host, "Shop")
        ends_with(http.host, "co")
        lookup_json_string(http.request.headers["x-json"][0], "user", "age") ne ""
        lookup_json_integer(http.request.headers["x-json"][0], "user", "name") ne 0
        lookup_json_string(http.request.headers["x-json"][0], "user", "roles", 2) ne ""
        lookup_json_string(http.host, "a") ne ""
        "#,
    );
}

/// One true expression for each field, on the front that has it.
const FIELDS: &[(&str, &str)] = &[
    ("cf.load_balancer.name", r#"eq "shop.example.com""#),
    ("cf.load_balancer.region", r#"eq "WNAM""#),
    ("usher.node", r#"eq "SJC""#),
    ("ip.src", "eq 203.0.113.77"),
    ("ip.geoip.country", r#"eq "US""#),
    ("ip.src.country", r#"eq "US""#),
    ("ssl", "eq true"),
    ("http.cookie", r#"eq "session=abc123; theme=dark; lang=de""#),
    ("http.host", r#"eq "shop.example.com""#),
    ("http.referer", r#"eq """#),
    ("http.user_agent", r#"contains "Chrome""#),
    ("http.x_forwarded_for", r#"eq """#),
    ("http.request.headers", r#"["accept"][0] eq "text/html""#),
    ("http.request.headers.names", r#"[2] eq "accept""#),
    ("http.request.headers.values", r#"[2] eq "text/html""#),
    ("http.request.cookies", r#"["session"][0] eq "abc123""#),
    ("http.request.method", r#"eq "GET""#),
    ("http.request.timestamp.sec", "eq 1764547200"),
    (
        "http.request.full_uri",
        r#"wildcard "https://shop.example.com/blog/post%201?id=7*""#,
    ),
    (
        "http.request.uri",
        r#"wildcard "/blog/post%201?id=7*nameless""#,
    ),
    ("http.request.uri.path", r#"eq "/blog/post%201""#),
    ("http.request.uri.query", r#"wildcard "id=7*nameless""#),
    ("http.request.uri.args", r#"["id"][0] eq "7""#),
    ("http.request.uri.args.names", r#"[6] eq """#),
    ("http.request.uri.args.values", r#"[6] eq "nameless""#),
    ("http.request.version", r#"eq "HTTP/1.1""#),
    ("dns.qry.name", r#"eq "shop.example.com.""#),
    ("dns.qry.name.len", "eq 17"),
    ("dns.qry.type", "in {1 28}"),
    ("dns.qry.qu", "eq false"),
    ("dns.rr.opt.client", "eq true"),
    ("dns.rr.opt.client.addr", r#"eq "198.51.100.0""#),
];

#[test]
fn fields() {
    let listed: Vec<&str> = FIELDS.iter().map(|(name, _)| *name).collect();
    let all: Vec<&str> = Field::ALL.iter().map(|field| field.name()).collect();
    assert_eq!(listed, all);
    for (name, test) in FIELDS {
        let expression = match test.strip_prefix('[') {
            Some(_) => format!("{name}{test}"),
            None => format!("{name} {test}"),
        };
        let front = Field::named(name).unwrap().front();
        let http = front != Some(FrontKind::Dns);
        let dns = front != Some(FrontKind::Http);
        assert_eq!(holds(&expression), http, "{expression} of HTTP");
        assert_eq!(holds_for_dns(&expression), dns, "{expression} of DNS");
    }
}

#[test]
fn what_a_node_or_visitor_does_not_have_is_missing() {
    let headers = headers();
    let mut nowhere = facts(Front::Http(http("/", &headers)));
    nowhere.region = None;
    nowhere.country = None;
    for expression in [
        r#"cf.load_balancer.region ne "X""#,
        r#"ip.geoip.country ne "X""#,
    ] {
        assert!(!parsed(expression).matches(&nowhere), "{expression}");
        assert!(parsed(&format!("not {expression}")).matches(&nowhere));
    }
    let plain = Dns {
        name: ".",
        kind: 1,
        unicast: true,
        client_subnet: None,
    };
    let plain = facts(Front::Dns(plain));
    assert!(parsed(r#"not dns.rr.opt.client.addr ne "x""#).matches(&plain));
    assert!(parsed("not dns.rr.opt.client and dns.qry.qu").matches(&plain));
}

#[test]
fn bytes_that_are_no_text_are_compared_as_bytes() {
    let lines: Lines = vec![
        ("x-raw", vec![0xff, b'a', 0x80]),
        ("x-raw", b"\xc3\xa9".to_vec()),
    ];
    let facts = facts(Front::Http(http("/", &lines)));
    for expression in [
        r#"http.request.headers["x-raw"][0] eq "\xffa\200""#,
        r#"http.request.headers["x-raw"][0] contains "a\x80""#,
        r#"http.request.headers["x-raw"][0] matches "^.a.$""#,
        r#"http.request.headers["x-raw"][0] wildcard "*A*""#,
        r#"len(http.request.headers["x-raw"][0]) eq 3"#,
        r#"http.request.headers["x-raw"][1] eq "é""#,
        r#"http.request.headers["x-raw"][1] matches "^é$""#,
        r#"http.request.headers["x-raw"][1] matches "^..$""#,
    ] {
        assert!(parsed(expression).matches(&facts), "{expression}");
    }
}

/// What is super-linear for a visitor who knows the rule ends at the budget.
#[test]
fn a_visitor_cannot_make_a_walk_repeat_work() {
    let arguments = "a&".repeat(8_000);
    let uri = format!("/?{arguments}");
    let lines: Lines = vec![("cookie", vec![b'A'; 60_000])];
    let facts = facts(Front::Http(http(&uri, &lines)));
    for expression in [
        r#"any(starts_with(http.request.uri.args.values[*], lookup_json_string(http.cookie, "a")))"#,
        r#"any(concat(http.request.uri.args.values[*], lower(http.cookie), http.cookie)[*] eq "x")"#,
        r#"any(starts_with(http.request.uri.args.values[*], http.request.uri.args["zz"][0]))"#,
        r#"any(http.request.uri.args[*][0] eq "x")"#,
        r#"len(http.request.uri.args["a"]) eq 1"#,
    ] {
        assert!(!parsed(expression).matches(&facts), "{expression}");
    }
    let lowered =
        r#"any(concat(http.request.uri.args.names[*], lower(http.cookie))[*] contains "aA")"#;
    assert!(!parsed(lowered).matches(&facts));
    assert!(parsed(&lowered.replace("aA", "aa")).matches(&facts));
}
