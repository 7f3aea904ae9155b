//! What is said to be found.

use super::*;

fn found(expression: &str) -> Vec<String> {
    let headers = headers();
    let facts = facts(Front::Http(http(URI, &headers)));
    Condition::parse(expression).expect("valid").found(&facts)
}

#[test]
fn every_part_that_is_read_is_told_once_with_what_is_there() {
    let expression = "http.request.method eq \"POST\" or http.request.method eq \"PUT\" \
        or any(http.request.headers[\"x-tag\"][*] eq \"a\") or ip.src in {192.0.2.0/24} or ssl \
        or http.request.timestamp.sec gt 5 or ip.geoip.country eq \"DE\" \
        or any(http.request.uri.args.names[*] eq \"q\")";
    let mut said = found(expression);
    said.sort();
    assert_eq!(
        said,
        [
            "http.request.headers[\"x-tag\"] is [\"one\", \"Two\"]",
            "http.request.method is \"GET\"",
            "http.request.timestamp.sec is 1764547200",
            "http.request.uri.args.names is [\"id\", \"tag\", \"tag\", \"Tag\" and 3 more]",
            "ip.geoip.country is \"US\"",
            "ip.src is 203.0.113.77",
            "ssl is true",
        ]
    );
}

#[test]
fn what_is_missing_or_long_is_told_so() {
    assert_eq!(found(""), [""; 0]);
    assert_eq!(
        found("any(http.request.headers[\"none\"][*] eq \"a\") or dns.qry.name eq \"a\""),
        [
            "http.request.headers[\"none\"] is missing",
            "dns.qry.name is missing",
        ]
    );
    let long = "x".repeat(200);
    let lines: Lines = vec![("x-long", long.clone().into_bytes())];
    let facts = facts(Front::Http(http("/", &lines)));
    let condition = Condition::parse("any(http.request.headers[\"x-long\"][*] eq \"a\")");
    let said = condition.expect("valid").found(&facts);
    let shown = format!("http.request.headers[\"x-long\"] is [\"{}…\"]", &long[..80]);
    assert_eq!(said, [shown]);
}
