//! `${VAR}` in the texts of a configuration file.
//!
//! It is replaced inside one scalar after the file is parsed, so what a variable holds can never
//! add a key or end a list.

/// Replaces every `${VAR}` and `${VAR:-default}` in `text` by what `lookup` knows.
///
/// The default counts when the variable is not set or empty, as in a shell. `$${` stands for the
/// two characters `${`; any other `$` stands for itself.
///
/// # Errors
/// What is wrong with the first reference that cannot be replaced.
pub(super) fn expand(
    text: &str,
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, from) = rest.split_at(start);
        if let Some(literal) = before.strip_suffix('$') {
            expanded.push_str(literal);
            expanded.push_str("${");
            rest = &from[2..];
            continue;
        }
        expanded.push_str(before);
        let Some(end) = from.find('}') else {
            return Err("\"${\" has no closing \"}\"; a literal \"${\" is written \"$${\"".into());
        };
        let reference = &from[2..end];
        let (name, default) = match reference.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (reference, None),
        };
        if !is_name(name) {
            return Err(format!(
                "{name:?} in \"${{...}}\" is not the name of a variable"
            ));
        }
        let value = match (lookup(name), default) {
            (None, None) => return Err(format!("environment variable {name} is not set")),
            (None, Some(default)) => default.to_owned(),
            (Some(value), Some(default)) if value.is_empty() => default.to_owned(),
            (Some(value), _) => value,
        };
        expanded.push_str(&value);
        rest = &from[end + 1..];
    }
    expanded.push_str(rest);
    Ok(expanded)
}

fn is_name(text: &str) -> bool {
    let letter = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
    text.as_bytes().first().is_some_and(letter)
        && text
            .bytes()
            .all(|byte| letter(&byte) || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&str, &str>) {
        let lookup = |name: &str| match name {
            "HOST" => Some("example.com".to_owned()),
            "EMPTY" => Some(String::new()),
            "ODD" => Some("${HOST}: [".to_owned()),
            _ => None,
        };
        let found = expand(text, lookup);
        assert_eq!(found.as_deref().map_err(String::as_str), expected, "{text}");
    }

    #[test]
    fn references_are_replaced() {
        check("plain $ text $1 {x}", Ok("plain $ text $1 {x}"));
        check("a.${HOST}:${PORT:-80}", Ok("a.example.com:80"));
        check("${HOST}${HOST}", Ok("example.comexample.com"));
        check("<${EMPTY}>", Ok("<>"));
        check("${EMPTY:-x}${NONE:-}", Ok("x"));
        check("${NONE:-a:-b}", Ok("a:-b"));
    }

    #[test]
    fn what_a_variable_holds_is_not_looked_at_again() {
        check("${ODD}", Ok("${HOST}: ["));
    }

    #[test]
    fn a_doubled_dollar_is_literal() {
        check("$${HOST}", Ok("${HOST}"));
        check("$$${HOST}", Ok("$${HOST}"));
        check("$${ ${HOST}", Ok("${ example.com"));
    }

    #[test]
    fn what_cannot_be_replaced_is_named() {
        check("${NONE}", Err("environment variable NONE is not set"));
        check(
            "x ${HOST",
            Err("\"${\" has no closing \"}\"; a literal \"${\" is written \"$${\""),
        );
        for (text, name) in [
            ("${}", ""),
            ("${1A}", "1A"),
            ("${A B}", "A B"),
            ("${A-x}", "A-x"),
        ] {
            check(
                text,
                Err(&format!(
                    "{name:?} in \"${{...}}\" is not the name of a variable"
                )),
            );
        }
    }
}
