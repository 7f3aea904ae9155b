//! What holds for every text: the parser never panics, and a tree survives being printed.

use proptest::prelude::*;

use super::super::print::print;
use super::super::{Condition, Field, Function, Kind, parse};
use super::*;

fn text() -> impl Strategy<Value = String> {
    let plain = proptest::string::string_regex(r#"[a-z.*/ ]{0,8}"#);
    let any = proptest::collection::vec(any::<u8>(), 0..4).prop_map(|bytes| {
        let escaped = bytes.iter().map(|byte| format!("\\x{byte:02x}"));
        escaped.collect::<String>()
    });
    prop_oneof![
        4 => plain.unwrap().prop_map(|text| format!("\"{text}\"")),
        1 => any.prop_map(|text| format!("\"{text}\"")),
        1 => Just(r##"r#"a"\b"#"##.to_owned()),
        1 => Just(r#""\"\\\101""#.to_owned()),
    ]
}

fn of_kind(kind: Kind) -> impl Strategy<Value = String> {
    let fields: Vec<&str> = Field::ALL
        .iter()
        .filter(|field| field.kind() == kind)
        .map(|field| field.name())
        .collect();
    proptest::sample::select(fields).prop_map(str::to_owned)
}

/// A value that is a string, or with `true` the elements of an array of strings.
fn strings(unpacked: bool) -> BoxedStrategy<String> {
    let leaf = if unpacked {
        prop_oneof![
            of_kind(Kind::List).prop_map(|list| format!("{list}[*]")),
            (of_kind(Kind::Map), text()).prop_map(|(map, key)| format!("{map}[{key}][*]")),
            of_kind(Kind::Map).prop_map(|map| format!("{map}[*][*]")),
            of_kind(Kind::Map).prop_map(|map| format!("{map}[*][3]")),
        ]
        .boxed()
    } else {
        prop_oneof![
            of_kind(Kind::Text),
            (of_kind(Kind::Map), text()).prop_map(|(map, key)| format!("{map}[{key}][0]")),
            of_kind(Kind::Int).prop_map(|int| format!("to_string({int})")),
            of_kind(Kind::Bool).prop_map(|bool| format!("to_string({bool})")),
        ]
        .boxed()
    };
    let again = if unpacked { "[*]" } else { "" };
    leaf.prop_recursive(3, 8, 1, move |inner| {
        prop_oneof![
            inner
                .clone()
                .prop_map(move |of| format!("lower({of}){again}")),
            inner
                .clone()
                .prop_map(move |of| format!("upper({of}){again}")),
            (inner.clone(), -5..5_i64, -5..5_i64)
                .prop_map(move |(of, from, to)| format!("substring({of}, {from}, {to}){again}")),
            (inner.clone(), text())
                .prop_map(move |(of, more)| format!("concat({of}, {more}){again}")),
            (inner.clone(), text())
                .prop_map(move |(of, bytes)| format!("remove_bytes({of}, {bytes}){again}")),
            inner
                .clone()
                .prop_map(move |of| format!("url_decode({of}, \"ru\"){again}")),
            (inner, text())
                .prop_map(move |(of, key)| format!("lookup_json_string({of}, {key}, 0){again}")),
        ]
    })
    .boxed()
}

fn comparison(unpacked: bool) -> BoxedStrategy<String> {
    let order = proptest::sample::select(vec!["eq", "!=", "lt", "<=", "gt", ">=", "contains"]);
    let equal = proptest::sample::select(vec!["==", "ne"]);
    let strings = move || strings(unpacked);
    let again = if unpacked { "[*]" } else { "" };
    let mut all = vec![
        (strings(), order, text())
            .prop_map(|(of, order, to)| format!("{of} {order} {to}"))
            .boxed(),
        (strings(), proptest::collection::vec(text(), 0..4))
            .prop_map(|(of, set)| format!("{of} in {{{}}}", set.join(" ")))
            .boxed(),
        strings()
            .prop_map(|of| format!("{of} matches \"[^\\\"]a\\.\""))
            .boxed(),
        strings()
            .prop_map(|of| format!("{of} strict wildcard r\"a*\\**\""))
            .boxed(),
        (strings(), text())
            .prop_map(|(of, end)| format!("ends_with({of}, {end})"))
            .boxed(),
        (strings(), any::<i64>())
            .prop_map(move |(of, len)| format!("len({of}){again} < {len}"))
            .boxed(),
        strings()
            .prop_map(move |of| {
                format!("lookup_json_integer({of}, \"a\"){again} in {{-3..4 0x10}}")
            })
            .boxed(),
    ];
    if !unpacked {
        all.push(of_kind(Kind::Bool).boxed());
        all.push(
            (equal, any::<std::net::Ipv6Addr>())
                .prop_map(|(equal, ip)| format!("ip.src {equal} {ip}"))
                .boxed(),
        );
        all.push(
            any::<std::net::Ipv4Addr>()
                .prop_map(|ip| format!("cidr(ip.src, 24, 64) in {{{ip} 192.0.2.0/24 ::1..::5}}"))
                .boxed(),
        );
        all.push(Just("true".to_owned()).boxed());
    }
    proptest::strategy::Union::new(all).boxed()
}

fn joined(leaf: BoxedStrategy<String>) -> BoxedStrategy<String> {
    let join = || proptest::sample::select(vec!["and", "&&", "or", "||", "xor", "^^"]);
    leaf.prop_recursive(4, 16, 2, move |inner| {
        prop_oneof![
            inner.clone().prop_map(|one| format!("not ({one})")),
            inner.clone().prop_map(|one| format!("({one})")),
            (inner.clone(), join(), inner)
                .prop_map(|(one, join, other)| format!("{one} {join} {other}")),
        ]
    })
    .boxed()
}

/// Expressions that are right.
pub(super) fn expression() -> BoxedStrategy<String> {
    let quantified = comparison(true).prop_flat_map(|each| {
        proptest::sample::select(vec!["any", "all"])
            .prop_map(move |function| format!("{function}(not {each})"))
    });
    joined(prop_oneof![3 => comparison(false), 1 => quantified].boxed())
}

/// Pieces that expressions are made of, in no order.
fn soup() -> impl Strategy<Value = String> {
    let mut pieces: Vec<&str> = Field::ALL.iter().map(|field| field.name()).collect();
    pieces.extend(Function::ALL.iter().map(|function| function.name()));
    pieces.extend([
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "[*]",
        "[0]",
        "[\"a\"]",
        ",",
        "\"a\"",
        "r\"",
        "r#\"a\"#",
        "5",
        "1..5",
        "-",
        "..",
        "192.0.2.1",
        "192.0.2.0/24",
        "::1",
        "true",
        "eq",
        "ne",
        "lt",
        "contains",
        "matches",
        "~",
        "wildcard",
        "strict",
        "in",
        "not",
        "!",
        "and",
        "or",
        "xor",
        "&&",
        "||",
        "^^",
        "\"",
        "\\",
        "$",
        "ü",
        "\0",
        "#",
    ]);
    let piece = proptest::sample::select(pieces);
    proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.join(" "))
}

fn never_panics(text: &str) {
    let headers = headers();
    let facts = facts(Front::Http(http(URI, &headers)));
    match Condition::parse(text) {
        Ok(condition) => {
            let _ = condition.matches(&facts);
        }
        Err(faults) => {
            assert!(!faults.is_empty());
            for fault in faults {
                assert!(
                    text.get(fault.span.start..fault.span.end).is_some(),
                    "{fault:?}"
                );
                assert!(fault.column <= text.chars().count() + 1);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics(text in ".{0,80}") {
        never_panics(&text);
    }

    #[test]
    fn no_soup_panics(text in soup()) {
        never_panics(&text);
    }

    #[test]
    fn what_is_printed_means_the_same(text in expression()) {
        prop_assume!(text.chars().count() < 2000);
        let tree = parse::parse(&text).map_err(|fault| TestCaseError::fail(format!("{text}: {fault:?}")))?;
        let printed = print(&tree);
        let again = parse::parse(&printed).map_err(|fault| TestCaseError::fail(format!("{printed}: {fault:?}")))?;
        prop_assert_eq!(&printed, &print(&again));
        prop_assert_eq!(holds(&text), holds(&printed));
    }

    #[test]
    fn not_is_the_opposite(text in expression()) {
        prop_assume!(text.chars().count() < 2000);
        let opposite = format!("not ({text})");
        prop_assert_ne!(holds(&text), holds(&opposite));
        let parity = format!("({text}) xor true");
        prop_assert_ne!(holds(&text), holds(&parity));
    }
}
