//! A tree as text, for the tests: what is printed must parse to what was printed.

use super::tree::{Argument, Comparison, Expression, Index, Literal, LiteralKind, Value, With};

pub(super) fn print(expression: &Expression) -> String {
    match expression {
        Expression::Constant(constant, _) => constant.to_string(),
        Expression::Not(inner) => format!("not {}", operand(inner)),
        Expression::Chain(join, all) => {
            let parts: Vec<String> = all.iter().map(operand).collect();
            parts.join(&format!(" {} ", join.word()))
        }
        Expression::Bare(value) => print_value(value),
        Expression::Compare(value, comparison) => {
            format!("{} {}", print_value(value), print_comparison(comparison))
        }
    }
}

fn operand(expression: &Expression) -> String {
    match expression {
        Expression::Chain(..) => format!("({})", print(expression)),
        _ => print(expression),
    }
}

fn print_comparison(comparison: &Comparison) -> String {
    match &comparison.with {
        With::Order(order, literal) => format!("{} {}", order.word(), print_literal(literal)),
        With::Contains(literal) => format!("contains {}", print_literal(literal)),
        With::Matches { pattern, .. } => format!("matches r###\"{pattern}\"###"),
        With::Wildcard { strict, pattern } => format!(
            "{}wildcard {}",
            if *strict { "strict " } else { "" },
            print_literal(pattern)
        ),
        With::In(literals) => {
            let all: Vec<String> = literals.iter().map(print_literal).collect();
            format!("in {{{}}}", all.join(" "))
        }
    }
}

fn print_value(value: &Value) -> String {
    let mut text = value.name.clone();
    if let Some(arguments) = &value.arguments {
        let all: Vec<String> = arguments.iter().map(print_argument).collect();
        text += &format!("({})", all.join(", "));
    }
    for (index, _) in &value.indexes {
        text += &match index {
            Index::Key(key) => format!("[{}]", print_text(key)),
            Index::Nth(nth) => format!("[{nth}]"),
            Index::Each => "[*]".to_owned(),
        };
    }
    text
}

fn print_argument(argument: &Argument) -> String {
    match argument {
        Argument::Value(value) => print_value(value),
        Argument::Literal(literal) => print_literal(literal),
        Argument::Expression(expression, _) => print(expression),
    }
}

fn print_literal(literal: &Literal) -> String {
    match &literal.kind {
        LiteralKind::Text(text) => print_text(text),
        LiteralKind::Word(word) => word.clone(),
    }
}

fn print_text(text: &[u8]) -> String {
    let escaped: String = text
        .iter()
        .map(|&byte| match byte {
            b'"' => "\\\"".to_owned(),
            b'\\' => "\\\\".to_owned(),
            b' '..=b'~' => char::from(byte).to_string(),
            other => format!("\\x{other:02x}"),
        })
        .collect();
    format!("\"{escaped}\"")
}
