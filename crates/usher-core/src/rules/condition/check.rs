//! From a tree to steps that can be asked: names are looked up, types settled, literals read.
//!
//! Every mistake is found, not the first: a part that is wrong says so and gives nothing, and what
//! stands around it is checked as far as it does not depend on it.
//!
//! `[*]` turns a comparison or a call into one of each element. The checker carries such a value as
//! the walk that it comes from and what is made of the element, so `lower(m["k"][*])[0]` is one
//! walk however many functions stand around it.

use memchr::memmem::Finder;
use regex::bytes::RegexBuilder;

use super::fault::{At, Span};
use super::field::{Field, Kind};
use super::function::Function;
use super::literal::shown;
use super::node::{Int, IntTest, Ip, IpTest, Node, Program, Text, TextTest, Truth};
use super::set::{IpSet, Ranges, TextSet};
use super::source::{Each, Map};
use super::tree::{Comparison, Expression, Index, Join, LiteralKind, Order, Value, With};
use super::wildcard::Wildcard;
use super::{Read, ReadAt};
use crate::catalog::nearest;

/// Bytes of a compiled regular expression.
pub const REGEX_SIZE_MAX: usize = 512 * 1024;
/// Bytes that searching with one regular expression may use to remember states, for each thread
/// that does it at the same time.
const REGEX_CACHE_MAX: usize = 512 * 1024;
/// What a checked expression is, beside its faults.
pub(super) struct Checked {
    pub(super) program: Program,
    pub(super) reads: Vec<ReadAt>,
    pub(super) warnings: Vec<At>,
}

pub(super) fn check(whole: &Expression) -> Result<Checked, Vec<At>> {
    let mut checker = Checker::default();
    let node = checker.condition(whole);
    match node {
        Some(node) if checker.faults.is_empty() => Ok(Checked {
            program: Program {
                node,
                once: checker.once.into(),
            },
            reads: checker.reads,
            warnings: checker.warnings,
        }),
        Some(_) | None => {
            checker.faults.sort_by_key(|fault| fault.span);
            Err(checker.faults)
        }
    }
}

#[derive(Default)]
pub(super) struct Checker {
    faults: Vec<At>,
    pub(super) warnings: Vec<At>,
    reads: Vec<ReadAt>,
    pub(super) once: Vec<Text>,
}

/// A value with its type.
pub(super) enum Typed {
    Text(Text),
    Int(Int),
    Truth(Truth),
    Ip(Ip),
    /// A map with all its arrays.
    Map(Map),
    /// `m[*]`: the arrays of a map, one by one.
    Arrays(Map),
    /// An array as one value.
    Array(Each, Box<Typed>),
    /// An array whose elements are taken one by one.
    Unpacked(Each, Box<Typed>),
}

impl Typed {
    pub(super) fn name(&self) -> String {
        match self {
            Typed::Text(_) => Kind::Text.name().to_owned(),
            Typed::Int(_) => Kind::Int.name().to_owned(),
            Typed::Truth(_) => Kind::Bool.name().to_owned(),
            Typed::Ip(_) => Kind::Ip.name().to_owned(),
            Typed::Map(_) => Kind::Map.name().to_owned(),
            Typed::Arrays(_) => "arrays of strings".to_owned(),
            Typed::Array(_, of) => format!("an array of {}", of.plural()),
            Typed::Unpacked(_, of) => format!("{} unpacked by [*]", of.plural()),
        }
    }

    fn plural(&self) -> &'static str {
        match self {
            Typed::Text(_) => "strings",
            Typed::Int(_) => "integers",
            Typed::Truth(_) => "booleans",
            Typed::Ip(_) => "ip addresses",
            Typed::Map(_) | Typed::Arrays(_) | Typed::Array(..) | Typed::Unpacked(..) => "arrays",
        }
    }
}

/// A comparison, or one for each element.
pub(super) enum Outcome {
    One(Node),
    Each(Each, Node),
}

impl Checker {
    /// Says what is wrong; for the end of a function that then has nothing to give.
    pub(super) fn fault<T>(&mut self, at: Span, message: impl Into<String>) -> Option<T> {
        self.faults.push(At::new(at, message));
        None
    }

    /// A whole expression, which must be one boolean.
    fn condition(&mut self, expression: &Expression) -> Option<Node> {
        match self.outcome(expression)? {
            Outcome::One(node) => Some(node),
            Outcome::Each(..) => {
                let at = place(expression);
                self.fault(at, "[*] compares each element: put it into any() or all()")
            }
        }
    }

    pub(super) fn outcome(&mut self, expression: &Expression) -> Option<Outcome> {
        match expression {
            Expression::Constant(constant, _) => Some(Outcome::One(Node::Constant(*constant))),
            Expression::Not(inner) => Some(match self.outcome(inner)? {
                Outcome::One(node) => Outcome::One(Node::Not(Box::new(node))),
                Outcome::Each(each, node) => Outcome::Each(each, Node::Not(Box::new(node))),
            }),
            Expression::Chain(join, all) => self.chain(*join, all),
            Expression::Bare(value) => {
                let typed = self.value(value)?;
                self.bare(typed, value)
            }
            Expression::Compare(value, comparison) => {
                let typed = self.value(value);
                match typed? {
                    Typed::Unpacked(each, of) => {
                        let node = self.comparison(*of, value, comparison)?;
                        Some(Outcome::Each(each, node))
                    }
                    one => Some(Outcome::One(self.comparison(one, value, comparison)?)),
                }
            }
        }
    }

    fn chain(&mut self, join: Join, all: &[Expression]) -> Option<Outcome> {
        let mut whole = true;
        let mut nodes = Vec::with_capacity(all.len());
        // The walk of the first part, if it is one of each element.
        let mut walk: Option<Option<Each>> = None;
        for expression in all {
            let (each, node) = match self.outcome(expression) {
                Some(Outcome::One(node)) => (None, node),
                Some(Outcome::Each(each, node)) => (Some(each), node),
                None => {
                    whole = false;
                    continue;
                }
            };
            if walk.as_ref().is_some_and(|walk| *walk != each) {
                let message = format!(
                    "both sides of \"{}\" must be single comparisons, or unpack the same array",
                    join.word()
                );
                self.fault::<()>(place(expression), message);
                whole = false;
            }
            walk.get_or_insert(each);
            nodes.push(node);
        }
        if !whole {
            return None;
        }
        let nodes = nodes.into();
        let node = match join {
            Join::And => Node::And(nodes),
            Join::Xor => Node::Xor(nodes),
            Join::Or => Node::Or(nodes),
        };
        Some(match walk.flatten() {
            Some(each) => Outcome::Each(each, node),
            None => Outcome::One(node),
        })
    }

    fn bare(&mut self, typed: Typed, value: &Value) -> Option<Outcome> {
        let name = typed.name();
        match typed {
            Typed::Truth(truth) => Some(Outcome::One(Node::Is(truth, true))),
            Typed::Unpacked(each, of) | Typed::Array(each, of) => match *of {
                Typed::Truth(truth) => Some(Outcome::Each(each, Node::Is(truth, true))),
                _ => self.alone(&name, value),
            },
            Typed::Text(_) | Typed::Int(_) | Typed::Ip(_) | Typed::Map(_) | Typed::Arrays(_) => {
                self.alone(&name, value)
            }
        }
    }

    fn alone<T>(&mut self, name: &str, value: &Value) -> Option<T> {
        let message = format!(
            "{} is {name}, not a boolean: a comparison must follow",
            value.name
        );
        self.fault(value.at, message)
    }

    fn comparison(&mut self, typed: Typed, value: &Value, to: &Comparison) -> Option<Node> {
        let name = typed.name();
        match typed {
            Typed::Text(text) => Some(Node::Text(text, self.text_test(to)?)),
            Typed::Int(int) => Some(Node::Int(int, self.int_test(to)?)),
            Typed::Truth(truth) => {
                let wanted = self.truth_test(to)?;
                Some(Node::Is(truth, wanted))
            }
            Typed::Ip(ip) => Some(Node::Ip(ip, self.ip_test(to)?)),
            Typed::Map(_) | Typed::Arrays(_) | Typed::Array(..) | Typed::Unpacked(..) => {
                let message = format!(
                    "{} is {name} and cannot be compared: take one element with [0] or [\"key\"], \
                     or each with [*]",
                    value.name
                );
                self.fault(value.at, message)
            }
        }
    }

    fn text_test(&mut self, to: &Comparison) -> Option<TextTest> {
        Some(match &to.with {
            With::Order(order, literal) => TextTest::Order(*order, self.text(literal)?.into()),
            With::Contains(literal) => {
                let text = self.text(literal)?;
                TextTest::Contains(Box::new(Finder::new(&text).into_owned()))
            }
            With::Matches { pattern, at } => {
                // As the hosted service: bytes, not characters.
                let regex = RegexBuilder::new(pattern)
                    .unicode(false)
                    .size_limit(REGEX_SIZE_MAX)
                    .dfa_size_limit(REGEX_CACHE_MAX)
                    .build();
                match regex {
                    Ok(regex) => TextTest::Matches(regex),
                    Err(error) => return self.fault(*at, regex_message(&error)),
                }
            }
            With::Wildcard { strict, pattern } => {
                let text = self.text(pattern)?;
                match Wildcard::new(&text, *strict) {
                    Ok(wildcard) => TextTest::Wildcard(wildcard),
                    Err(error) => {
                        return self.fault(pattern.at, format!("wildcard pattern: {error}"));
                    }
                }
            }
            With::In(literals) => {
                let texts = self.set(to.at, literals, Checker::text)?;
                TextTest::In(TextSet::new(texts))
            }
        })
    }

    fn int_test(&mut self, to: &Comparison) -> Option<IntTest> {
        match &to.with {
            With::Order(order, literal) => Some(IntTest::Order(*order, self.int(literal)?)),
            With::In(literals) => {
                let ranges = self.set(to.at, literals, Checker::int_range)?;
                let ranges = Ranges::new(ranges, |last| last.checked_add(1));
                Some(IntTest::In(ranges))
            }
            With::Contains(_) | With::Matches { .. } | With::Wildcard { .. } => {
                self.wrong_operator(to, Kind::Int)
            }
        }
    }

    fn ip_test(&mut self, to: &Comparison) -> Option<IpTest> {
        match &to.with {
            With::Order(Order::Eq, literal) => Some(IpTest::Is(self.ip(literal)?)),
            With::Order(Order::Ne, literal) => Some(IpTest::IsNot(self.ip(literal)?)),
            With::In(literals) => {
                let ranges = self.set(to.at, literals, Checker::ip_range)?;
                Some(IpTest::In(IpSet::new(ranges)))
            }
            With::Order(..) | With::Contains(_) | With::Matches { .. } | With::Wildcard { .. } => {
                self.wrong_operator(to, Kind::Ip)
            }
        }
    }

    fn truth_test(&mut self, to: &Comparison) -> Option<bool> {
        match &to.with {
            With::Order(order @ (Order::Eq | Order::Ne), literal) => match &literal.kind {
                LiteralKind::Word(word) if word == "true" => Some(*order == Order::Eq),
                LiteralKind::Word(word) if word == "false" => Some(*order == Order::Ne),
                found => {
                    let message = format!("expected true or false, found {}", shown(found));
                    self.fault(literal.at, message)
                }
            },
            With::Order(..)
            | With::In(_)
            | With::Contains(_)
            | With::Matches { .. }
            | With::Wildcard { .. } => self.wrong_operator(to, Kind::Bool),
        }
    }

    fn wrong_operator<T>(&mut self, to: &Comparison, kind: Kind) -> Option<T> {
        let (operator, wanted) = match &to.with {
            With::Order(order, _) => (order.word(), "a string or an integer"),
            With::Contains(_) => ("contains", "a string"),
            With::Matches { .. } => ("matches", "a string"),
            With::Wildcard { strict: false, .. } => ("wildcard", "a string"),
            With::Wildcard { strict: true, .. } => ("strict wildcard", "a string"),
            With::In(_) => ("in", "a string, an integer or an ip address"),
        };
        let message = format!(
            "\"{operator}\" needs {wanted} on its left side, found {}",
            kind.name()
        );
        self.fault(to.at, message)
    }

    /// A field or call, with its indexes.
    pub(super) fn value(&mut self, value: &Value) -> Option<Typed> {
        let mut typed = match &value.arguments {
            None => self.field(value),
            Some(arguments) => self.call(value, arguments),
        }?;
        for (index, at) in &value.indexes {
            typed = self.index(typed, index, *at, &value.name)?;
        }
        Some(typed)
    }

    fn field(&mut self, value: &Value) -> Option<Typed> {
        let name = value.name.as_str();
        let Some(field) = Field::named(name) else {
            let message = match Function::named(name) {
                Some(_) => format!("{name} is a function: its arguments must follow in brackets"),
                None => {
                    let names = Field::ALL.iter().map(|field| field.name());
                    with_nearest(&format!("field {name} does not exist"), name, names)
                }
            };
            return self.fault(value.name_at, message);
        };
        self.read(field, value);
        Some(match (field.kind(), Map::of(field)) {
            (Kind::Map, Some(map)) => Typed::Map(map),
            (Kind::List, Some(map)) => {
                let names = matches!(field, Field::HeaderNames | Field::ArgNames);
                let each = if names {
                    Each::Names(map)
                } else {
                    Each::Values(map)
                };
                Typed::Array(each, Box::new(Typed::Text(Text::Element)))
            }
            (Kind::Int, _) => Typed::Int(Int::Field(field)),
            (Kind::Bool, _) => Typed::Truth(Truth::Field(field)),
            (Kind::Ip, _) => Typed::Ip(Ip::Source),
            (Kind::Text | Kind::Map | Kind::List, _) => Typed::Text(Text::Field(field)),
        })
    }

    /// Remembers what is read, down to the key where one is given.
    fn read(&mut self, field: Field, value: &Value) {
        let key = match value.indexes.first() {
            Some((Index::Key(key), at)) if field.kind() == Kind::Map => {
                if field == Field::Headers && key.iter().any(u8::is_ascii_uppercase) {
                    let message = format!(
                        "names of headers are in lower case, so {:?} is never there",
                        String::from_utf8_lossy(key)
                    );
                    self.warnings.push(At::new(*at, message));
                }
                Some(key.clone())
            }
            Some(_) | None => None,
        };
        self.reads.push(ReadAt {
            read: Read { field, key },
            at: value.name_at,
        });
    }

    fn index(&mut self, typed: Typed, index: &Index, at: Span, name: &str) -> Option<Typed> {
        let element = || Box::new(Typed::Text(Text::Element));
        Some(match (typed, index) {
            (Typed::Map(map), Index::Key(key)) => {
                Typed::Array(Each::Key(map, key.as_slice().into()), element())
            }
            (Typed::Map(map), Index::Each) => Typed::Arrays(map),
            (Typed::Arrays(map), Index::Each) => Typed::Unpacked(Each::Values(map), element()),
            (Typed::Arrays(map), Index::Nth(nth)) => {
                Typed::Unpacked(Each::Nths(map, *nth), element())
            }
            (Typed::Array(each, of), Index::Each) => Typed::Unpacked(each, of),
            (Typed::Array(each, of), Index::Nth(nth)) => match *of {
                Typed::Text(text) => Typed::Text(Text::Nth(each, *nth, Box::new(text))),
                Typed::Int(int) => Typed::Int(Int::Nth(each, *nth, Box::new(int))),
                Typed::Truth(truth) => {
                    let node = Node::Is(truth, true);
                    Typed::Truth(Truth::Nth(each, *nth, Box::new(node)))
                }
                // No array has elements of another kind.
                Typed::Ip(_)
                | Typed::Map(_)
                | Typed::Arrays(_)
                | Typed::Array(..)
                | Typed::Unpacked(..) => return self.fault(at, "cannot be indexed"),
            },
            (typed, index) => {
                let wanted = match index {
                    Index::Key(_) => "a key needs a map",
                    Index::Nth(_) => "a number needs an array",
                    Index::Each => "[*] needs an array or a map",
                };
                let message = format!("{wanted}, found {} in {name}", typed.name());
                return self.fault(at, message);
            }
        })
    }
}

/// Where an expression begins, for a message about the whole of it.
fn place(expression: &Expression) -> Span {
    match expression {
        Expression::Constant(_, at) => *at,
        Expression::Not(inner) => place(inner),
        Expression::Chain(_, all) => all.first().map_or(Span { start: 0, end: 0 }, place),
        Expression::Bare(value) | Expression::Compare(value, _) => value.at,
    }
}

pub(super) fn with_nearest<'a>(
    message: &str,
    name: &str,
    names: impl Iterator<Item = &'a str>,
) -> String {
    match nearest(name, names) {
        Some(near) => format!("{message}, did you mean {near}?"),
        None => message.to_owned(),
    }
}

/// The last line of what the compiler of regular expressions says, which is the reason.
fn regex_message(error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(_) => {
            format!("regular expression needs more than {REGEX_SIZE_MAX} bytes when compiled")
        }
        other => {
            let text = other.to_string();
            let reason = text.lines().last().unwrap_or_default();
            let reason = reason.strip_prefix("error: ").unwrap_or(reason);
            format!("regular expression: {reason}")
        }
    }
}
