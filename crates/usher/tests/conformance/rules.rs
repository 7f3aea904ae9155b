//! The rules language beside the parser of the hosted service, out of the PyPI package
//! `octorules-wirefilter`: what one takes the other must take, but for the differences that are
//! written down with a reason.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use usher_core::rules::Condition;
use usher_core::rules::condition::{Field, Kind};

use crate::programs::root;

/// Fields that the other parser does not know, and fields of the same type that it does.
const STAND_INS: [(&str, &str); 10] = [
    ("cf.load_balancer.name", "http.referer"),
    ("cf.load_balancer.region", "http.referer"),
    ("usher.node", "http.referer"),
    ("ip.geoip.country", "ip.src.country"),
    ("dns.qry.name.len", "http.request.body.size"),
    ("dns.qry.name", "http.referer"),
    ("dns.qry.type", "http.request.timestamp.msec"),
    ("dns.qry.qu", "ssl"),
    ("dns.rr.opt.client.addr", "http.referer"),
    ("dns.rr.opt.client", "ssl"),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expected {
    Same,
    OnlyThey,
    OnlyWe,
}

#[test]
fn the_service_and_we_take_the_same_expressions() {
    let mut all = written();
    assert!(all.len() >= 600, "{} expressions are written", all.len());
    all.extend(generated());
    let expressions: Vec<&str> = all.iter().map(|(text, _)| text.as_str()).collect();
    let theirs = ask(&expressions);
    let mut differences = String::new();
    for ((text, expected), theirs) in all.iter().zip(&theirs) {
        let ours = Condition::parse(text);
        let found = match (ours.is_ok(), theirs == "ok") {
            (true, false) => Expected::OnlyWe,
            (false, true) => Expected::OnlyThey,
            (true, true) | (false, false) => Expected::Same,
        };
        if found != *expected {
            let ours = ours.map(|_| "ok");
            let _ = writeln!(
                differences,
                "{text}\n  ours:   {ours:?}\n  theirs: {theirs}\n  {found:?} instead of {expected:?}"
            );
        }
    }
    assert!(differences.is_empty(), "{differences}");
    println!("{} expressions", all.len());
}

/// The table of expressions written by hand.
fn written() -> Vec<(String, Expected)> {
    let mut expected = Expected::Same;
    let mut all = Vec::new();
    for line in include_str!("rules_expressions.txt").lines() {
        if let Some(section) = line.strip_prefix("== ") {
            expected = match section.split_once(": ") {
                None if section == "the same" => Expected::Same,
                Some(("only they take", _)) => Expected::OnlyThey,
                Some(("only we take", _)) => Expected::OnlyWe,
                Some(_) | None => panic!("no such section: {section}"),
            };
        } else if !line.is_empty() && line != "#" && !line.starts_with("# ") {
            all.push((line.to_owned(), expected));
        }
    }
    all
}

/// Every field under every operator and function, right and wrong.
fn generated() -> Vec<(String, Expected)> {
    const FORMS: [&str; 28] = [
        "{}",
        "not {}",
        "{} eq \"a\"",
        "{} eq 5",
        "{} eq 192.0.2.1",
        "{} lt \"a\"",
        "{} ge 5",
        "{} gt 192.0.2.1",
        "{} contains \"a\"",
        "{} matches \"^a\"",
        "{} wildcard \"a*\"",
        "{} strict wildcard \"a*\"",
        "{} in {\"a\" \"b\"}",
        "{} in {1 5..9}",
        "{} in {192.0.2.0/24}",
        "{}[0] eq \"a\"",
        "{}[\"a\"][0] eq \"a\"",
        "any({}[*] eq \"a\")",
        "all({}[*][*] eq \"a\")",
        "any(lower({}[*])[*] eq \"a\")",
        "lower({}) eq \"a\"",
        "concat({}, \"a\") eq \"a\"",
        "starts_with({}, \"a\")",
        "ends_with({}, http.host)",
        "to_string({}) eq \"a\"",
        "len({}) gt 1",
        "cidr({}, 24, 48) in {192.0.2.0/24}",
        "lookup_json_integer({}, \"a\") eq 1",
    ];
    let forms = |field: Field| {
        FORMS.map(|form| {
            let kind = field.kind();
            let expected = match (form, kind) {
                // The reasons stand in the table.
                ("{} gt 192.0.2.1", Kind::Ip) => Expected::OnlyThey,
                ("to_string({}) eq \"a\"", Kind::Ip | Kind::Bool) => Expected::OnlyWe,
                ("len({}) gt 1", Kind::List) => Expected::OnlyWe,
                // A number becomes a part of a text, as documented.
                ("concat({}, \"a\") eq \"a\"", Kind::Int) => Expected::OnlyWe,
                _ => Expected::Same,
            };
            (form.replacen("{}", field.name(), 1), expected)
        })
    };
    Field::ALL.iter().flat_map(|&field| forms(field)).collect()
}

/// What the other parser says of each.
fn ask(expressions: &[&str]) -> Vec<String> {
    let python = root().join(".tools/venv/bin/python");
    let script = root().join("crates/usher/tests/conformance/rules_oracle.py");
    let mut child = Command::new(&python)
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{}: {e} (scripts/setup test makes it)", python.display()));
    let mut stdin = child.stdin.take().unwrap();
    let questions: Vec<String> = expressions
        .iter()
        .map(|text| {
            let asked = STAND_INS
                .iter()
                .fold((*text).to_owned(), |text, (ours, theirs)| {
                    text.replace(ours, theirs)
                });
            serde_json::Value::from(asked).to_string()
        })
        .collect();
    // Written beside reading, so that neither pipe fills up.
    let writer = std::thread::spawn(move || {
        for question in questions {
            writeln!(stdin, "{question}").unwrap();
        }
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success(), "the other parser failed");
    let answers: Vec<String> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(str::to_owned)
        .collect();
    assert_eq!(answers.len(), expressions.len());
    answers
}
