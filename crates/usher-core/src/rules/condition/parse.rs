//! From text to a tree, by recursive descent.
//!
//! The language needs one token of look-ahead, so a parser written out is shorter than a grammar
//! and can say what it expected. Every step into a bracket, a call or a `not` counts as a level, and
//! levels are bounded, so no text can exhaust the stack; chains of `and` and `or` are flat lists.
//! The first mistake ends the parse: what follows a mistake in the form is guesswork.

use super::fault::{At, Span};
use super::lex::{self, Token};
use super::tree::{
    Argument, Comparison, Expression, Index, Join, Literal, LiteralKind, Order, Value, With,
};

/// Levels of brackets, calls and `not`. The same as in the hosted service.
pub const NESTING_MAX: usize = 128;

pub(super) fn parse(text: &str) -> Result<Expression, At> {
    let mut parser = Parser {
        text,
        at: 0,
        level: 0,
    };
    let whole = parser.chain(&Join::ALL)?;
    match parser.peek()? {
        (Token::End, _) => Ok(whole),
        (Token::Sign(")"), span) => Err(At::new(span, "\")\" closes nothing")),
        (other, span) => {
            let message = format!("expected \"and\", \"or\", \"xor\" or the end, found {other}");
            Err(At::new(span, message))
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    level: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Result<(Token<'a>, Span), At> {
        lex::token(self.text, self.at)
    }

    fn next(&mut self) -> Result<(Token<'a>, Span), At> {
        let (token, span) = self.peek()?;
        self.at = span.end;
        Ok((token, span))
    }

    /// Takes the next token if it is one of `these`.
    fn take(&mut self, these: &[Token<'_>]) -> Result<Option<Span>, At> {
        let (token, span) = self.peek()?;
        let taken = these.contains(&token);
        if taken {
            self.at = span.end;
        }
        Ok(taken.then_some(span))
    }

    fn expect(&mut self, sign: &'static str, why: &str) -> Result<Span, At> {
        match self.next()? {
            (Token::Sign(found), span) if found == sign => Ok(span),
            (other, span) => {
                let message = format!("expected {sign:?} {why}, found {other}");
                Err(At::new(span, message))
            }
        }
    }

    fn nested<T>(
        &mut self,
        at: Span,
        inside: impl FnOnce(&mut Self) -> Result<T, At>,
    ) -> Result<T, At> {
        if self.level == NESTING_MAX {
            let message = format!("nested more than {NESTING_MAX} levels deep");
            return Err(At::new(at, message));
        }
        self.level += 1;
        let result = inside(self);
        self.level -= 1;
        result
    }

    /// `joins` from the loosest to the tightest.
    fn chain(&mut self, joins: &[Join]) -> Result<Expression, At> {
        let Some((&join, tighter)) = joins.split_first() else {
            return self.unary();
        };
        let first = self.chain(tighter)?;
        let words = [Token::Word(join.word()), Token::Sign(join.sign())];
        let mut all = Vec::new();
        while self.take(&words)?.is_some() {
            all.push(self.chain(tighter)?);
        }
        if all.is_empty() {
            return Ok(first);
        }
        all.insert(0, first);
        Ok(Expression::Chain(join, all))
    }

    fn unary(&mut self) -> Result<Expression, At> {
        if let Some(span) = self.take(&[Token::Word("not"), Token::Sign("!")])? {
            let inner = self.nested(span, Self::unary)?;
            return Ok(Expression::Not(Box::new(inner)));
        }
        if let Some(span) = self.take(&[Token::Sign("(")])? {
            let inner = self.nested(span, |parser| parser.chain(&Join::ALL))?;
            self.expect(")", "to close the bracket")?;
            return Ok(inner);
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<Expression, At> {
        let (token, span) = self.next()?;
        let name = match token {
            Token::Word("true") => return Ok(Expression::Constant(true, span)),
            Token::Word("false") => return Ok(Expression::Constant(false, span)),
            Token::Word(word) if is_name(word) && !is_operator(word) => word,
            Token::Word(word) => {
                let message =
                    format!("expected a field or a function on the left side, found {word}");
                return Err(At::new(span, message));
            }
            Token::Text(_) => {
                let message = "expected a field or a function on the left side, found a string";
                return Err(At::new(span, message));
            }
            other @ (Token::Sign(_) | Token::End) => {
                let message = format!("expected a field, a function or \"(\", found {other}");
                return Err(At::new(span, message));
            }
        };
        let value = self.value(name, span)?;
        match self.operator()? {
            Some((at, with)) => Ok(Expression::Compare(value, Comparison { at, with })),
            None => Ok(Expression::Bare(value)),
        }
    }

    /// What follows the name of a field or function.
    fn value(&mut self, name: &str, name_at: Span) -> Result<Value, At> {
        let arguments = match self.take(&[Token::Sign("(")])? {
            Some(open) => Some(self.nested(open, |parser| parser.arguments(name))?),
            None => None,
        };
        let mut indexes = Vec::new();
        while let Some(open) = self.take(&[Token::Sign("[")])? {
            let index = self.index()?;
            let close = self.expect("]", "after the index")?;
            indexes.push((index, open.to(close)));
        }
        let end = self.at;
        Ok(Value {
            at: name_at.to(Span { start: end, end }),
            name: name.to_owned(),
            name_at,
            arguments,
            indexes,
        })
    }

    fn index(&mut self) -> Result<Index, At> {
        let (token, span) = self.next()?;
        match token {
            Token::Text(key) => Ok(Index::Key(key)),
            Token::Sign("*") => Ok(Index::Each),
            Token::Word(word) => match integer(word).map(u32::try_from) {
                Ok(Ok(nth)) => Ok(Index::Nth(nth)),
                Ok(Err(_)) | Err(_) => {
                    let message = format!(
                        "expected a key in quotes, a number from 0 to {} or *, found {word}",
                        u32::MAX
                    );
                    Err(At::new(span, message))
                }
            },
            other @ (Token::Sign(_) | Token::End) => {
                let message = format!("expected a key in quotes, a number or *, found {other}");
                Err(At::new(span, message))
            }
        }
    }

    fn arguments(&mut self, function: &str) -> Result<Vec<Argument>, At> {
        let mut all = Vec::new();
        if self.take(&[Token::Sign(")")])?.is_some() {
            return Ok(all);
        }
        loop {
            all.push(self.argument(function)?);
            match self.next()? {
                (Token::Sign(")"), _) => return Ok(all),
                (Token::Sign(","), _) => {}
                (other, span) => {
                    let message = format!("expected \",\" or \")\" in the call, found {other}");
                    return Err(At::new(span, message));
                }
            }
        }
    }

    fn argument(&mut self, function: &str) -> Result<Argument, At> {
        if function == "any" || function == "all" {
            let start = self.peek()?.1;
            let inner = self.chain(&Join::ALL)?;
            let end = self.at;
            return Ok(Argument::Expression(
                inner,
                start.to(Span { start: end, end }),
            ));
        }
        let (token, at) = self.next()?;
        match token {
            Token::Word(word) if is_name(word) && !matches!(word, "true" | "false") => {
                Ok(Argument::Value(self.value(word, at)?))
            }
            Token::Word(word) => {
                let kind = LiteralKind::Word(word.to_owned());
                Ok(Argument::Literal(Literal { at, kind }))
            }
            Token::Text(text) => {
                let kind = LiteralKind::Text(text);
                Ok(Argument::Literal(Literal { at, kind }))
            }
            other @ (Token::Sign(_) | Token::End) => {
                let message = format!("expected an argument, found {other}");
                Err(At::new(at, message))
            }
        }
    }

    /// The operator that may follow a value, with its right side.
    fn operator(&mut self) -> Result<Option<(Span, With)>, At> {
        let (token, mut span) = self.peek()?;
        let (Token::Word(word) | Token::Sign(word)) = token else {
            return Ok(None);
        };
        let order = Order::ALL
            .into_iter()
            .find(|order| word == order.word() || word == order.sign());
        let known = order.is_some() || is_operator(word);
        if !known || Join::ALL.iter().any(|join| join.word() == word) || word == "not" {
            return Ok(None);
        }
        self.at = span.end;
        if let Some(order) = order {
            return Ok(Some((span, With::Order(order, self.literal()?))));
        }
        let with = match word {
            "contains" => With::Contains(self.literal()?),
            "wildcard" => With::Wildcard {
                strict: false,
                pattern: self.literal()?,
            },
            "strict" => {
                let (token, end) = self.next()?;
                if token != Token::Word("wildcard") {
                    let message = format!("expected \"wildcard\" after \"strict\", found {token}");
                    return Err(At::new(end, message));
                }
                span = span.to(end);
                With::Wildcard {
                    strict: true,
                    pattern: self.literal()?,
                }
            }
            "in" => With::In(self.set()?),
            _ => {
                let (pattern, at) = lex::regex(self.text, self.at)?;
                self.at = at.end;
                With::Matches { pattern, at }
            }
        };
        Ok(Some((span, with)))
    }

    fn literal(&mut self) -> Result<Literal, At> {
        let (token, at) = self.next()?;
        let kind = match token {
            Token::Text(text) => LiteralKind::Text(text),
            Token::Word(word) => LiteralKind::Word(word.to_owned()),
            other @ (Token::Sign(_) | Token::End) => {
                let message = format!("expected a value on the right side, found {other}");
                return Err(At::new(at, message));
            }
        };
        Ok(Literal { at, kind })
    }

    fn set(&mut self) -> Result<Vec<Literal>, At> {
        if let Some(dollar) = self.take(&[Token::Sign("$")])? {
            let (name, end) = self.peek()?;
            let message = match name {
                Token::Word(name) => {
                    format!("list ${name}: lists are not supported in load balancing rules")
                }
                Token::Text(_) | Token::Sign(_) | Token::End => {
                    "lists are not supported in load balancing rules".to_owned()
                }
            };
            return Err(At::new(dollar.to(end), message));
        }
        self.expect("{", "to open the set")?;
        let mut all = Vec::new();
        loop {
            let (token, at) = self.next()?;
            let kind = match token {
                Token::Sign("}") => return Ok(all),
                Token::Text(text) => LiteralKind::Text(text),
                Token::Word(word) => LiteralKind::Word(word.to_owned()),
                Token::Sign(",") => {
                    let message = "values of a set are separated by blanks, not by commas";
                    return Err(At::new(at, message));
                }
                other @ (Token::Sign(_) | Token::End) => {
                    let message = format!("expected a value or \"}}\" in the set, found {other}");
                    return Err(At::new(at, message));
                }
            };
            all.push(Literal { at, kind });
        }
    }
}

/// Whether a word can name a field or a function.
fn is_name(word: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.';
    word.starts_with(|first: char| first.is_ascii_alphabetic()) && word.bytes().all(inside)
}

/// Words and signs that stand between values.
fn is_operator(word: &str) -> bool {
    const OTHERS: [&str; 7] = [
        "contains", "matches", "~", "wildcard", "strict", "in", "not",
    ];
    OTHERS.contains(&word)
        || Order::ALL.iter().any(|order| order.word() == word)
        || Join::ALL.iter().any(|join| join.word() == word)
}

/// A whole number: decimal, `0x` hexadecimal, or octal with a leading zero, as in the service.
pub(super) fn integer(word: &str) -> Result<i64, &'static str> {
    let (sign, digits) = match word.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, word),
    };
    let (radix, digits) = match digits.strip_prefix("0x") {
        Some(digits) => (16, digits),
        None if digits.len() > 1 && digits.starts_with('0') => (8, &digits[1..]),
        None => (10, digits),
    };
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Err("is not an integer");
    }
    let outside = "is outside -9223372036854775808..9223372036854775807";
    let magnitude = i128::from_str_radix(digits, radix).map_err(|_| outside)?;
    i64::try_from(sign * magnitude).map_err(|_| outside)
}
