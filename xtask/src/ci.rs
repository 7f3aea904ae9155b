//! The steps of the gate, cheapest fault first.
//!
//! A step that fails does not hide those behind it: a run tells everything that is wrong, as the
//! configuration check does. Tests are counted from what their runners print, so that the last
//! line says how much was really run.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

struct Step {
    name: &'static str,
    program: &'static str,
    args: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
}

impl Step {
    const fn cargo(name: &'static str, args: &'static [&'static str]) -> Self {
        Self {
            name,
            program: "cargo",
            args,
            env: &[],
        }
    }
}

const STEPS: [Step; 7] = [
    Step::cargo("format", &["fmt", "--all", "--check"]),
    Step::cargo("tidy", &["xtask", "tidy"]),
    Step::cargo("supply", &["xtask", "supply"]),
    Step::cargo(
        "lint",
        &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ],
    ),
    // A workspace of its own, which nothing else here compiles.
    Step {
        env: &[("CARGO_TARGET_DIR", "target/fuzz")],
        ..Step::cargo(
            "fuzz",
            &[
                "check",
                "--manifest-path",
                "fuzz/Cargo.toml",
                "--no-default-features",
                "--locked",
            ],
        )
    },
    Step {
        env: &[("RUSTDOCFLAGS", "-D warnings")],
        ..Step::cargo(
            "docs",
            &[
                "doc",
                "--workspace",
                "--no-deps",
                "--document-private-items",
                "--locked",
            ],
        )
    },
    // `--no-fail-fast`: every failing test is named, not those of the first crate only.
    Step::cargo(
        "test",
        &["test", "--workspace", "--locked", "--no-fail-fast"],
    ),
];

#[derive(Default)]
struct Tests {
    passed: u64,
    failed: u64,
    ignored: u64,
}

/// Runs every step; true when all passed.
pub(crate) fn run() -> Result<bool> {
    let began = Instant::now();
    let mut tests = Tests::default();
    let mut report = Vec::new();
    for step in &STEPS {
        println!(
            "==> {}: {} {}",
            step.name,
            step.program,
            step.args.join(" ")
        );
        let step_began = Instant::now();
        let passed = run_step(step, &mut tests)?;
        report.push((step.name, passed, step_began.elapsed()));
    }
    println!();
    for (name, passed, took) in &report {
        println!("{:<8} {:<6} {:>5}", name, verdict(*passed), minutes(*took));
    }
    println!("{:<8} {:<6} {:>5}", "all", "", minutes(began.elapsed()));
    let failed_steps: Vec<&str> = report
        .iter()
        .filter(|step| !step.1)
        .map(|step| step.0)
        .collect();
    if !failed_steps.is_empty() {
        println!("failed: {}", failed_steps.join(", "));
    }
    // A step that failed without a failing test (a lint, say) still counts as one failure.
    let failed = tests.failed.max(failed_steps.len() as u64);
    println!(
        "{} passed, {failed} failed, {} skipped",
        tests.passed, tests.ignored
    );
    Ok(failed_steps.is_empty())
}

fn run_step(step: &Step, tests: &mut Tests) -> Result<bool> {
    let mut child = Command::new(step.program)
        .args(step.args)
        .envs(step.env.iter().copied())
        .current_dir(crate::root())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {}", step.program))?;
    let stdout = child.stdout.take().context("stdout is piped")?;
    for line in BufReader::new(stdout).lines() {
        let line = line.with_context(|| format!("read the output of {}", step.name))?;
        println!("{line}");
        tests.count(&line);
    }
    Ok(child.wait()?.success())
}

impl Tests {
    /// Takes `test result: ok. 12 passed; 0 failed; 1 ignored; ...`, the line of every test binary.
    fn count(&mut self, line: &str) {
        let Some(counts) = line.strip_prefix("test result: ") else {
            return;
        };
        let number = |word: &str| {
            let words: Vec<&str> = counts.split([' ', ';']).collect();
            words
                .windows(2)
                .find(|pair| pair[1] == word)
                .and_then(|pair| pair[0].parse::<u64>().ok())
                .unwrap_or(0)
        };
        self.passed += number("passed");
        self.failed += number("failed");
        self.ignored += number("ignored");
    }
}

fn verdict(passed: bool) -> &'static str {
    if passed { "ok" } else { "FAILED" }
}

fn minutes(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_test_binaries_add_up() {
        let mut tests = Tests::default();
        tests.count("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out");
        tests.count(
            "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out",
        );
        tests.count("running 3 tests");
        assert_eq!((tests.passed, tests.failed, tests.ignored), (15, 2, 1));
    }
}
