//! What an answer to a waiting visitor costs: `cargo bench -p usher-rooms`.

#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use usher_core::time::Wall;
use usher_rooms::json::{self, Beside};
use usher_rooms::page::{self, Facts, Preview};
use usher_rooms::template::{self, Template};
use usher_rooms::words::Language;

const TIMES: u32 = 20_000;

fn main() {
    let now = Wall::from_millis(1_796_119_200_000);
    let preview = Preview::parse("waitTime=12").expect("a query of ours");
    let view = preview.view(now).expect("a query that waits");
    let facts = Facts {
        room: "699d98642c564d2e855e9661899b7252",
        base: "",
        site: "shop.example.com",
        nonce: "MTIzNDU2Nzg5MDEyMzQ1Ng",
        repeatable: true,
        stream: false,
        newcomer: false,
    };
    for language in [Language::EnUs, Language::ArEg] {
        figure("page", language, |out| {
            page::write(&view, language, &facts, out)
        });
        let beside = Beside {
            usher: true,
            page: Some(language),
        };
        figure("answer to the page", language, |out| {
            json::write(&view, beside, out)
        });
    }
    figure("answer to a program", Language::EnUs, |out| {
        json::write(&view, Beside::default(), out);
    });
    let text = "<p>{{#waitTimeKnown}}{{waitTimeFormatted}}{{/waitTimeKnown}} {{position}}</p>\n";
    let template = Template::parse(&text.repeat(100)).expect("a template");
    let facts = template::Facts {
        room_name: "shop",
        language: Language::EnUs,
        csp_nonce: facts.nonce,
    };
    figure("template of 300 tags", Language::EnUs, |out| {
        template.render(&view, &facts, out).expect("a short page");
    });
}

fn figure(name: &str, language: Language, write: impl Fn(&mut Vec<u8>)) {
    let mut out = Vec::new();
    write(&mut out);
    let start = Instant::now();
    for _ in 0..TIMES {
        out.clear();
        write(black_box(&mut out));
    }
    let micros = start.elapsed().as_secs_f64() * 1e6 / f64::from(TIMES);
    println!(
        "{name}, {}: {micros:.2} us, {} bytes",
        language.tag(),
        out.len()
    );
}
