//! Writes the built-in page in every stage, in the languages of the command line, into a folder:
//! to look at them, and for tools that judge pages.
//!
//! `cargo run -p usher-rooms --example pages -- FOLDER [LANGUAGE...]`

use std::path::PathBuf;
use std::time::Duration;

use usher_core::time::Wall;
use usher_rooms::View;
use usher_rooms::json::{self, Beside};
use usher_rooms::page::{self, Facts, Preview, WELCOME};
use usher_rooms::view::{Method, Reason, Stage, Wait};
use usher_rooms::words::Language;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().unwrap_or_else(|| "pages".to_owned()));
    let mut languages: Vec<Language> = arguments.filter_map(|tag| Language::parse(&tag)).collect();
    if languages.is_empty() {
        languages = Language::ALL.to_vec();
    }
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("welcome.html"), WELCOME)?;
    for language in languages {
        for (name, view) in views() {
            let facts = Facts {
                room: "699d98642c564d2e855e9661899b7252",
                base: "",
                site: "shop.example.com",
                nonce: "MTIzNDU2Nzg5MDEyMzQ1Ng",
                repeatable: true,
                stream: false,
                newcomer: false,
            };
            let file = |ending: &str| folder.join(format!("{}.{name}.{ending}", language.tag()));
            let mut out = Vec::new();
            page::write(&view, language, &facts, &mut out);
            std::fs::write(file("html"), &out)?;
            let beside = Beside {
                usher: true,
                page: Some(language),
            };
            out.clear();
            json::write(&view, beside, &mut out);
            std::fs::write(file("json"), &out)?;
        }
    }
    Ok(())
}

fn views() -> Vec<(&'static str, View<'static>)> {
    let now = Wall::parse("2026-12-01T10:00:00Z").unwrap_or(Wall::from_millis(0));
    let later = |secs: u64| Some(now.after(Duration::from_secs(secs)));
    let preview = |query: &str| {
        let preview = Preview::parse(query).expect("a query of ours");
        preview.view(now).expect("a query that waits")
    };
    let waiting = || preview("waitTime=12");
    let stage = |stage: Stage| View {
        stage,
        position: None,
        wait: None,
        moved: None,
        ..waiting()
    };
    vec![
        ("waiting", waiting()),
        (
            "grown",
            View {
                position: Some(12_408),
                reason: Some(Reason::SlowerOutflow),
                guaranteed_by: later(5400),
                wait: Some(Wait {
                    low_secs: 3000,
                    mid_secs: 4000,
                    high_secs: 4700,
                    minutes: 70,
                    percentiles: None,
                }),
                ..waiting()
            },
        ),
        (
            "expired",
            View {
                reason: Some(Reason::PlaceExpired),
                ..waiting()
            },
        ),
        (
            "unknown",
            View {
                wait: None,
                ..waiting()
            },
        ),
        ("random", preview("queueing_method=random&waitTime=12")),
        (
            "held",
            View {
                position: Some(42),
                ..stage(Stage::Held)
            },
        ),
        (
            "prequeue",
            preview("event=prequeueing&shuffle_at_event_start=true"),
        ),
        ("full", stage(Stage::Full)),
        (
            "rejected",
            View {
                method: Method::Reject,
                refresh_secs: 0,
                ..stage(Stage::Rejected)
            },
        ),
        ("cookies", stage(Stage::CookiesNeeded)),
        (
            "called",
            View {
                claim_by: later(45),
                ..stage(Stage::Called)
            },
        ),
    ]
}
