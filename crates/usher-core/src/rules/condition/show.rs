//! What a condition found in one request, in words: for explanations, never for traffic.

use std::ops::ControlFlow;

use super::field::{Field, Kind};
use super::source::{self, Each, Map};
use super::{Condition, Read};
use crate::rules::facts::Facts;

/// Characters of a value that are shown.
const SHOWN_MAX: usize = 80;
/// Values of a list that are shown.
const VALUES_MAX: usize = 4;

impl Condition {
    /// Every part of the request that it reads, in the order of the fields, with what is there:
    /// `http.request.method is "GET"`.
    #[must_use]
    pub fn found(&self, facts: &Facts<'_>) -> Vec<String> {
        let reads = self.reads();
        reads.iter().map(|read| found(read, facts)).collect()
    }
}

fn found(read: &Read, facts: &Facts<'_>) -> String {
    let field = read.field;
    let name = match &read.key {
        Some(key) => format!("{}[{}]", field.name(), quoted(key)),
        None => field.name().to_owned(),
    };
    let value = match field.kind() {
        Kind::Text => source::text(field, facts).map(|text| quoted(&text)),
        Kind::Int => source::int(field, facts).map(|number| number.to_string()),
        Kind::Bool => source::bool(field, facts).map(|truth| truth.to_string()),
        Kind::Ip => Some(source::ip(facts).to_string()),
        Kind::List | Kind::Map => each(read).and_then(|each| list(&each, facts)),
    };
    match value {
        Some(value) => format!("{name} is {value}"),
        None => format!("{name} is missing"),
    }
}

fn each(read: &Read) -> Option<Each> {
    let map = Map::of(read.field)?;
    Some(match (&read.key, read.field) {
        (Some(key), _) => Each::Key(map, key.clone().into()),
        (None, Field::HeaderNames | Field::ArgNames) => Each::Names(map),
        (None, _) => Each::Values(map),
    })
}

/// The first values, and how many more there are.
fn list(each: &Each, facts: &Facts<'_>) -> Option<String> {
    let (mut shown, mut count) = (Vec::new(), 0_usize);
    let present = each.visit(facts, &mut |value| {
        if count < VALUES_MAX {
            shown.push(quoted(&value));
        }
        count += 1;
        ControlFlow::Continue(())
    });
    let more = match count.saturating_sub(VALUES_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    present.then(|| format!("[{}{more}]", shown.join(", ")))
}

fn quoted(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    let mut shown: String = text.chars().take(SHOWN_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}
