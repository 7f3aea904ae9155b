//! Literals: what a word or a text is where a certain type is expected.

use super::check::Checker;
use super::fault::{At, Span};
use super::parse::integer;
use super::set::{self, IpRange};
use super::tree::{Literal, LiteralKind};

impl Checker {
    pub(super) fn set<T>(
        &mut self,
        operator: Span,
        literals: &[Literal],
        read: fn(&mut Checker, &Literal) -> Option<T>,
    ) -> Option<Vec<T>> {
        if literals.is_empty() {
            let warning = At::new(operator, "the set is empty, so this is never true");
            self.warnings.push(warning);
        }
        // All of them are read before one that is wrong ends it.
        let read: Vec<Option<T>> = literals.iter().map(|literal| read(self, literal)).collect();
        read.into_iter().collect()
    }

    pub(super) fn text(&mut self, literal: &Literal) -> Option<Vec<u8>> {
        match &literal.kind {
            LiteralKind::Text(text) => Some(text.clone()),
            found @ LiteralKind::Word(_) => {
                let message = format!("expected a string in quotes, found {}", shown(found));
                self.fault(literal.at, message)
            }
        }
    }

    pub(super) fn int(&mut self, literal: &Literal) -> Option<i64> {
        match &literal.kind {
            LiteralKind::Word(word) => match integer(word) {
                Ok(int) => Some(int),
                Err(why)
                    if word.starts_with(|first: char| first.is_ascii_digit() || first == '-') =>
                {
                    self.fault(literal.at, format!("expected an integer: {word} {why}"))
                }
                Err(_) => self.fault(literal.at, format!("expected an integer, found {word}")),
            },
            found @ LiteralKind::Text(_) => {
                let message = format!("expected an integer, found {}", shown(found));
                self.fault(literal.at, message)
            }
        }
    }

    pub(super) fn int_range(&mut self, literal: &Literal) -> Option<std::ops::RangeInclusive<i64>> {
        let LiteralKind::Word(word) = &literal.kind else {
            return self.int(literal).map(|int| int..=int);
        };
        let Some((from, to)) = word.split_once("..") else {
            return self.int(literal).map(|int| int..=int);
        };
        let (Ok(from), Ok(to)) = (integer(from), integer(to)) else {
            let message = format!("expected integers on both sides of \"..\", found {word}");
            return self.fault(literal.at, message);
        };
        if from > to {
            return self.fault(literal.at, format!("{word} ends before it starts"));
        }
        Some(from..=to)
    }

    pub(super) fn ip(&mut self, literal: &Literal) -> Option<std::net::IpAddr> {
        let LiteralKind::Word(word) = &literal.kind else {
            return self.fault(
                literal.at,
                "expected an ip address without quotes, found a string",
            );
        };
        match set::address(word) {
            Ok(address) => Some(address.to_canonical()),
            Err(_) if IpRange::parse(word).is_ok() => {
                let message = format!(
                    "expected one ip address: networks and ranges stand in a set, {{{word}}}"
                );
                self.fault(literal.at, message)
            }
            Err(message) => self.fault(literal.at, message),
        }
    }

    pub(super) fn ip_range(&mut self, literal: &Literal) -> Option<IpRange> {
        let LiteralKind::Word(word) = &literal.kind else {
            return self.fault(
                literal.at,
                "expected an ip address without quotes, found a string",
            );
        };
        match IpRange::parse(word) {
            Ok(range) => Some(range),
            Err(message) => self.fault(literal.at, message),
        }
    }
}

/// As it stands in a message.
pub(super) fn shown(literal: &LiteralKind) -> String {
    match literal {
        LiteralKind::Text(_) => "a string".to_owned(),
        LiteralKind::Word(word) => word.clone(),
    }
}
