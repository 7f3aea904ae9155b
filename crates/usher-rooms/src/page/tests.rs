//! What every page has, in every language and stage.

use super::*;
use crate::view::{Method, Reason, Stage};

const FACTS: Facts<'_> = Facts {
    room: "699d98642c564d2e855e9661899b7252",
    base: "",
    site: "shop.example.com",
    nonce: "MTIzNDU2Nzg5MDEyMzQ1Ng",
    repeatable: true,
    stream: false,
    newcomer: false,
};

fn page(view: &View<'_>, language: Language, facts: &Facts<'_>) -> String {
    let mut out = Vec::new();
    write(view, language, facts, &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn every_page_is_whole_and_small() {
    let mut largest = 0;
    for language in Language::ALL {
        for stage in Stage::ALL {
            let view = View {
                stage,
                moved: Some(View::in_line().now),
                guaranteed_by: Some(View::in_line().now),
                claim_by: Some(View::in_line().now),
                reason: Some(Reason::SettingsChanged),
                position: Some(1_234_567),
                ..View::in_line()
            };
            let page = page(&view, language, &FACTS);
            assert!(!page.contains("@{") && !page.contains("@?"), "{page}");
            let open = format!(
                "<html lang=\"{}\" dir=\"{}\">",
                language.tag(),
                language.direction()
            );
            assert!(page.contains(&open));
            assert_eq!(page.matches("<h1").count(), 1);
            assert_eq!(page.matches("<script").count(), 1);
            largest = largest.max(page.len());
        }
    }
    assert!(largest <= 20 << 10, "{largest} bytes");
}

#[test]
fn a_page_asks_nobody_else() {
    let page = page(&View::in_line(), Language::EnUs, &FACTS);
    for other in ["http:", "https:", "src=", "url(", "@import", "//"] {
        assert!(!page.contains(other), "{other}");
    }
}

#[test]
fn a_page_asks_where_its_cookie_goes_and_says_whether_it_has_a_place() {
    let placed = page(&View::in_line(), Language::EnUs, &FACTS);
    assert!(placed.contains("data-path=\"/cdn-cgi/waitingroom/\""));
    assert!(!placed.contains(" data-new"));
    let facts = Facts {
        base: "/sale",
        newcomer: true,
        ..FACTS
    };
    let new = page(&View::in_line(), Language::EnUs, &facts);
    assert!(new.contains("data-path=\"/sale/cdn-cgi/waitingroom/\""));
    assert!(new.contains(" data-new>"));
}

#[test]
fn what_is_not_known_is_hidden_and_what_is_known_is_not() {
    let shown = page(&View::in_line(), Language::EnUs, &FACTS);
    assert!(shown.contains("<title>42 · Waiting room</title>"));
    assert!(shown.contains("<dd id=\"place\">42</dd>"));
    assert!(shown.contains("<dd id=\"wait\">5–8 minutes</dd>"));
    assert!(shown.contains("<div hidden><dt>At the latest</dt>"));
    let unknown = View {
        wait: None,
        position: None,
        ..View::in_line()
    };
    let shown = page(&unknown, Language::EnUs, &FACTS);
    assert!(shown.contains("<div class=\"place\" hidden>"));
    assert!(shown.contains("<dd id=\"wait\">Not known yet</dd>"));
    assert!(shown.contains("<title>Waiting room</title>"));
}

#[test]
fn without_a_script_the_page_reloads_unless_it_is_pointless() {
    let reload = "<noscript><meta http-equiv=\"refresh\" content=\"20\"></noscript>";
    assert!(page(&View::in_line(), Language::EnUs, &FACTS).contains(reload));
    let rejected = View {
        stage: Stage::Rejected,
        method: Method::Reject,
        refresh_secs: 0,
        ..View::in_line()
    };
    let page = page(&rejected, Language::EnUs, &FACTS);
    assert!(!page.contains("noscript"));
    assert!(page.contains("Not open right now"));
}

#[test]
fn moments_say_whose_clock_they_are_of() {
    let view = View {
        guaranteed_by: Some(View::in_line().now),
        ..View::in_line()
    };
    let page = page(&view, Language::EnUs, &FACTS);
    assert!(
        page.contains("<time id=\"latest\" datetime=\"2026-12-01T10:00:00.000Z\">10:00 UTC</time>")
    );
}

#[test]
fn hostile_names_stay_text() {
    let facts = Facts {
        room: "\"><script>",
        base: "",
        site: "<b>'&",
        ..FACTS
    };
    let page = page(&View::in_line(), Language::EnUs, &facts);
    assert!(page.contains("data-room=\"&quot;&gt;&lt;script&gt;\""));
    assert!(page.contains("<p id=\"site\">&lt;b&gt;&#39;&amp;</p>"));
}

#[test]
fn a_called_visitor_can_enter_by_a_link() {
    let called = View {
        stage: Stage::Called,
        claim_by: Some(View::in_line().now),
        ..View::in_line()
    };
    let link = "<a id=\"enter\" href=\"\">Enter now</a>";
    assert!(page(&called, Language::EnUs, &FACTS).contains(link));
    assert!(!page(&View::in_line(), Language::EnUs, &FACTS).contains(link));
}

#[test]
fn the_script_is_told_what_it_must_not_repeat() {
    let once = Facts {
        repeatable: false,
        ..FACTS
    };
    assert!(page(&View::in_line(), Language::EnUs, &once).contains(" data-once>"));
    assert!(!page(&View::in_line(), Language::EnUs, &FACTS).contains(" data-once>"));
}

#[test]
fn those_who_listen_hear_what_changed() {
    let say = |view: &View<'_>| Shown::of(view, Language::EnUs).say;
    assert_eq!(
        say(&View::in_line()),
        "Your place in line: 42. Estimated wait: 5–8 minutes."
    );
    let called = View {
        stage: Stage::Called,
        ..View::in_line()
    };
    assert_eq!(say(&called), "It is your turn. You are being let in now.");
    let grown = View {
        reason: Some(Reason::SlowerOutflow),
        ..View::in_line()
    };
    assert!(say(&grown).ends_with("because fewer visitors are leaving the site."));
}

#[test]
fn previews_show_what_their_query_asks_for() {
    let now = View::in_line().now;
    let view = |query: &str| Preview::parse(query).unwrap().view(now);
    let stage = |query: &str| view(query).map(|view| view.stage);
    assert_eq!(stage(""), Some(Stage::Waiting));
    assert_eq!(stage("queueing_method=passthrough"), None);
    assert_eq!(
        stage("queueing_method=passthrough&force_queue=true"),
        Some(Stage::Held)
    );
    assert_eq!(
        stage("queueing_method=passthrough&event=prequeueing"),
        Some(Stage::Prequeue)
    );
    assert_eq!(stage("queueing_method=passthrough&event=started"), None);
    assert_eq!(stage("queueing_method=reject"), Some(Stage::Rejected));
    assert_eq!(stage("queue_is_full=true"), Some(Stage::Full));
    let view = view("queueing_method=Random&waitTime=20&x=y").unwrap();
    let wait = view.wait.unwrap();
    assert_eq!((wait.minutes, wait.percentiles), (20, Some([10, 20, 30])));
    for wrong in [
        "waitTime=0",
        "waitTime=x",
        "event=soon",
        "force_queue=2",
        "queueing_method=lifo",
        "shuffle_at_event_start=true",
    ] {
        assert!(Preview::parse(wrong).is_err(), "{wrong}");
    }
    assert!(Preview::parse("shuffle_at_event_start=true&event=started").is_ok());
}
