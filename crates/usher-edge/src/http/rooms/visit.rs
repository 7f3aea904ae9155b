//! What a room does to the answer of an endpoint: the visitor's cookie goes along, the endpoint's
//! word to the room does not, and no shared cache keeps somebody's cookie.

use http::{HeaderMap, HeaderName, HeaderValue};
use usher_rooms::cookie::{TOKEN, token_in};
use usher_rooms::door::Pass;

use super::Room;
use crate::http::client::Answer;
use crate::http1::EncodeFault;

/// By this an endpoint ends the seat of the visitor that it answers.
const COMMAND: &str = "cf-waiting-room-command";

/// Fields that speak to shared caches alone, and louder than `Cache-Control`.
const TARGETED: [&str; 3] = [
    "cdn-cache-control",
    "cloudflare-cdn-cache-control",
    "surrogate-control",
];

/// A request of a room's path on its way to an endpoint.
#[derive(Debug)]
pub(crate) struct Visit<'a> {
    room: &'a Room,
    /// The seat that it passed by; `None` where the room had no part in it.
    pass: Option<Pass>,
    /// It is a program's, which takes no cookies.
    by_token: bool,
    /// What is given to the visitor, and what shared caches are told then.
    given: Option<Given>,
}

#[derive(Debug)]
struct Given {
    set_cookie: String,
    cache_control: String,
}

impl<'a> Visit<'a> {
    pub(crate) fn new(room: &'a Room, pass: Option<Pass>, by_token: bool) -> Visit<'a> {
        Visit {
            room,
            pass,
            by_token,
            given: None,
        }
    }

    /// The head of the endpoint's answer is here.
    pub(crate) fn answered(&mut self, answer: &Answer<'_>) {
        let Some(pass) = &mut self.pass else { return };
        let mut command = answer.forwarded().filter(|(name, _)| is(name, COMMAND));
        let command = command.next().map(|(_, value)| value);
        let Some(set_cookie) = self.room.door.answered(pass, command) else {
            return;
        };
        let lines = answer
            .forwarded()
            .filter(|(name, _)| is(name, "cache-control"));
        self.given = Some(Given {
            set_cookie,
            cache_control: private(lines.map(|(_, value)| value)),
        });
    }

    /// The cookie that goes with an answer of our own.
    pub(crate) fn refused(&mut self) -> Option<String> {
        self.room.door.answered(self.pass.as_mut()?, None)
    }

    /// Whether the visitor's cookie was an old copy.
    pub(crate) fn copy_seen(&self) -> bool {
        self.pass.as_ref().is_some_and(|pass| pass.copy_seen)
    }

    /// The answer is out, or broke off.
    pub(crate) fn over(&self) {
        if let Some(pass) = &self.pass {
            self.room.door.over(pass);
        }
    }

    /// Whether a field of the answer does not go on.
    pub(crate) fn hides(&self, name: &[u8]) -> bool {
        let replaced = || is(name, "cache-control") || TARGETED.iter().any(|known| is(name, known));
        is(name, COMMAND) || (self.given.is_some() && replaced())
    }

    /// Fields that go along.
    pub(crate) fn added(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.given.iter().flat_map(|given| {
            let set_cookie = given.set_cookie.as_str();
            let token = self.by_token.then(|| (TOKEN, token_in(set_cookie)));
            let always = [
                ("cache-control", given.cache_control.as_str()),
                ("set-cookie", set_cookie),
            ];
            let all = always.into_iter().chain(token);
            all.map(|(name, value)| (name.as_bytes(), value.as_bytes()))
        })
    }

    /// The same to fields as HTTP/2 has them.
    ///
    /// # Errors
    /// A value is not that of a field.
    pub(crate) fn apply_to(&self, fields: &mut HeaderMap) -> Result<(), EncodeFault> {
        fields.remove(COMMAND);
        if self.given.is_some() {
            fields.remove(http::header::CACHE_CONTROL);
            TARGETED.iter().for_each(|name| drop(fields.remove(*name)));
        }
        for (name, value) in self.added() {
            let name = HeaderName::from_bytes(name).map_err(|_| EncodeFault::FieldName)?;
            let value = HeaderValue::from_bytes(value).map_err(|_| EncodeFault::FieldValue)?;
            fields.append(name, value);
        }
        Ok(())
    }
}

fn is(name: &[u8], known: &str) -> bool {
    name.eq_ignore_ascii_case(known.as_bytes())
}

/// These values of `Cache-Control`, so that only the visitor's own cache may keep the answer.
fn private<'v>(lines: impl Iterator<Item = &'v [u8]>) -> String {
    let mut kept: Vec<String> = Vec::new();
    let mut private = false;
    for directive in lines.flat_map(|line| line.split(|&byte| byte == b',')) {
        let directive = String::from_utf8_lossy(directive.trim_ascii()).into_owned();
        let name = directive.split('=').next().unwrap_or_default().trim();
        match name.to_ascii_lowercase().as_str() {
            "" | "public" | "s-maxage" | "proxy-revalidate" => continue,
            "no-store" => private = true,
            // With names behind it, it speaks of these fields alone.
            "private" => private |= directive.len() == name.len(),
            _ => {}
        }
        kept.push(directive);
    }
    if !private {
        kept.insert(0, "private".to_owned());
    }
    kept.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_else_keeps_an_answer_with_a_cookie() {
        let rows: [(&[&str], &str); 8] = [
            (&[], "private"),
            (&["public, max-age=60"], "private, max-age=60"),
            (&["max-age=60, S-MaxAge=600"], "private, max-age=60"),
            (&["private, max-age=60"], "private, max-age=60"),
            (&["no-store"], "no-store"),
            (
                &["max-age=60", "immutable"],
                "private, max-age=60, immutable",
            ),
            (
                &["private=\"set-cookie\""],
                "private, private=\"set-cookie\"",
            ),
            (&[" , Public ,"], "private"),
        ];
        for (lines, expected) in rows {
            let lines = lines.iter().map(|line| line.as_bytes());
            assert_eq!(private(lines), expected);
        }
    }
}
