//! What conditions cost: the rules of a typical load balancer, and the worst that a text of full
//! length can ask of a request of full size.

use std::hint::black_box;
use std::net::IpAddr;

use criterion::{Criterion, criterion_group, criterion_main};
use usher_core::request::Scheme;
use usher_core::rules::condition::{Condition, EXPRESSION_LEN_MAX};
use usher_core::rules::facts::{Facts, Front, Http};
use usher_core::rules::{Overrides, Rule, Rules, Transform};
use usher_core::time::Wall;

type Lines = Vec<(&'static str, Vec<u8>)>;

fn facts<'a>(uri: &'a str, headers: &'a Lines) -> Facts<'a> {
    Facts {
        balancer: "shop.example.com",
        node: "SJC",
        region: Some("WNAM"),
        client: IpAddr::from([203, 0, 113, 77]),
        country: Some("US"),
        front: Front::Http(Http {
            scheme: Scheme::Https,
            method: "GET",
            host: "shop.example.com",
            uri,
            version: "HTTP/1.1",
            headers,
            time: Wall::from_millis(1_764_547_200_000),
        }),
    }
}

/// What a browser sends.
fn browser() -> Lines {
    [
        ("host", "shop.example.com"),
        (
            "user-agent",
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/120.0",
        ),
        (
            "accept",
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
        ),
        ("accept-language", "en-US,en;q=0.5"),
        ("accept-encoding", "gzip, deflate, br"),
        ("referer", "https://shop.example.com/"),
        (
            "cookie",
            "session=0123456789abcdef; theme=dark; consent=yes",
        ),
        ("sec-fetch-dest", "document"),
        ("sec-fetch-mode", "navigate"),
        ("x-tier", "gold"),
    ]
    .map(|(name, value)| (name, value.as_bytes().to_vec()))
    .into()
}

const TYPICAL: [&str; 10] = [
    r#"http.request.method eq "POST""#,
    r#"http.request.uri.path contains "/blog""#,
    r#"starts_with(http.request.uri.path, "/api/v2/")"#,
    r#"ip.src in {10.0.0.0/8 192.168.0.0/16 198.51.100.0/24 2001:db8::/32}"#,
    r#"any(http.request.headers["x-tier"][*] in {"silver" "platinum"})"#,
    r#"http.request.uri.args["beta"][0] eq "1""#,
    r#"http.cookie contains "variant=b""#,
    r#"http.host wildcard "*.example.net""#,
    r#"ip.geoip.country in {"DE" "FR" "NL"} and not ssl"#,
    r#"lower(http.request.uri.path) eq "/checkout" or http.request.uri.query contains "debug""#,
];

fn typical(criterion: &mut Criterion) {
    let rule = |condition: &&str| Rule {
        name: String::new(),
        condition: Condition::parse(condition).expect("the table holds expressions"),
        disabled: false,
        priority: None,
        terminates: false,
        fixed_response: None,
        overrides: Overrides::<u32>::default(),
        transform: Transform::default(),
    };
    let rules = Rules::new(TYPICAL.iter().map(rule).collect());
    let headers = browser();
    let facts = facts("/products/shoes?size=42&color=red&page=3", &headers);
    assert_eq!(rules.apply(&facts).last, None, "every rule is asked");
    criterion.bench_function("10 typical rules, none holds", |bencher| {
        bencher.iter(|| black_box(rules.apply(black_box(&facts))));
    });
    for condition in TYPICAL {
        let one = Condition::parse(condition).expect("the table holds expressions");
        criterion.bench_function(condition, |bencher| {
            bencher.iter(|| one.matches(black_box(&facts)));
        });
    }
}

/// `part` as often as an expression can hold it.
fn filled(part: &str) -> Condition {
    let joined = " or ";
    let count = (EXPRESSION_LEN_MAX + joined.len()) / (part.len() + joined.len());
    Condition::parse(&vec![part; count].join(joined)).expect("the part is an expression")
}

fn worst(criterion: &mut Criterion) {
    // 64 KiB of header lines that nearly match, and a query of as many arguments as fit.
    let headers: Lines = (0..127).map(|_| ("x-a", vec![b'a'; 508])).collect();
    let uri = format!("/?{}", "a&".repeat(8_000));
    let facts = facts(&uri, &headers);
    let mut group = criterion.benchmark_group("worst");
    group.sample_size(10);
    for part in [
        r#"any(http.request.headers[*][*] contains "aaaaaaab")"#,
        r#"any(http.request.headers[*][*] matches "(a*)*b")"#,
        r#"any(http.request.headers[*][*] matches "a{99}b")"#,
        r#"any(http.request.headers[*][*] wildcard "*aab*")"#,
        r#"any(lower(http.request.headers["x-a"][*])[*] eq "b")"#,
        r#"any(http.request.uri.args[*][0] eq "b")"#,
        r#"any(http.request.uri.args.names[*] matches "b")"#,
        r#"http.request.headers["b"][0] eq "b""#,
    ] {
        let one = Condition::parse(part).expect("the part is an expression");
        assert!(!one.matches(&facts), "{part}");
        group.bench_function(format!("once {part}"), |bencher| {
            bencher.iter(|| one.matches(black_box(&facts)));
        });
        let all = filled(part);
        group.bench_function(format!("4096 characters of {part}"), |bencher| {
            bencher.iter(|| all.matches(black_box(&facts)));
        });
    }
    group.finish();
}

criterion_group!(benches, typical, worst);
criterion_main!(benches);
