//! HTTP/1 messages as a test sees them: nothing merged, nothing normalised.

use std::fmt;

/// One message: its head as it stood on the wire, its body with the framing taken off.
#[derive(Clone, Default)]
pub struct Message {
    /// Request line or status line, without its line end.
    pub start: String,
    /// Field lines in their order, names as they were spelled.
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
}

impl Message {
    /// Parses a head that ends with an empty line.
    pub fn of_head(head: &[u8]) -> Self {
        let text = String::from_utf8_lossy(head);
        let mut lines = text.split("\r\n");
        let start = lines.next().unwrap_or_default().to_owned();
        Self {
            start,
            fields: fields_of(lines),
            ..Self::default()
        }
    }

    /// The status code of a response.
    pub fn status(&self) -> u16 {
        self.start
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .unwrap_or_else(|| panic!("no status line: {:?}", self.start))
    }

    /// The method of a request.
    pub fn method(&self) -> &str {
        self.start.split(' ').next().unwrap_or_default()
    }

    /// The target of a request, as it was sent.
    pub fn target(&self) -> &str {
        self.start.split(' ').nth(1).unwrap_or_default()
    }

    /// The value of a field that must stand there at most once.
    pub fn field(&self, name: &str) -> Option<&str> {
        let values = self.fields_named(name);
        assert!(
            values.len() < 2,
            "{name} stands there {} times: {self:?}",
            values.len()
        );
        values.first().copied()
    }

    /// Every value of a field, in order.
    pub fn fields_named(&self, name: &str) -> Vec<&str> {
        self.fields
            .iter()
            .filter(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
            .collect()
    }

    /// True when the field holds the token in its comma-separated list.
    pub fn names(&self, field: &str, token: &str) -> bool {
        self.fields_named(field)
            .iter()
            .flat_map(|value| value.split(','))
            .any(|found| found.trim().eq_ignore_ascii_case(token))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.start)?;
        for (name, value) in &self.fields {
            writeln!(f, "{name}: {value}")?;
        }
        let shown = &self.body[..self.body.len().min(500)];
        write!(f, "\n{}", String::from_utf8_lossy(shown))
    }
}

/// Field lines up to the empty one.
pub fn fields_of<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<(String, String)> {
    lines
        .take_while(|line| !line.is_empty())
        .map(|line| {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            (name.to_owned(), value.trim().to_owned())
        })
        .collect()
}
