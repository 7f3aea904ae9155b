//! The laws of templates.

#[path = "../../crates/usher-rooms/src/template/fault.rs"]
#[allow(dead_code)]
mod fault;
#[path = "../../crates/usher-rooms/src/template/syntax.rs"]
mod syntax;

use syntax::{NEST_MAX, Step};

/// `input` is what an operator takes for a template.
pub fn template(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let program = match syntax::parse(&text) {
        Ok(program) => program,
        Err(fault) => {
            let line = text.split('\n').nth(fault.line - 1);
            let line = line.expect("the fault is on a line of the text");
            assert!(fault.column <= line.chars().count() + 1, "{fault} points outside");
            return;
        }
    };
    let mut end_of_text = 0;
    let mut open: Vec<usize> = Vec::new();
    for (at, step) in program.steps.iter().enumerate() {
        while open.last() == Some(&at) {
            open.pop();
        }
        match step {
            Step::Text(range) => {
                assert!(text.get(range.clone()).is_some_and(|text| !text.is_empty()));
                assert!(end_of_text <= range.start, "text is printed twice or backwards");
                end_of_text = range.end;
            }
            Step::Value { name, .. } => assert!(*name < program.names.len()),
            Step::Section { name, end, .. } => {
                assert!(*name < program.names.len());
                let around = open.last().copied().unwrap_or(program.steps.len());
                assert!(at < *end && *end <= around, "a section ends outside of its own");
                open.push(*end);
                assert!(open.len() <= NEST_MAX);
            }
        }
    }
}
