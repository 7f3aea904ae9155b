//! A rush: many visitors of one room over two hours, judged at each step, and what they were told of
//! the wait beside the wait that it was.
//!
//! Ten thousand visitors in every run of the tests; with `USHER_SOAK=1` a million, and the figures are
//! held to what is promised of a great room. `CROWD_SEED=n` is another world.

use usher_sim::rooms::crowd::{Answers, Crowd, Figures, Scenario, Story};

fn soaks() -> bool {
    std::env::var_os("USHER_SOAK").is_some()
}

fn seed() -> u64 {
    let seed = std::env::var("CROWD_SEED").ok();
    seed.map_or(1, |seed| seed.parse().expect("CROWD_SEED is a number"))
}

fn run(name: &str) -> Story {
    let visitors = if soaks() { 1_000_000 } else { 10_000 };
    let scenario = Scenario::named(name, visitors).expect("a scenario");
    let story = Crowd::new(scenario, seed()).run();
    let story = story.unwrap_or_else(|fault| panic!("{fault}"));
    assert!(story.came > visitors * 97 / 100, "{name}: {story:?}");
    assert_eq!(story.report.late, 0, "{name}: promised a moment, and late");
    story
}

fn phase<'a>(story: &'a Story, name: &str) -> &'a Figures {
    let found = story.report.phases.iter().find(|phase| phase.phase == name);
    let found = found.unwrap_or_else(|| panic!("no phase {name}"));
    let answers = found.first.known + found.later.known;
    assert!(answers > 100, "{name}: {answers} answers");
    found
}

/// Both kinds of answers taken together.
fn both(figures: &Figures, of: impl Fn(&Answers) -> f64) -> f64 {
    let (first, later) = (&figures.first, &figures.later);
    let (of_first, of_later) = (first.known as f64, later.known as f64);
    (of(first) * of_first + of(later) * of_later) / (of_first + of_later)
}

/// What a million settle to within a few percent is less sure of ten thousand, who all share one run
/// of luck.
fn within(what: &str, value: f64, of_million: (f64, f64), of_thousands: (f64, f64)) {
    let (low, high) = if soaks() { of_million } else { of_thousands };
    assert!(
        (low..=high).contains(&value),
        "{what}: {value} is not within {low}..={high}"
    );
}

#[test]
fn a_steady_line_is_told_the_truth() {
    let story = run("steady");
    let steady = phase(&story, "steady");
    let coverage = both(steady, Answers::coverage);
    within("coverage", coverage, (75.0, 85.0), (65.0, 95.0));
    let bias = both(steady, Answers::bias_percent);
    within("bias", bias, (-3.0, 3.0), (-6.0, 6.0));
    let error = both(steady, |answers| answers.median_error() as f64);
    within("median error", error, (0.0, 15.0), (0.0, 15.0));
    assert!(story.report.rose_percent() <= 5.0, "{:?}", story.report);
    assert!(story.polls > story.came, "{story:?}");
}

#[test]
fn a_line_that_the_minute_limits_is_told_the_truth() {
    let story = run("rate");
    let steady = phase(&story, "steady");
    let bias = both(steady, Answers::bias_percent);
    within("bias", bias, (-3.0, 3.0), (-6.0, 6.0));
    let coverage = both(steady, Answers::coverage);
    within("coverage", coverage, (60.0, 99.0), (50.0, 99.9));
    assert!(story.report.rose_percent() <= 5.0, "{:?}", story.report);
}

#[test]
fn a_rush_is_told_the_truth_when_it_is_over() {
    let story = run("flash");
    let after = phase(&story, "after it");
    within(
        "bias",
        both(after, Answers::bias_percent),
        (-5.0, 5.0),
        (-8.0, 8.0),
    );
    let coverage = both(after, Answers::coverage);
    within("coverage", coverage, (60.0, 99.0), (60.0, 99.9));
}

#[test]
fn a_changed_limit_is_understood_within_minutes() {
    let story = run("limits");
    for name in ["fewer: 5-10 min", "more: 5-10 min"] {
        let coverage = both(phase(&story, name), Answers::coverage);
        within(name, coverage, (60.0, 100.0), (50.0, 100.0));
    }
}

#[test]
fn longer_sessions_are_understood_within_minutes() {
    let story = run("session");
    for name in ["longer: 5-10 min", "longer: 20-40 min"] {
        let coverage = both(phase(&story, name), Answers::coverage);
        within(name, coverage, (60.0, 100.0), (50.0, 100.0));
    }
}

#[test]
fn who_gives_up_and_who_never_returns_is_reckoned_with() {
    for name in ["abandonment", "bots"] {
        let story = run(name);
        let steady = phase(&story, "steady");
        let error = both(steady, |answers| answers.median_error() as f64);
        within(name, error, (0.0, 15.0), (0.0, 20.0));
    }
    let story = run("ramp");
    let coverage = both(phase(&story, "growing"), Answers::coverage);
    within("growing", coverage, (60.0, 99.0), (60.0, 99.9));
}

#[test]
fn a_latest_moment_is_kept() {
    let story = run("fixed");
    assert!(story.report.promised > story.came / 2, "{:?}", story.report);
    let coverage = both(phase(&story, "steady"), Answers::coverage);
    within("coverage", coverage, (60.0, 99.9), (50.0, 100.0));
}

#[test]
fn a_draw_has_the_percentiles_that_it_says() {
    let story = run("random");
    let lucky = phase(&story, "steady").first.lucky_percent();
    for (found, wanted) in lucky.into_iter().zip([25.0, 50.0, 75.0]) {
        within("percentile", found - wanted, (-6.0, 6.0), (-10.0, 10.0));
    }
}

#[test]
fn a_storm_breaks_nothing() {
    let story = run("storm");
    assert!(story.changes == 26, "{story:?}");
    assert!(story.crashes > 5 && story.jumps > 5, "{story:?}");
    assert!(story.called > story.came / 10, "{story:?}");
    assert!(story.remembered > 0, "{story:?}");
}

#[test]
fn a_seed_is_one_world() {
    let run = || {
        let scenario = Scenario::named("storm", 1_000).expect("a scenario");
        Crowd::new(scenario, 7).run()
    };
    assert_eq!(run(), run());
}
