//! Where inside a text of the file something stands.
//!
//! A condition is a language of its own, whose faults have columns of their own. Most are written on
//! one line, in one of the three ways of YAML, and then the place in the file follows from the place
//! in the condition; for any other the beginning of the text has to do.

use super::tree::Position;

/// The place of the character that `skip` others of `value` stand before, where `value` is the text
/// that begins at `at` in `source`.
pub(super) fn inside(source: &str, at: Position, value: &str, skip: usize) -> Position {
    found(source, at, value, skip).unwrap_or(at)
}

fn found(source: &str, at: Position, value: &str, skip: usize) -> Option<Position> {
    let mut lines = source.lines().skip(at.line.checked_sub(1)? as usize);
    let line = lines.next()?;
    let written: Vec<char> = line
        .chars()
        .skip(at.column.checked_sub(1)? as usize)
        .collect();
    let before = value.chars().take(skip);
    let columns = match written.first()? {
        '"' => 1 + escaped(&written[1..], before)?,
        '\'' => 1 + doubled(&written[1..], before)?,
        '|' => return literal(lines, at, before.collect()),
        _ => verbatim(&written, before)?,
    };
    Some(Position {
        column: at.column + u32::try_from(columns).ok()?,
        ..at
    })
}

/// How many characters of `written` are the text `before`, which stands there as it is.
fn verbatim(written: &[char], before: impl Iterator<Item = char>) -> Option<usize> {
    let mut columns = 0;
    for wanted in before {
        if *written.get(columns)? != wanted {
            return None;
        }
        columns += 1;
    }
    Some(columns)
}

/// The same in single quotes, which stand twice for one.
fn doubled(written: &[char], before: impl Iterator<Item = char>) -> Option<usize> {
    let mut columns = 0;
    for wanted in before {
        if *written.get(columns)? != wanted {
            return None;
        }
        columns += if wanted == '\'' { 2 } else { 1 };
    }
    Some(columns)
}

/// The same in double quotes, with escapes.
fn escaped(written: &[char], before: impl Iterator<Item = char>) -> Option<usize> {
    let mut columns = 0;
    for wanted in before {
        let len = match (*written.get(columns)?, written.get(columns + 1)) {
            ('\\', Some('x')) => 4,
            ('\\', Some('u')) => 6,
            ('\\', Some('U')) => 10,
            ('\\', Some(_)) => 2,
            (plain, _) if plain == wanted => 1,
            _ => return None,
        };
        columns += len;
    }
    Some(columns)
}

/// The same in a block that is kept line by line. Its indentation is that of its first line.
fn literal<'s>(
    lines: impl Iterator<Item = &'s str>,
    at: Position,
    before: String,
) -> Option<Position> {
    let below = before.matches('\n').count();
    let lines: Vec<&str> = lines.take(below + 1).collect();
    let indent = lines.first()?.len() - lines.first()?.trim_start_matches(' ').len();
    let written: Vec<char> = lines.get(below)?.chars().skip(indent).collect();
    let last = before.rsplit('\n').next()?;
    let columns = verbatim(&written, last.chars())?;
    Some(Position {
        line: at.line + 1 + u32::try_from(below).ok()?,
        column: u32::try_from(indent + columns).ok()? + 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The place of the first `@` of `value`, which is that of the last one in `source`.
    fn check(source: &str, line: u32, column: u32, value: &str) {
        let skip = value.chars().position(|c| c == '@').expect("a mark");
        let at = Position { line, column };
        let place = inside(source, at, value, skip);
        let expected = source
            .lines()
            .zip(1..)
            .filter_map(|(text, line)| Some((line, text.chars().position(|c| c == '@')? + 1)));
        let (line, column) = expected.last().expect("a mark");
        let column = u32::try_from(column).expect("small");
        assert_eq!(place, Position { line, column }, "{source}");
    }

    #[test]
    fn a_place_is_found_however_the_text_is_written() {
        check("a: höst @ b", 1, 4, "höst @ b");
        check("a: 'it''s @'", 1, 4, "it's @");
        check(r#"{"a": "say \"x\" \u00e9 @"}"#, 1, 7, "say \"x\" é @");
        check("b: 1\na: |\n  one\n  two @ x\n", 2, 4, "one\ntwo @ x\n");
    }

    #[test]
    fn what_is_not_found_begins_where_the_text_does() {
        let at = Position { line: 1, column: 4 };
        for (source, value) in [
            ("a: >\n  one\n  two", "one two"),
            ("a: one\n  two", "one two"),
            ("a: \"x", "xyz long"),
            ("", "x"),
            ("a: ${X}", "something"),
        ] {
            assert_eq!(
                inside(source, at, value, value.chars().count()),
                at,
                "{source}"
            );
        }
    }
}
