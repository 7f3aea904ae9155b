//! The cases of the mustache specification, the faults with their places, and the bounds.

use std::borrow::Cow;
use std::path::Path;

use super::*;
use crate::view::{Method, Reason, Wait};

const FACTS: Facts<'_> = Facts {
    room_name: "shop",
    language: Language::DeDe,
    csp_nonce: "bm9uY2U",
};

fn rendered(template: &str, view: &View<'_>) -> String {
    let mut out = Vec::new();
    let template = Template::parse(template).expect("a template");
    template.render(view, &FACTS, &mut out).expect("short");
    String::from_utf8(out).unwrap()
}

fn fault(template: &str) -> String {
    Template::parse(template).unwrap_err().to_string()
}

#[test]
fn the_specification_holds() {
    let spec: serde_json::Value = serde_json::from_str(include_str!("spec.json")).unwrap();
    let cases = spec["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 85);
    for case in cases {
        let text = case["template"].as_str().unwrap();
        let program = syntax::parse(text).unwrap_or_else(|fault| panic!("{case}: {fault}"));
        let mut out = Vec::new();
        run(text, &program, &mut out, |name| {
            use serde_json::Value as Json;
            let name = program.names[name].0.as_str();
            match &case["data"][name] {
                // A path into an object, and scalars have no inside.
                _ if name.contains('.') => Value::Nothing,
                Json::Bool(value) => Value::Bool(*value),
                Json::Number(value) => Value::Text(Cow::Owned(value.to_string())),
                Json::String(value) => Value::Text(Cow::Borrowed(value)),
                _ => Value::Nothing,
            }
        })
        .unwrap();
        let out = String::from_utf8(out).unwrap();
        assert_eq!(out, case["expected"].as_str().unwrap(), "{}", case["name"]);
    }
}

#[test]
fn faults_are_told_with_their_place() {
    let cases = [
        ("a\n  {{x", "line 2, column 3: the tag does not end"),
        ("ü{{{x}}", "line 1, column 2: the tag does not end"),
        ("{{}}", "line 1, column 1: the tag has no name"),
        (
            "{{a b}}",
            "line 1, column 1: `a b` is no name: it has blanks in it",
        ),
        (
            "{{#a}}\n{{#b}}{{/b}}",
            "line 1, column 1: section `a` is not closed",
        ),
        (
            "\n\n{{/a}}",
            "line 3, column 1: section `a` is closed and was not opened",
        ),
        (
            "{{#a}}{{^b}}{{/a}}",
            "line 1, column 13: section `a` is closed while section `b` is open",
        ),
        (
            "{{> header }}",
            "line 1, column 1: partials are not supported",
        ),
        (
            "{{< a}}{{/a}}",
            "line 1, column 1: parents and blocks are not supported",
        ),
    ];
    for (template, expected) in cases {
        assert_eq!(fault(template), expected);
    }
    assert!(fault("{{= =}}").starts_with("line 1, column 1: a change of delimiters"));
}

#[test]
fn sixteen_sections_nest_and_not_one_more() {
    let nested =
        |depth: usize| "{{#waitTimeKnown}}".repeat(depth) + &"{{/waitTimeKnown}}".repeat(depth);
    assert!(Template::parse(&nested(NEST_MAX)).is_ok());
    assert!(fault(&nested(NEST_MAX + 1)).ends_with("more than 16 sections within each other"));
}

#[test]
fn a_page_that_grows_too_long_is_not_sent() {
    let mut view = View::in_line();
    let challenge = "x".repeat(1 << 20);
    view.turnstile = &challenge;
    let template = |times: usize| Template::parse(&"{{{turnstile}}}".repeat(times)).unwrap();
    let mut out = b"what is there does not count".to_vec();
    assert_eq!(template(4).render(&view, &FACTS, &mut out), Ok(()));
    assert_eq!(
        template(5).render(&view, &FACTS, &mut Vec::new()),
        Err(TooLong)
    );
}

#[test]
fn each_variable_prints_what_the_answer_to_programs_says() {
    let mut view = View::in_line();
    view.reason = Some(Reason::SlowerOutflow);
    let mut json = Vec::new();
    crate::json::write(&view, crate::json::Beside::default(), &mut json);
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let fields = json["cfWaitingRoom"].as_object().unwrap();
    for (name, value) in fields {
        let expected = value.as_str().map_or(value.to_string(), str::to_owned);
        assert_eq!(
            rendered(&format!("{{{{{{{name}}}}}}}"), &view),
            expected,
            "{name}"
        );
    }
    let ours = "{{position}} {{waitLow}} {{waitHigh}} {{reason}} {{language}} {{roomName}} {{cspNonce}} \
                {{waitTimeHours}} {{waitTimeHourMinutes}} {{waitTimeFormattedLocalized}}";
    assert_eq!(
        rendered(ours, &view),
        "42 5 8 slower_outflow de-DE shop bm9uY2U 0 7 7 Minuten"
    );
}

#[test]
fn a_draw_has_percentiles_and_the_middle_is_the_number() {
    let mut view = View::in_line();
    view.method = Method::Random;
    view.wait = view.wait.map(|wait| Wait {
        minutes: 10,
        percentiles: Some([5, 10, 15]),
        ..wait
    });
    assert_eq!(
        rendered(
            "{{waitTime}} {{waitTime25Percentile}} {{waitTimeFormatted}}",
            &view
        ),
        "10 5 5 minutes to 15 minutes"
    );
}

#[test]
fn the_page_of_a_script_reads_like_one() {
    let stock = "<script>var waitTime = {{waitTime}}; var known = {{waitTimeKnown}};</script>\n\
                 {{#waitTimeKnown}}\n{{waitTimeFormatted}}\n{{/waitTimeKnown}}\n\
                 {{^waitTimeKnown}}\nunknown\n{{/waitTimeKnown}}\n{{#queueIsFull}}full{{/queueIsFull}}";
    assert_eq!(
        rendered(stock, &View::in_line()),
        "<script>var waitTime = 7; var known = true;</script>\n7 minutes\n"
    );
}

#[test]
fn a_dot_is_what_the_section_asks_for() {
    let mut view = View::in_line();
    assert_eq!(rendered("a{{#reason}}({{.}}){{/reason}}{{.}}", &view), "a");
    view.reason = Some(Reason::PlaceExpired);
    assert_eq!(
        rendered("a{{#reason}}({{.}}){{/reason}}", &view),
        "a(place_expired)"
    );
}

#[test]
fn what_is_surely_not_meant_is_told() {
    let cover = Cover {
        routes: &[("shop.example.com", "/sale")],
        challenge: true,
    };
    let template = "{{nmae}}\n<img src=\"/sale/logo.png\"> <img src='logo.png'>\n\
        <link rel=stylesheet href=https://SHOP.example.com/sale/a.css>\n\
        <style>a { background: url(/sale/b.png) }</style>\n\
        <a href=\"/sale/\">not loaded</a> <img src=\"data:,\"> <img src=\"/other/c.png\">\n\
        <img src=\"https://cdn.example.com/sale/d.png\"> <img src=\"/cdn-cgi/x\"> {{turnstile}}";
    let warnings = Template::parse(template).unwrap().warnings(&cover);
    let told: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    let behind = "is behind the room itself and does not load: inline it or add a bypass rule";
    assert_eq!(
        told,
        [
            "the challenge never appears: the page does not print `{{{turnstile}}}`".to_owned(),
            "line 1, column 1: `nmae` is no variable and prints nothing".to_owned(),
            format!("line 2, column 11: `/sale/logo.png` {behind}"),
            format!("line 2, column 38: `logo.png` {behind}"),
            format!("line 3, column 27: `https://SHOP.example.com/sale/a.css` {behind}"),
            format!("line 4, column 28: `/sale/b.png` {behind}"),
        ]
    );
    let fine = Template::parse("{{{turnstile}}}").unwrap();
    assert_eq!(fine.warnings(&cover), []);
}

#[test]
fn hostile_templates_are_read_in_time() {
    for piece in [
        "{{#a}}{{/a}}",
        "{{a}} ",
        "{{! }}",
        "{{=<% %>=}}<%={{ }}=%>",
        " ",
        "src=",
        "<link href=a ",
    ] {
        let text = piece.repeat((1 << 20) / piece.len());
        if let Ok(template) = Template::parse(&text) {
            let cover = Cover {
                routes: &[("example.com", "/")],
                challenge: false,
            };
            assert!(template.warnings(&cover).len() <= 32);
        }
    }
    let names: String = (0..100_000).map(|n| format!("{{{{x{n}}}}}")).collect();
    assert!(Template::parse(&names).is_ok());
}

/// Each file of the fuzz target's corpus, by the folder that says how it ends.
#[test]
fn the_corpus_ends_as_its_folders_say() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/template");
    let mut seen = 0;
    for end in ["read", "refused"] {
        for file in std::fs::read_dir(corpus.join(end)).unwrap() {
            let path = file.unwrap().path();
            let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
            let read = Template::parse(&text);
            assert_eq!(read.is_ok(), end == "read", "{}: {read:?}", path.display());
            seen += 1;
        }
    }
    assert!(seen >= 10);
}
