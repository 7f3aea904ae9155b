//! A million visitors of a waiting room, and what they were told of the wait beside what it was.
//!
//! `cargo run --release -p usher-sim --example crowd -- [VISITORS [SCENARIO [SEED]]]` prints the tables
//! of all scenarios, or of one. A breach of what must hold ends it.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "the tables are what this program is for, and it says how long they took"
)]

use std::time::Instant;

use usher_sim::rooms::crowd::{Answers, Crowd, Scenario, Story};

fn main() -> Result<(), String> {
    let mut words = std::env::args().skip(1);
    let visitors = number(words.next(), 1_000_000)?;
    let scenarios = match words.next() {
        Some(name) => vec![Scenario::named(&name, visitors).ok_or(format!("no scenario {name}"))?],
        None => Scenario::all(visitors),
    };
    let seed = number(words.next(), 1)?;
    let mut stories = Vec::new();
    for scenario in scenarios {
        let name = scenario.name();
        let begin = Instant::now();
        let story = Crowd::new(scenario, seed).run()?;
        stories.push((name, story, begin.elapsed().as_secs_f64()));
    }
    println!("| two hours of | s | visitors | let in | most waiting | polls | steps | crashes |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for (name, story, seconds) in &stories {
        println!(
            "| {name} | {seconds:.1} | {} | {} | {} | {} | {} | {} |",
            story.came, story.admitted, story.waiting_max, story.polls, story.steps, story.crashes
        );
    }
    println!();
    println!(
        "| of | phase | answer | known % | mean wait s | 10-90 covers % | below it % | bias % | \
         median error % | within shown % |"
    );
    println!("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for (name, story, _) in stories.iter().filter(|(name, ..)| *name != "random") {
        for phase in &story.report.phases {
            row(name, phase.phase, "first", &phase.first);
            row(name, phase.phase, "later", &phase.later);
        }
    }
    println!();
    println!("| of | page rose by > 20 %, % of visitors | promised a latest moment | broken |");
    println!("| --- | ---: | ---: | ---: |");
    for (name, story, _) in &stories {
        let report = &story.report;
        println!(
            "| {name} | {:.2} | {} | {} |",
            report.rose_percent(),
            report.promised,
            report.late
        );
    }
    for (_, story, _) in stories.iter().filter(|(name, ..)| *name == "random") {
        draws(story);
    }
    Ok(())
}

fn row(name: &str, phase: &str, which: &str, answers: &Answers) {
    if answers.known + answers.unknown == 0 {
        return;
    }
    println!(
        "| {name} | {phase} | {which} | {:.0} | {:.0} | {:.1} | {:.1} | {:+.1} | {} | {:.1} |",
        answers.known_percent(),
        answers.waited_secs(),
        answers.coverage(),
        answers.below_percent(),
        answers.bias_percent(),
        answers.median_error(),
        answers.shown_percent(),
    );
}

fn draws(story: &Story) {
    println!();
    println!("| a draw | within 25th % | within 50th % | within 75th % |");
    println!("| --- | ---: | ---: | ---: |");
    for phase in &story.report.phases {
        let [quick, half, most] = phase.first.lucky_percent();
        println!("| {} | {quick:.1} | {half:.1} | {most:.1} |", phase.phase);
    }
}

fn number(word: Option<String>, otherwise: u64) -> Result<u64, String> {
    word.map_or(Ok(otherwise), |word| {
        word.parse().map_err(|_| format!("{word} is no number"))
    })
}
