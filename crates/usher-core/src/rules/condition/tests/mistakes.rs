//! What is said of mistakes: where, what was expected, what was found.

use super::super::FrontKind;
use super::*;

#[test]
fn said_of_the_form() {
    let cases = [
        (
            "http.host eq",
            "column 13: expected a value on the right side, found the end",
        ),
        (
            "http.host eq 'a'",
            "column 14: unexpected character '\\'': strings stand in double quotes (\")",
        ),
        (
            "http.host = \"a\"",
            "column 11: unexpected character '=': \"eq\" is written \"==\"",
        ),
        (
            "http.host EQ \"a\"",
            "column 11: expected \"and\", \"or\", \"xor\" or the end, found EQ",
        ),
        (
            "ssl & ssl",
            "column 5: unexpected character '&': \"and\" is written \"&&\", and bitwise operators are not supported",
        ),
        (
            "ssl | ssl",
            "column 5: unexpected character '|': \"or\" is written \"||\"",
        ),
        (
            "(ssl",
            "column 5: expected \")\" to close the bracket, found the end",
        ),
        ("ssl)", "column 4: \")\" closes nothing"),
        (
            "ssl ssl",
            "column 5: expected \"and\", \"or\", \"xor\" or the end, found ssl",
        ),
        (
            "ssl and",
            "column 8: expected a field, a function or \"(\", found the end",
        ),
        (
            "and ssl",
            "column 1: expected a field or a function on the left side, found and",
        ),
        (
            "\"a\" eq http.host",
            "column 1: expected a field or a function on the left side, found a string",
        ),
        (
            "5 eq 5",
            "column 1: expected a field or a function on the left side, found 5",
        ),
        (
            "http.host in $bad",
            "column 14: list $bad: lists are not supported in load balancing rules",
        ),
        (
            "http.host in \"a\"",
            "column 14: expected \"{\" to open the set, found a string",
        ),
        (
            "http.host in {\"a\", \"b\"}",
            "column 18: values of a set are separated by blanks, not by commas",
        ),
        (
            "http.host in {\"a\"",
            "column 18: expected a value or \"}\" in the set, found the end",
        ),
        (
            "http.host eq \"a",
            "column 14: string has no closing quote (\")",
        ),
        (
            "http.host eq r#\"a\"",
            "column 14: raw string has no closing quote",
        ),
        (
            "http.host eq \"a\\n\"",
            "column 16: expected \\\", \\\\, \\xHH or \\OOO: other backslashes need a raw string, r\"...\"",
        ),
        (
            "http.host eq \"\\xg0\"",
            "column 15: expected two hexadecimal digits after \\x",
        ),
        (
            "http.host eq \"\\400\"",
            "column 15: expected three octal digits, at most 377, after \\",
        ),
        (
            "http.host eq \"\\",
            "column 14: string has no closing quote (\")",
        ),
        (
            "http.host matches \"[\"",
            "column 19: regular expression has no closing quote (\")",
        ),
        (
            "http.host matches a",
            "column 19: expected a regular expression in quotes, found a",
        ),
        (
            "http.host strict \"a\"",
            "column 18: expected \"wildcard\" after \"strict\", found a string",
        ),
        (
            "http.request.headers[a]",
            "column 22: expected a key in quotes, a number from 0 to 4294967295 or *, found a",
        ),
        (
            "http.request.headers[\"a\"",
            "column 25: expected \"]\" after the index, found the end",
        ),
        (
            "lower(http.host",
            "column 16: expected \",\" or \")\" in the call, found the end",
        ),
        (
            "lower(http.host,)",
            "column 17: expected an argument, found \")\"",
        ),
        (
            "http.host eq \"ä\" und ssl",
            "column 18: expected \"and\", \"or\", \"xor\" or the end, found und",
        ),
        (
            "ssl\u{a0}and ssl",
            "column 4: unexpected character '\\u{a0}'",
        ),
        ("\0", "column 1: unexpected character '\\0'"),
    ];
    for (expression, expected) in cases {
        assert_eq!(said(expression), expected, "{expression}");
    }
}

#[test]
fn said_of_names_and_types() {
    let cases = [
        (
            "http.hosst eq \"a\"",
            "column 1: field http.hosst does not exist, did you mean http.host?",
        ),
        (
            "starts_wth(http.host, \"a\")",
            "column 1: function starts_wth does not exist, did you mean starts_with?",
        ),
        (
            "http.host(\"a\")",
            "column 1: http.host is a field and takes no arguments",
        ),
        (
            "lower eq \"a\"",
            "column 1: lower is a function: its arguments must follow in brackets",
        ),
        (
            "http.host eq 5",
            "column 14: expected a string in quotes, found 5",
        ),
        (
            "http.host eq http.host",
            "column 14: expected a string in quotes, found http.host",
        ),
        (
            "http.request.timestamp.sec eq \"5\"",
            "column 31: expected an integer, found a string",
        ),
        (
            "http.request.timestamp.sec eq 08",
            "column 31: expected an integer: 08 is not an integer",
        ),
        (
            "http.request.timestamp.sec eq 9223372036854775808",
            "column 31: expected an integer: 9223372036854775808 is outside -9223372036854775808..9223372036854775807",
        ),
        (
            "http.request.timestamp.sec in {5..1}",
            "column 32: 5..1 ends before it starts",
        ),
        (
            "http.request.timestamp.sec in {1..}",
            "column 32: expected integers on both sides of \"..\", found 1..",
        ),
        (
            "http.request.timestamp.sec contains 5",
            "column 28: \"contains\" needs a string on its left side, found an integer",
        ),
        (
            "ip.src eq \"192.0.2.1\"",
            "column 11: expected an ip address without quotes, found a string",
        ),
        (
            "ip.src eq 192.0.2.0/24",
            "column 11: expected one ip address: networks and ranges stand in a set, {192.0.2.0/24}",
        ),
        (
            "ip.src eq localhost",
            "column 11: expected an ip address, found localhost",
        ),
        (
            "ip.src in {192.0.2.1/24}",
            "column 12: 192.0.2.1/24 has bits behind its prefix: write 192.0.2.0/24",
        ),
        (
            "ip.src lt 192.0.2.1",
            "column 8: \"lt\" needs a string or an integer on its left side, found an ip address",
        ),
        ("ssl eq 1", "column 8: expected true or false, found 1"),
        (
            "ssl contains \"a\"",
            "column 5: \"contains\" needs a string on its left side, found a boolean",
        ),
        (
            "ssl lt true",
            "column 5: \"lt\" needs a string or an integer on its left side, found a boolean",
        ),
        (
            "http.host",
            "column 1: http.host is a string, not a boolean: a comparison must follow",
        ),
        (
            "not ip.src",
            "column 5: ip.src is an ip address, not a boolean: a comparison must follow",
        ),
        (
            "http.request.headers eq \"a\"",
            "column 1: http.request.headers is a map of arrays of strings and cannot be compared: take one element with [0] or [\"key\"], or each with [*]",
        ),
        (
            "http.request.headers[\"a\"] eq \"a\"",
            "column 1: http.request.headers is an array of strings and cannot be compared: take one element with [0] or [\"key\"], or each with [*]",
        ),
        (
            "http.request.headers[\"a\"][*] eq \"a\"",
            "column 1: [*] compares each element: put it into any() or all()",
        ),
        (
            "http.request.headers[0] eq \"a\"",
            "column 21: a number needs an array, found a map of arrays of strings in http.request.headers",
        ),
        (
            "http.request.uri.args.names[\"a\"] eq \"a\"",
            "column 28: a key needs a map, found an array of strings in http.request.uri.args.names",
        ),
        (
            "http.host[*] eq \"a\"",
            "column 10: [*] needs an array or a map, found a string in http.host",
        ),
        (
            "any(ssl)",
            "column 5: any takes a comparison of each element of an array: unpack it with [*]",
        ),
        (
            "all(http.request.headers[\"a\"][0] eq \"a\")",
            "column 5: all takes a comparison of each element of an array: unpack it with [*]",
        ),
        (
            "any(http.request.headers[\"a\"][*] eq \"a\" or ssl)",
            "column 44: both sides of \"or\" must be single comparisons, or unpack the same array",
        ),
        (
            "any(http.request.headers[\"a\"][*] eq \"a\" and http.request.headers[\"b\"][*] eq \"a\")",
            "column 45: both sides of \"and\" must be single comparisons, or unpack the same array",
        ),
        (
            "any(lower(http.request.headers[\"a\"][*]) eq \"a\")",
            "column 5: lower is an array of strings and cannot be compared: take one element with [0] or [\"key\"], or each with [*]",
        ),
        (
            "concat(\"a\", http.request.headers[\"a\"][*])[0] eq \"a\"",
            "column 13: only the first argument can be unpacked with [*]",
        ),
        ("len() eq 1", "column 1: len takes 1 arguments, found 0"),
        (
            "len(\"abc\") eq 3",
            "column 5: len takes a field or a call first, found a string",
        ),
        (
            "lower(ip.src) eq \"a\"",
            "column 7: lower takes a string first, found an ip address",
        ),
        (
            "len(http.request.headers) eq 1",
            "column 5: len takes a string or an array first, found a map of arrays of strings",
        ),
        (
            "to_string(http.host) eq \"a\"",
            "column 11: to_string takes an integer, a boolean or an ip address first, found a string",
        ),
        (
            "substring(http.host) eq \"a\"",
            "column 1: substring takes 2 to 3 arguments, found 1",
        ),
        (
            "substring(http.host, \"1\") eq \"a\"",
            "column 22: expected an integer, found a string",
        ),
        (
            "concat(http.host) eq \"a\"",
            "column 1: concat takes at least 2 arguments, found 1",
        ),
        (
            "url_decode(http.host, \"x\") eq \"a\"",
            "column 23: url_decode has the options r and u, found x",
        ),
        (
            "remove_bytes(http.host, http.host) eq \"a\"",
            "column 25: expected a string in quotes, found a field or a call",
        ),
        (
            "cidr(ip.src, 33, 48) eq 192.0.2.0",
            "column 14: prefix length 33 is outside 0..32",
        ),
        (
            "cidr(ip.src, 24, 129) eq 192.0.2.0",
            "column 18: prefix length 129 is outside 0..128",
        ),
        (
            "cidr(ip.src, -1, 48) eq 192.0.2.0",
            "column 14: prefix length -1 is outside 0..32",
        ),
        (
            "lookup_json_string(http.host, -1) eq \"a\"",
            "column 31: place -1 is outside 0..4294967295",
        ),
        (
            "http.host matches \"(\"",
            "column 19: regular expression: unclosed group",
        ),
        (
            "http.host matches \"(a)\\1\"",
            "column 19: regular expression: backreferences are not supported",
        ),
        (
            "http.host matches \"a{999}{999}\"",
            "column 19: regular expression needs more than 524288 bytes when compiled",
        ),
        (
            "http.host wildcard \"a**\"",
            "column 20: wildcard pattern: \"**\" is the same as \"*\"",
        ),
        (
            "http.host wildcard r\"a\\q\"",
            "column 20: wildcard pattern: \"\\\" must stand before \"*\" or \"\\\"",
        ),
    ];
    for (expression, expected) in cases {
        assert_eq!(said(expression), expected, "{expression}");
    }
}

#[test]
fn every_mistake_of_types_is_found() {
    let found = said(
        "http.hosst eq \"a\" and ip.src in {1 2001:db8::1/32 192.0.2.1}\n\
         or len(ip.src) eq \"x\" or substring(http.hots, \"1\", true) eq \"a\"",
    );
    let expected = "\
column 1: field http.hosst does not exist, did you mean http.host?
column 34: expected an ip address, found 1
column 36: 2001:db8::1/32 has bits behind its prefix: write 2001:db8::/32
column 69: len takes a string or an array first, found an ip address
column 97: field http.hots does not exist, did you mean http.host?
column 108: expected an integer, found a string
column 113: expected an integer, found true";
    assert_eq!(found, expected);
}

#[test]
fn length_and_depth_end_at_their_limits() {
    let of_len = |len: usize| format!("http.host eq \"{}\"", "ü".repeat(len - 15));
    assert!(Condition::parse(&of_len(4096)).is_ok());
    assert_eq!(
        said(&of_len(4097)),
        "column 1: expression has 4097 characters, more than 4096"
    );
    let brackets = |depth: usize| format!("{}ssl{}", "(".repeat(depth), ")".repeat(depth));
    let nots = |depth: usize| format!("{}ssl", "!".repeat(depth));
    let calls = |depth: usize| {
        let (open, close) = ("lower(".repeat(depth), ")".repeat(depth));
        format!("{open}http.host{close} eq \"a\"")
    };
    for deep in [brackets as fn(usize) -> String, nots, calls] {
        assert!(Condition::parse(&deep(128)).is_ok());
        assert!(said(&deep(129)).ends_with("nested more than 128 levels deep"));
        assert!(said(&deep(550)).ends_with("nested more than 128 levels deep"));
    }
}

#[test]
fn the_deepest_and_longest_need_little_stack() {
    let deep = format!("{}ssl{}", "not (".repeat(64), ")".repeat(64));
    let calls = format!(
        "{}http.host{} eq \"a\"",
        "lower(".repeat(128),
        ")".repeat(128)
    );
    let wide = format!("ssl{}", " or ssl".repeat(580));
    let nots = "!".repeat(4096);
    let headers = headers();
    std::thread::scope(|scope| {
        let all = [deep, calls, wide, nots];
        let headers = &headers;
        let small = std::thread::Builder::new().stack_size(512 * 1024);
        let run = small.spawn_scoped(scope, move || {
            let facts = facts(Front::Http(http("/", headers)));
            let conditions = all.iter().flat_map(|text| Condition::parse(text));
            let asked: Vec<bool> = conditions
                .map(|condition| condition.matches(&facts))
                .collect();
            asked
        });
        assert_eq!(run.unwrap().join().unwrap(), [true, false, true]);
    });
}

#[test]
fn warnings() {
    let warned = |expression: &str, front| {
        let warnings = parsed(expression).warnings(front);
        let lines: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        lines.join("\n")
    };
    let (http, dns) = (FrontKind::Http, FrontKind::Dns);
    assert_eq!(warned("ssl and ip.src in {192.0.2.1}", http), "");
    assert_eq!(
        warned("ip.src in {192.0.2.1} and ssl", dns),
        "column 27: ssl exists only on proxied load balancers: comparisons with it are false"
    );
    assert_eq!(
        warned("dns.qry.type eq 1 or ssl", http),
        "column 1: dns.qry.type exists only on unproxied load balancers: comparisons with it are \
         false"
    );
    assert_eq!(
        warned(
            "http.request.headers[\"X-Tag\"][0] eq \"a\" or ip.src in {}",
            http
        ),
        "column 21: names of headers are in lower case, so \"X-Tag\" is never there\n\
         column 51: the set is empty, so this is never true"
    );
}

#[test]
fn reads() {
    let expression = r#"http.host eq "a" and any(http.request.headers["b"][*] eq "c") and
        starts_with(http.host, http.request.headers["a"][0]) or any(http.request.headers[*][*] eq "x")"#;
    let reads = parsed(expression).reads();
    let names: Vec<String> = reads
        .iter()
        .map(|read| match &read.key {
            Some(key) => format!("{}[{}]", read.field.name(), String::from_utf8_lossy(key)),
            None => read.field.name().to_owned(),
        })
        .collect();
    assert_eq!(
        names,
        [
            "http.host",
            "http.request.headers",
            "http.request.headers[a]",
            "http.request.headers[b]"
        ]
    );
}
