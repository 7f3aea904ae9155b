//! What rules and pins change in the heads of a request and of its answer on their way.
//!
//! Most exchanges change nothing, and then nothing here allocates.

use http::{HeaderMap, HeaderName, HeaderValue};
use usher_core::affinity::{Pin, PinKey};
use usher_core::rules::{Edit, Transform, Values};

use super::client::Answer;
use super::pin_table::PinTable;
use super::rooms::visit::Visit;
use crate::http1::EncodeFault;

/// Changes of header fields: each name once, with the value that it has in the end.
#[derive(Debug, Default)]
pub(crate) struct Edits(Vec<(String, Option<String>)>);

impl Edits {
    /// Adds an edit to be done after those that are there.
    fn push(&mut self, edit: Edit<'_>) {
        let (name, value) = match edit {
            Edit::Set(name, value) => (name, Some(value.into_owned())),
            Edit::Remove(name) => (name, None),
        };
        self.put(name, value);
    }

    fn put(&mut self, name: &str, value: Option<String>) {
        self.0
            .retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self.0.push((name.to_owned(), value));
    }

    fn touches(&self, name: &[u8]) -> bool {
        let is = |(known, _): &(String, _)| name.eq_ignore_ascii_case(known.as_bytes());
        self.0.iter().any(is)
    }

    fn added(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let all = self.0.iter();
        all.filter_map(|(name, value)| Some((name.as_bytes(), value.as_ref()?.as_bytes())))
    }

    /// Does the edits to whole header lines in HTTP/1 form: those from `from` on.
    pub(crate) fn apply_to_lines(&self, out: &mut Vec<u8>, from: usize) {
        if self.0.is_empty() {
            return;
        }
        let mut kept = from;
        let mut at = from;
        while at < out.len() {
            let end = memchr::memchr(b'\n', &out[at..]).map_or(out.len(), |len| at + len + 1);
            let name = memchr::memchr(b':', &out[at..end]).map_or(end, |len| at + len);
            if !self.touches(&out[at..name]) {
                out.copy_within(at..end, kept);
                kept += end - at;
            }
            at = end;
        }
        out.truncate(kept);
        for (name, value) in self.added() {
            for piece in [name, b": ", value, b"\r\n"] {
                out.extend_from_slice(piece);
            }
        }
    }
}

/// Changes of a request towards its endpoint.
#[derive(Debug, Default)]
pub(crate) struct RequestChanges {
    pub(crate) edits: Edits,
    /// Another path and query.
    pub(crate) uri: Option<String>,
}

impl RequestChanges {
    /// What `transforms` ask for, the later ones over the earlier.
    pub(crate) fn of<'t>(
        transforms: impl Iterator<Item = &'t Transform>,
        values: &Values<'_>,
    ) -> RequestChanges {
        let mut changes = RequestChanges::default();
        for transform in transforms {
            transform
                .request_edits(values)
                .for_each(|edit| changes.edits.push(edit));
            // `OPTIONS *` has no path.
            if values.uri.starts_with('/') {
                changes.uri = transform.rewritten(values).or(changes.uri);
            }
        }
        changes
    }
}

/// Changes of an answer towards the visitor, and what it brings about here.
#[derive(Debug, Default)]
pub(crate) struct AnswerChanges<'a> {
    edits: Edits,
    /// The value of a `Set-Cookie` of our own; those of the endpoint stay.
    pub(crate) set_cookie: Option<String>,
    /// A pin that is kept from the answer on.
    pub(crate) remember: Option<(&'a PinTable, PinKey, Pin)>,
}

/// No change.
pub(crate) static UNCHANGED: AnswerChanges<'static> = AnswerChanges {
    edits: Edits(Vec::new()),
    set_cookie: None,
    remember: None,
};

impl AnswerChanges<'_> {
    /// What `transforms` ask for, the later ones over the earlier. `values` name who serves.
    pub(crate) fn of<'t>(
        transforms: impl Iterator<Item = &'t Transform>,
        values: &Values<'_>,
    ) -> AnswerChanges<'static> {
        let mut changes = AnswerChanges::default();
        for transform in transforms {
            transform
                .response_edits(values)
                .for_each(|edit| changes.edits.push(edit));
        }
        changes
    }

    /// Says in `header` which endpoint of which pool served.
    pub(crate) fn name_endpoint(&mut self, header: &str, pool: &str, endpoint: &str) {
        let value = format!("{pool}/{endpoint}");
        // A name that cannot be a header's value is not told, and nobody else's word stands for it.
        let fits = !value.bytes().any(|byte| byte.is_ascii_control());
        self.edits.put(header, fits.then_some(value));
    }

    /// The endpoint has answered. Called before the client can know, so that its next request
    /// finds what this one brought about, whichever worker it comes to.
    pub(crate) fn take_effect(&self) {
        if let Some((table, key, pin)) = self.remember {
            table.remember(key, pin);
        }
    }

    fn over<'a>(&'a self, answer: &Answer<'a>) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let set_cookie = self.set_cookie.iter();
        let set_cookie = set_cookie.map(|value| (&b"set-cookie"[..], value.as_bytes()));
        answer
            .forwarded()
            .filter(|(name, _)| !self.edits.touches(name))
            .chain(self.edits.added())
            .chain(set_cookie)
    }

    fn apply_to(&self, fields: &mut HeaderMap) -> Result<(), EncodeFault> {
        let value = |text: &str| {
            let value = HeaderValue::from_bytes(text.as_bytes());
            value.map_err(|_| EncodeFault::FieldValue)
        };
        for (name, set) in &self.edits.0 {
            let name = HeaderName::from_bytes(name.as_bytes());
            let name = name.map_err(|_| EncodeFault::FieldName)?;
            match set {
                Some(text) => drop(fields.insert(name, value(text)?)),
                None => drop(fields.remove(name)),
            }
        }
        if let Some(text) = &self.set_cookie {
            fields.append(http::header::SET_COOKIE, value(text)?);
        }
        Ok(())
    }
}

/// All that is different in the head of an answer that goes on to the client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Changes<'a> {
    /// What rules and pins change.
    pub(crate) answer: &'a AnswerChanges<'a>,
    /// What a waiting room does.
    pub(crate) visit: Option<&'a Visit<'a>>,
}

impl<'a> Changes<'a> {
    /// The fields of `answer` that go on to the client, changed.
    pub(crate) fn over(self, answer: &Answer<'a>) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let visit = self.visit;
        let hidden = move |name: &[u8]| visit.is_some_and(|visit| visit.hides(name));
        let fields = self.answer.over(answer);
        let added = visit.into_iter().flat_map(Visit::added);
        fields.filter(move |(name, _)| !hidden(name)).chain(added)
    }

    /// The same to fields as HTTP/2 has them.
    ///
    /// # Errors
    /// A name or value is not that of a field.
    pub(crate) fn apply_to(self, fields: &mut HeaderMap) -> Result<(), EncodeFault> {
        self.answer.apply_to(fields)?;
        match self.visit {
            Some(visit) => visit.apply_to(fields),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edits(all: &[(&str, Option<&str>)]) -> Edits {
        let mut edits = Edits::default();
        for (name, value) in all {
            edits.put(name, value.map(str::to_owned));
        }
        edits
    }

    fn applied(all: &[(&str, Option<&str>)], lines: &str) -> String {
        let mut out = b"GET / HTTP/1.1\r\n".to_vec();
        let from = out.len();
        out.extend_from_slice(lines.as_bytes());
        edits(all).apply_to_lines(&mut out, from);
        String::from_utf8(out.split_off(from)).expect("text")
    }

    #[test]
    fn a_later_edit_of_a_name_replaces_the_earlier() {
        let all = [("X-A", Some("1")), ("b", Some("2")), ("x-a", None)];
        assert_eq!(
            edits(&all).0,
            [
                ("b".to_owned(), Some("2".to_owned())),
                ("x-a".to_owned(), None)
            ]
        );
    }

    #[test]
    fn every_line_of_a_name_is_replaced_and_the_others_stay_in_order() {
        let lines = "X-A: 1\r\nAccept: */*\r\nx-a: 2\r\nX-AB: 3\r\n";
        assert_eq!(applied(&[], lines), lines);
        assert_eq!(
            applied(&[("x-a", Some("new")), ("accept", None)], lines),
            "X-AB: 3\r\nx-a: new\r\n"
        );
        assert_eq!(applied(&[("x-b", Some(""))], ""), "x-b: \r\n");
    }
}
