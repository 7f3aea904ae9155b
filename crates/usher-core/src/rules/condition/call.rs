//! Calls of functions: how many arguments, of which types, and what comes out.

use super::check::{Checker, Outcome, Typed, with_nearest};
use super::decode;
use super::fault::Span;
use super::field::Field;
use super::function::Function;
use super::json::Step;
use super::literal::shown;
use super::node::{ByteSet, Int, Ip, Text, Truth};
use super::tree::{Argument, Literal, LiteralKind, Value};

/// Steps of a look-up in JSON.
pub const JSON_STEPS_MAX: usize = 16;

impl Checker {
    pub(super) fn call(&mut self, value: &Value, arguments: &[Argument]) -> Option<Typed> {
        let name = value.name.as_str();
        let Some(function) = Function::named(name) else {
            let message = match Field::named(name) {
                Some(_) => format!("{name} is a field and takes no arguments"),
                None => {
                    let names = Function::ALL.iter().map(|function| function.name());
                    with_nearest(&format!("function {name} does not exist"), name, names)
                }
            };
            return self.fault(value.name_at, message);
        };
        let (least, most) = match function {
            Function::Any
            | Function::All
            | Function::Lower
            | Function::Upper
            | Function::Len
            | Function::ToString => (1, 1),
            Function::StartsWith | Function::EndsWith | Function::RemoveBytes => (2, 2),
            Function::UrlDecode => (1, 2),
            Function::Substring => (2, 3),
            Function::Cidr => (3, 3),
            Function::Concat => (2, usize::MAX),
            Function::LookupJsonString | Function::LookupJsonInteger => (2, JSON_STEPS_MAX + 1),
        };
        if !(least..=most).contains(&arguments.len()) {
            let wanted = match (least, most) {
                (least, most) if least == most => format!("{least}"),
                (least, usize::MAX) => format!("at least {least}"),
                (least, most) => format!("{least} to {most}"),
            };
            let message = format!("{name} takes {wanted} arguments, found {}", arguments.len());
            return self.fault(value.at, message);
        }
        let (first, rest) = arguments.split_first()?;
        self.apply(function, first, rest)
    }

    /// `first` is there, and as many of `rest` as the function takes.
    fn apply(&mut self, function: Function, first: &Argument, rest: &[Argument]) -> Option<Typed> {
        match function {
            Function::Any | Function::All => return self.quantified(function, first),
            Function::Concat => return self.concat(first, rest),
            _ => {}
        }
        // The arguments behind the first are checked even if that one is wrong.
        let subject = self.subject(function, first);
        let more = self.more(
            function,
            rest,
            matches!(&subject, Some(Typed::Unpacked(..))),
        );
        let (subject, more) = (subject?, more?);
        match subject {
            Typed::Unpacked(each, of) => {
                let of = self.made(function, *of, more, first)?;
                Some(Typed::Array(each, Box::new(of)))
            }
            Typed::Array(each, _) if function == Function::Len => {
                Some(Typed::Int(Int::Count(each)))
            }
            one => self.made(function, one, more, first),
        }
    }

    /// The value that a function works on, which is a field or a call.
    fn subject(&mut self, function: Function, argument: &Argument) -> Option<Typed> {
        match argument {
            Argument::Value(value) => self.value(value),
            Argument::Literal(literal) => {
                let message = format!(
                    "{} takes a field or a call first, found {}",
                    function.name(),
                    shown(&literal.kind)
                );
                self.fault(literal.at, message)
            }
            // Only `any` and `all` are parsed with one.
            Argument::Expression(_, at) => self.fault(*at, "expected a field or a call"),
        }
    }

    /// What the arguments behind the first say.
    fn more(&mut self, function: Function, rest: &[Argument], in_walk: bool) -> Option<More> {
        let mut rest = rest.iter();
        Some(match function {
            Function::StartsWith | Function::EndsWith => {
                More::Text(self.text_argument(rest.next()?, in_walk)?)
            }
            Function::RemoveBytes => More::Bytes(self.text_literal(rest.next()?)?),
            Function::UrlDecode => {
                let Some(argument) = rest.next() else {
                    return Some(More::Decode(decode::Options::default()));
                };
                let letters = self.text_literal(argument)?;
                match decode::Options::parse(&String::from_utf8_lossy(&letters)) {
                    Ok(options) => More::Decode(options),
                    Err(letter) => {
                        let message = format!("url_decode has the options r and u, found {letter}");
                        return self.fault(argument_place(argument), message);
                    }
                }
            }
            Function::Substring => {
                let from = self.int_literal(rest.next()?);
                let to = rest.next().map(|argument| self.int_literal(argument));
                More::Range(from?, to.map_or(Some(None), |to| to.map(Some))?)
            }
            Function::Cidr => {
                let v4 = self.bits(rest.next()?, 32);
                let v6 = self.bits(rest.next()?, 128);
                More::Bits(v4?, v6?)
            }
            Function::LookupJsonString | Function::LookupJsonInteger => {
                let steps: Vec<Option<Step>> = rest.map(|step| self.json_step(step)).collect();
                More::Path(steps.into_iter().collect::<Option<Vec<Step>>>()?.into())
            }
            Function::Any
            | Function::All
            | Function::Concat
            | Function::Lower
            | Function::Upper
            | Function::Len
            | Function::ToString => More::Nothing,
        })
    }

    /// What a function makes of one value.
    fn made(
        &mut self,
        function: Function,
        subject: Typed,
        more: More,
        first: &Argument,
    ) -> Option<Typed> {
        Some(match (function, subject, more) {
            (Function::Lower, Typed::Text(text), _) => Typed::Text(Text::Lower(Box::new(text))),
            (Function::Upper, Typed::Text(text), _) => Typed::Text(Text::Upper(Box::new(text))),
            (Function::Len, Typed::Text(text), _) => Typed::Int(Int::Len(Box::new(text))),
            (Function::StartsWith, Typed::Text(text), More::Text(start)) => {
                Typed::Truth(Truth::StartsWith(text, start))
            }
            (Function::EndsWith, Typed::Text(text), More::Text(end)) => {
                Typed::Truth(Truth::EndsWith(text, end))
            }
            (Function::Substring, Typed::Text(text), More::Range(from, to)) => {
                Typed::Text(Text::Substring(Box::new(text), from, to))
            }
            (Function::ToString, Typed::Int(int), _) => Typed::Text(Text::OfInt(Box::new(int))),
            (Function::ToString, Typed::Truth(truth), _) => {
                Typed::Text(Text::OfTruth(Box::new(truth)))
            }
            (Function::ToString, Typed::Ip(ip), _) => Typed::Text(Text::OfIp(ip)),
            (Function::UrlDecode, Typed::Text(text), More::Decode(options)) => {
                Typed::Text(Text::UrlDecode(Box::new(text), options))
            }
            (Function::RemoveBytes, Typed::Text(text), More::Bytes(bytes)) => {
                Typed::Text(Text::RemoveBytes(Box::new(text), ByteSet::new(&bytes)))
            }
            (Function::LookupJsonString, Typed::Text(text), More::Path(path)) => {
                Typed::Text(Text::Json(Box::new(text), path))
            }
            (Function::LookupJsonInteger, Typed::Text(text), More::Path(path)) => {
                Typed::Int(Int::Json(Box::new(text), path))
            }
            (Function::Cidr, Typed::Ip(ip), More::Bits(v4, v6)) => {
                Typed::Ip(Ip::Cidr(Box::new(ip), v4, v6))
            }
            (function, subject, _) => {
                let wanted = match function {
                    Function::Len => "a string or an array",
                    Function::ToString => "an integer, a boolean or an ip address",
                    Function::Cidr => "an ip address",
                    _ => "a string",
                };
                let message = format!(
                    "{} takes {wanted} first, found {}",
                    function.name(),
                    subject.name()
                );
                return self.fault(argument_place(first), message);
            }
        })
    }

    fn quantified(&mut self, function: Function, argument: &Argument) -> Option<Typed> {
        let Argument::Expression(expression, at) = argument else {
            return self.fault(argument_place(argument), "expected a comparison");
        };
        match self.outcome(expression)? {
            Outcome::Each(each, node) => Some(Typed::Truth(if function == Function::Any {
                Truth::Any(each, Box::new(node))
            } else {
                Truth::All(each, Box::new(node))
            })),
            Outcome::One(_) => {
                let message = format!(
                    "{} takes a comparison of each element of an array: unpack it with [*]",
                    function.name()
                );
                self.fault(*at, message)
            }
        }
    }

    fn concat(&mut self, first: &Argument, rest: &[Argument]) -> Option<Typed> {
        let mut walk = None;
        let start = match first {
            Argument::Value(value) => match self.value(value) {
                Some(Typed::Unpacked(each, of)) => {
                    walk = Some(each);
                    self.piece(*of, first)
                }
                Some(one) => self.piece(one, first),
                None => None,
            },
            Argument::Literal(_) | Argument::Expression(..) => self.text_argument(first, false),
        };
        let in_walk = walk.is_some();
        let more: Vec<Option<Text>> = rest
            .iter()
            .map(|argument| self.text_argument(argument, in_walk))
            .collect();
        let pieces: Option<Vec<Text>> = std::iter::once(start).chain(more).collect();
        let whole = Typed::Text(Text::Concat(pieces?.into()));
        Some(match walk {
            Some(each) => Typed::Array(each, Box::new(whole)),
            None => whole,
        })
    }

    /// Something that can be a part of a text.
    fn piece(&mut self, typed: Typed, argument: &Argument) -> Option<Text> {
        match typed {
            Typed::Text(text) => Some(text),
            Typed::Int(int) => Some(Text::OfInt(Box::new(int))),
            Typed::Unpacked(..) => self.fault(
                argument_place(argument),
                "only the first argument can be unpacked with [*]",
            ),
            other @ (Typed::Truth(_)
            | Typed::Ip(_)
            | Typed::Map(_)
            | Typed::Arrays(_)
            | Typed::Array(..)) => {
                let message = format!("expected a string, found {}", other.name());
                self.fault(argument_place(argument), message)
            }
        }
    }

    /// A string beside the first argument. In a walk it is found once, not for each element.
    fn text_argument(&mut self, argument: &Argument, in_walk: bool) -> Option<Text> {
        let text = match argument {
            Argument::Literal(literal) => {
                return Some(Text::Literal(self.text(literal)?.into()));
            }
            Argument::Value(value) => {
                let typed = self.value(value)?;
                self.piece(typed, argument)?
            }
            Argument::Expression(_, at) => return self.fault(*at, "expected a string"),
        };
        if !in_walk {
            return Some(text);
        }
        self.once.push(text);
        Some(Text::Once(self.once.len() - 1))
    }

    fn literal<'a>(&mut self, argument: &'a Argument, wanted: &str) -> Option<&'a Literal> {
        match argument {
            Argument::Literal(literal) => Some(literal),
            Argument::Value(_) | Argument::Expression(..) => {
                let message = format!("expected {wanted}, found a field or a call");
                self.fault(argument_place(argument), message)
            }
        }
    }

    fn text_literal(&mut self, argument: &Argument) -> Option<Vec<u8>> {
        let literal = self.literal(argument, "a string in quotes")?;
        self.text(literal)
    }

    fn int_literal(&mut self, argument: &Argument) -> Option<i64> {
        let literal = self.literal(argument, "a number")?;
        self.int(literal)
    }

    fn bits(&mut self, argument: &Argument, max: u32) -> Option<u32> {
        let bits = self.int_literal(argument)?;
        match u32::try_from(bits) {
            Ok(bits) if bits <= max => Some(bits),
            Ok(_) | Err(_) => {
                let message = format!("prefix length {bits} is outside 0..{max}");
                self.fault(argument_place(argument), message)
            }
        }
    }

    fn json_step(&mut self, argument: &Argument) -> Option<Step> {
        let literal = self.literal(argument, "a key in quotes or a number")?;
        if let LiteralKind::Text(key) = &literal.kind {
            return Some(Step::Key(key.as_slice().into()));
        }
        let nth = self.int(literal)?;
        match u32::try_from(nth) {
            Ok(nth) => Some(Step::Nth(nth)),
            Err(_) => {
                let message = format!("place {nth} is outside 0..{}", u32::MAX);
                self.fault(literal.at, message)
            }
        }
    }
}

/// What the arguments behind the first say.
enum More {
    Nothing,
    Text(Text),
    Bytes(Vec<u8>),
    Decode(decode::Options),
    Range(i64, Option<i64>),
    Bits(u32, u32),
    Path(Box<[Step]>),
}

fn argument_place(argument: &Argument) -> Span {
    match argument {
        Argument::Value(value) => value.at,
        Argument::Literal(literal) => literal.at,
        Argument::Expression(_, at) => *at,
    }
}
