//! A checked expression, ready to be asked.
//!
//! A tree of small steps over borrowed values. Types were settled before, so a step is never asked
//! for what it cannot give; `None` means one thing only, a missing value, and every comparison with
//! it is false. A text is copied only by a function that changes it.

use std::borrow::Cow;
use std::cell::Cell;
use std::net::IpAddr;
use std::ops::ControlFlow;

use memchr::memmem::Finder;

use super::decode::{self, url_decode};
use super::field::Field;
use super::json::{self, Step};
use super::set::{IpSet, Ranges, TextSet, masked};
use super::source::{self, Each};
use super::tree::Order;
use super::wildcard::Wildcard;
use crate::rules::facts::Facts;

/// Bytes that the functions of one evaluation may go through. No expression reaches it that
/// changes each value once; it ends those that change a long value again for each of many elements.
/// Beyond it, what a function would give counts as missing.
pub(super) const WORK_MAX: usize = 16 * 1024 * 1024;

/// What an evaluation sees.
#[derive(Clone, Copy)]
struct Scope<'e> {
    facts: &'e Facts<'e>,
    /// The element that a walk over an array stands at.
    element: &'e [u8],
    /// What [`Text::Once`] refers to.
    once: &'e [Option<Vec<u8>>],
    /// What is left of [`WORK_MAX`].
    work: &'e Cell<usize>,
}

impl<'e> Scope<'e> {
    fn at(self, element: &'e [u8]) -> Scope<'e> {
        Scope { element, ..self }
    }

    /// Takes the work of going through `text`; `None` when too little is left.
    fn spend<'t>(self, text: Cow<'t, [u8]>) -> Option<Cow<'t, [u8]>> {
        self.work.set(self.work.get().checked_sub(text.len())?);
        Some(text)
    }
}

/// A whole expression.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub(super) node: Node,
    /// Values that stand beside the elements of a walk but do not depend on them. They are found
    /// before anything else, so that a walk does not find them again for each element.
    pub(super) once: Box<[Text]>,
}

impl Program {
    pub(super) fn holds(&self, facts: &Facts<'_>) -> bool {
        let work = Cell::new(WORK_MAX);
        let mut once = Vec::with_capacity(self.once.len());
        for text in &self.once {
            // A value may hold a walk of its own, and then refers to values before it.
            let found = text.value(Scope {
                facts,
                element: b"",
                once: &once,
                work: &work,
            });
            let found = found.map(Cow::into_owned);
            once.push(found);
        }
        self.node.holds(Scope {
            facts,
            element: b"",
            once: &once,
            work: &work,
        })
    }
}

#[derive(Debug, Clone)]
pub(super) enum Node {
    Constant(bool),
    And(Box<[Node]>),
    /// True when an odd number is.
    Xor(Box<[Node]>),
    Or(Box<[Node]>),
    Not(Box<Node>),
    /// Whether a boolean is there and is this.
    Is(Truth, bool),
    Text(Text, TextTest),
    Int(Int, IntTest),
    Ip(Ip, IpTest),
}

impl Node {
    fn holds(&self, scope: Scope<'_>) -> bool {
        match self {
            Node::Constant(constant) => *constant,
            Node::And(nodes) => nodes.iter().all(|node| node.holds(scope)),
            Node::Or(nodes) => nodes.iter().any(|node| node.holds(scope)),
            Node::Xor(nodes) => nodes.iter().filter(|node| node.holds(scope)).count() % 2 == 1,
            Node::Not(node) => !node.holds(scope),
            Node::Is(truth, wanted) => truth.value(scope) == Some(*wanted),
            Node::Text(text, test) => text.value(scope).is_some_and(|text| test.holds(&text)),
            Node::Int(int, test) => int.value(scope).is_some_and(|int| test.holds(int)),
            Node::Ip(ip, test) => ip.value(scope).is_some_and(|ip| test.holds(ip)),
        }
    }
}

/// A boolean that is more than a comparison.
#[derive(Debug, Clone)]
pub(super) enum Truth {
    Field(Field),
    StartsWith(Text, Text),
    EndsWith(Text, Text),
    Any(Each, Box<Node>),
    All(Each, Box<Node>),
    /// `test` of one element of an array.
    Nth(Each, u32, Box<Node>),
}

impl Truth {
    fn value(&self, scope: Scope<'_>) -> Option<bool> {
        match self {
            Truth::Field(field) => source::bool(*field, scope.facts),
            Truth::StartsWith(text, start) => {
                Some(text.value(scope)?.starts_with(&start.value(scope)?))
            }
            Truth::EndsWith(text, end) => Some(text.value(scope)?.ends_with(&end.value(scope)?)),
            // The first element that decides ends the walk.
            Truth::Any(each, test) => search(each, test, true, scope),
            Truth::All(each, test) => search(each, test, false, scope).map(|found| !found),
            Truth::Nth(each, nth, test) => pick(each, *nth, scope, |element| {
                Some(test.holds(scope.at(&element)))
            }),
        }
    }
}

/// Whether `test` is `wanted` for some element; `None` when the array is missing.
fn search(each: &Each, test: &Node, wanted: bool, scope: Scope<'_>) -> Option<bool> {
    let mut found = false;
    let present = each.visit(scope.facts, &mut |element| {
        if test.holds(scope.at(&element)) == wanted {
            found = true;
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    present.then_some(found)
}

/// What `take` makes of the element at `nth`.
fn pick<'e, T>(
    each: &Each,
    nth: u32,
    scope: Scope<'e>,
    take: impl FnOnce(Cow<'e, [u8]>) -> Option<T>,
) -> Option<T> {
    let mut left = nth;
    let mut found = None;
    each.visit(scope.facts, &mut |element| {
        if left == 0 {
            found = Some(element);
            return ControlFlow::Break(());
        }
        left -= 1;
        ControlFlow::Continue(())
    });
    found.and_then(take)
}

#[derive(Debug, Clone)]
pub(super) enum Text {
    Field(Field),
    Literal(Box<[u8]>),
    /// The element that the walk stands at.
    Element,
    /// One of [`Program::once`], by its place.
    Once(usize),
    /// What `Text` makes of one element of an array.
    Nth(Each, u32, Box<Text>),
    Lower(Box<Text>),
    Upper(Box<Text>),
    Concat(Box<[Text]>),
    Substring(Box<Text>, i64, Option<i64>),
    OfInt(Box<Int>),
    OfTruth(Box<Truth>),
    OfIp(Ip),
    UrlDecode(Box<Text>, decode::Options),
    RemoveBytes(Box<Text>, ByteSet),
    Json(Box<Text>, Box<[Step]>),
}

impl Text {
    fn value<'e>(&'e self, scope: Scope<'e>) -> Option<Cow<'e, [u8]>> {
        Some(match self {
            Text::Field(field) => source::text(*field, scope.facts)?,
            Text::Literal(literal) => Cow::Borrowed(literal),
            Text::Element => Cow::Borrowed(scope.element),
            Text::Nth(each, nth, text) => pick(each, *nth, scope, |element| match &**text {
                Text::Element => Some(element),
                changed => Some(Cow::Owned(changed.value(scope.at(&element))?.into_owned())),
            })?,
            Text::Once(place) => Cow::Borrowed(scope.once.get(*place)?.as_deref()?),
            Text::Lower(text) => lower(scope.spend(text.value(scope)?)?),
            Text::Upper(text) => upper(scope.spend(text.value(scope)?)?),
            Text::Concat(texts) => {
                let mut whole = Vec::new();
                for text in texts {
                    whole.extend_from_slice(&scope.spend(text.value(scope)?)?);
                }
                Cow::Owned(whole)
            }
            Text::Substring(text, from, to) => substring(text.value(scope)?, *from, *to),
            Text::OfInt(int) => Cow::Owned(int.value(scope)?.to_string().into_bytes()),
            Text::OfTruth(truth) => Cow::Borrowed(if truth.value(scope)? {
                b"true"
            } else {
                b"false"
            }),
            Text::OfIp(ip) => Cow::Owned(ip.value(scope)?.to_string().into_bytes()),
            Text::UrlDecode(text, options) => {
                url_decode(scope.spend(text.value(scope)?)?, *options)
            }
            Text::RemoveBytes(text, bytes) => bytes.removed(scope.spend(text.value(scope)?)?),
            Text::Json(text, path) => match scope.spend(text.value(scope)?)? {
                Cow::Borrowed(document) => json::string(document, path)?,
                Cow::Owned(document) => Cow::Owned(json::string(&document, path)?.into_owned()),
            },
        })
    }
}

/// ASCII lower case; a copy only where that changes something.
pub(super) fn lower(text: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    if text.iter().any(u8::is_ascii_uppercase) {
        return Cow::Owned(text.to_ascii_lowercase());
    }
    text
}

fn upper(text: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    if text.iter().any(u8::is_ascii_lowercase) {
        return Cow::Owned(text.to_ascii_uppercase());
    }
    text
}

/// Ends beyond the text are moved to it; an end before the start gives the empty text.
fn substring(text: Cow<'_, [u8]>, from: i64, to: Option<i64>) -> Cow<'_, [u8]> {
    let len = text.len();
    let place = |at: i64| {
        let distance = usize::try_from(at.unsigned_abs()).unwrap_or(usize::MAX);
        if at < 0 {
            len.saturating_sub(distance)
        } else {
            distance.min(len)
        }
    };
    let (from, to) = (place(from), to.map_or(len, place));
    let range = from..to.max(from);
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(&text[range]),
        Cow::Owned(text) => Cow::Owned(text[range].to_vec()),
    }
}

/// Which bytes `remove_bytes` removes.
#[derive(Debug, Clone)]
pub(super) struct ByteSet(Box<[bool; 256]>);

impl ByteSet {
    pub(super) fn new(bytes: &[u8]) -> ByteSet {
        let mut held = Box::new([false; 256]);
        for &byte in bytes {
            held[usize::from(byte)] = true;
        }
        ByteSet(held)
    }

    fn removed<'t>(&self, text: Cow<'t, [u8]>) -> Cow<'t, [u8]> {
        let removes = |byte: &u8| self.0[usize::from(*byte)];
        if !text.iter().any(removes) {
            return text;
        }
        Cow::Owned(text.iter().copied().filter(|byte| !removes(byte)).collect())
    }
}

#[derive(Debug, Clone)]
pub(super) enum Int {
    Field(Field),
    Len(Box<Text>),
    /// Elements of an array.
    Count(Each),
    Nth(Each, u32, Box<Int>),
    Json(Box<Text>, Box<[Step]>),
}

impl Int {
    fn value(&self, scope: Scope<'_>) -> Option<i64> {
        match self {
            Int::Field(field) => source::int(*field, scope.facts),
            Int::Len(text) => i64::try_from(text.value(scope)?.len()).ok(),
            Int::Count(each) => {
                let mut count = 0;
                let present = each.visit(scope.facts, &mut |_| {
                    count += 1;
                    ControlFlow::Continue(())
                });
                present.then_some(count)
            }
            Int::Nth(each, nth, int) => {
                pick(each, *nth, scope, |element| int.value(scope.at(&element)))
            }
            Int::Json(text, path) => json::integer(&scope.spend(text.value(scope)?)?, path),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) enum Ip {
    Source,
    Cidr(Box<Ip>, u32, u32),
}

impl Ip {
    fn value(&self, scope: Scope<'_>) -> Option<IpAddr> {
        match self {
            Ip::Source => Some(source::ip(scope.facts)),
            Ip::Cidr(ip, v4, v6) => Some(masked(ip.value(scope)?, *v4, *v6)),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) enum TextTest {
    Order(Order, Box<[u8]>),
    Contains(Box<Finder<'static>>),
    Matches(regex::bytes::Regex),
    Wildcard(Wildcard),
    In(TextSet),
}

impl TextTest {
    fn holds(&self, text: &[u8]) -> bool {
        match self {
            TextTest::Order(Order::Eq, wanted) => text == &**wanted,
            TextTest::Order(Order::Ne, wanted) => text != &**wanted,
            TextTest::Order(order, wanted) => order.holds(text.cmp(wanted)),
            TextTest::Contains(finder) => finder.find(text).is_some(),
            TextTest::Matches(regex) => regex.is_match(text),
            TextTest::Wildcard(wildcard) => wildcard.matches(text),
            TextTest::In(set) => set.contains(text),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) enum IntTest {
    Order(Order, i64),
    In(Ranges<i64>),
}

impl IntTest {
    fn holds(&self, int: i64) -> bool {
        match self {
            IntTest::Order(order, wanted) => order.holds(int.cmp(wanted)),
            IntTest::In(set) => set.contains(int),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) enum IpTest {
    Is(IpAddr),
    IsNot(IpAddr),
    In(IpSet),
}

impl IpTest {
    fn holds(&self, ip: IpAddr) -> bool {
        match self {
            IpTest::Is(wanted) => ip == *wanted,
            IpTest::IsNot(wanted) => ip != *wanted,
            IpTest::In(set) => set.contains(ip),
        }
    }
}
