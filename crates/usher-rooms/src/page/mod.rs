//! The built-in page.
//!
//! One document per language, read once and kept as pieces: what a visitor is sent differs only in
//! what stands between them. All texts are chosen here and none in the script, so that the page
//! without a script, the page with one and the answer to its polls say the same; the script puts
//! what it is told where it belongs and knows no language.
//!
//! The page asks nobody but `/cdn-cgi/waitingroom/` on its own host: it has to stand when the site
//! behind it does not.

mod preview;
mod shown;

pub use preview::{POLICY as PREVIEW_POLICY, Preview, PreviewFault, WELCOME};
pub use shown::Shown;

use std::sync::LazyLock;

use crate::json::iso;
use crate::view::View;
use crate::words::{Language, Text};

/// What a page is for, beside the [`View`].
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// Id of the room, of which the page asks the state.
    pub room: &'a str,
    /// What stands before `/cdn-cgi/waitingroom/` where the page asks: the path below which the
    /// visitor's browser sends the cookie, without a slash at its end.
    pub base: &'a str,
    /// The site, as a person knows it: its host. Empty for none.
    pub site: &'a str,
    /// Random for each page, at least 16 characters of base64url; the policy names it.
    pub nonce: &'a str,
    /// False when the request was more than a reading one: then the page does not repeat it, and
    /// offers a link instead.
    pub repeatable: bool,
    /// True when the page may keep a stream open, to be called at once.
    pub stream: bool,
    /// True when the visitor has no place yet: the page then asks for one.
    pub newcomer: bool,
}

/// `Content-Security-Policy` of the built-in page with this nonce.
#[must_use]
pub fn policy(nonce: &str) -> String {
    format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
         img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'"
    )
}

/// Writes the page behind what `out` holds.
pub fn write(view: &View<'_>, language: Language, facts: &Facts<'_>, out: &mut Vec<u8>) {
    static PAGES: LazyLock<Vec<Vec<Piece>>> =
        LazyLock::new(|| Language::ALL.into_iter().map(pieces).collect());
    let shown = Shown::of(view, language);
    out.reserve(BYTES_TYPICAL);
    for piece in &PAGES[language as usize] {
        match piece {
            Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
            Piece::Slot(slot) => slot.write(view, &shown, facts, out),
        }
    }
}

/// A page is about this long.
const BYTES_TYPICAL: usize = 12 << 10;

/// A part of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    /// The same for everybody who reads the language.
    Text(String),
    /// Different for each visitor.
    Slot(Slot),
}

macro_rules! slots {
    ($($variant:ident $name:literal,)*) => {
        /// What differs from visitor to visitor.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Slot {
            $($variant,)*
        }

        impl Slot {
            fn of(name: &str) -> Option<Slot> {
                match name {
                    $($name => Some(Slot::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

slots! {
    Nonce "nonce",
    NoScript "noscript",
    Room "room",
    Base "base",
    Refresh "refresh",
    Stage "stage",
    Options "options",
    Site "site",
    Title "title",
    Heading "heading",
    Lead "lead",
    Place "place",
    PlaceHidden "place.hidden",
    Wait "wait",
    WaitHidden "wait.hidden",
    Latest "latest",
    LatestHidden "latest.hidden",
    Starts "starts",
    StartsHidden "starts.hidden",
    EnterBy "enter_by",
    EnterByHidden "enter_by.hidden",
    Moved "moved",
    MovedHidden "moved.hidden",
    Notice "notice",
    NoticeHidden "notice.hidden",
    LinkHidden "link.hidden",
}

impl Slot {
    fn write(self, view: &View<'_>, shown: &Shown<'_>, facts: &Facts<'_>, out: &mut Vec<u8>) {
        let hidden = |hide: bool, out: &mut Vec<u8>| {
            if hide {
                out.extend_from_slice(b" hidden");
            }
        };
        let moment = |moment: Option<usher_core::time::Wall>, out: &mut Vec<u8>| {
            // Without a script the visitor's clock is unknown, so the moment says whose it is.
            if let Some(text) = moment.map(iso) {
                let time = [" datetime=\"", &text, "\">", &text[11..16], " UTC"].concat();
                out.extend_from_slice(time.as_bytes());
            } else {
                out.push(b'>');
            }
        };
        match self {
            Slot::Nonce => escape(facts.nonce, out),
            Slot::NoScript if view.refresh_secs == 0 => {}
            Slot::NoScript => {
                out.extend_from_slice(b"<noscript><meta http-equiv=\"refresh\" content=\"");
                number(view.refresh_secs, out);
                out.extend_from_slice(b"\"></noscript>");
            }
            Slot::Room => escape(facts.room, out),
            Slot::Base => escape(facts.base, out),
            Slot::Refresh => number(view.refresh_secs, out),
            Slot::Stage => out.extend_from_slice(view.stage.word().as_bytes()),
            Slot::Options => {
                if !facts.repeatable {
                    out.extend_from_slice(b" data-once");
                }
                if facts.stream {
                    out.extend_from_slice(b" data-stream");
                }
                if facts.newcomer {
                    out.extend_from_slice(b" data-new");
                }
            }
            Slot::Site => escape(facts.site, out),
            Slot::Title => escape(&shown.title, out),
            Slot::Heading => escape(shown.heading, out),
            Slot::Lead => escape(shown.lead, out),
            Slot::Place => escape(&shown.place, out),
            Slot::PlaceHidden => hidden(shown.place.is_empty(), out),
            Slot::Wait => escape(&shown.wait, out),
            Slot::WaitHidden => hidden(shown.wait.is_empty(), out),
            Slot::Latest => moment(shown.latest, out),
            Slot::LatestHidden => hidden(shown.latest.is_none(), out),
            Slot::Starts => moment(shown.starts, out),
            Slot::StartsHidden => hidden(shown.starts.is_none(), out),
            Slot::EnterBy => moment(shown.enter_by, out),
            Slot::EnterByHidden => hidden(shown.enter_by.is_none(), out),
            Slot::Moved => moment(shown.moved, out),
            Slot::MovedHidden => hidden(shown.moved.is_none(), out),
            Slot::Notice => escape(shown.notice, out),
            Slot::NoticeHidden => hidden(shown.notice.is_empty(), out),
            Slot::LinkHidden => hidden(!shown.turn, out),
        }
    }
}

fn number(number: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Writes text so that it is text wherever it stands in HTML, quoted attributes counted.
pub(crate) fn escape(text: &str, out: &mut Vec<u8>) {
    let mut from = 0;
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        let entity: &[u8] = match byte {
            b'&' => b"&amp;",
            b'<' => b"&lt;",
            b'>' => b"&gt;",
            b'"' => b"&quot;",
            b'\'' => b"&#39;",
            _ => continue,
        };
        out.extend_from_slice(&bytes[from..at]);
        out.extend_from_slice(entity);
        from = at + 1;
    }
    out.extend_from_slice(&bytes[from..]);
}

/// The page of one language: the document with everything filled in that is the same for all.
/// A mark is `@{name}`: a slot, a text, or one of the files.
fn pieces(language: Language) -> Vec<Piece> {
    let words = language.words();
    let document = lean(include_str!("page.html"));
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = document.as_str();
    while let Some((before, after)) = rest.split_once("@{") {
        let (name, after) = after.split_once('}').unwrap_or((after, ""));
        text.push_str(before);
        rest = after;
        if let Some(slot) = Slot::of(name) {
            pieces.push(Piece::Text(std::mem::take(&mut text)));
            pieces.push(Piece::Slot(slot));
            continue;
        }
        match name {
            "language" => text.push_str(language.tag()),
            "direction" => text.push_str(language.direction()),
            "style" => text.push_str(&lean(include_str!("page.css"))),
            "script" => text.push_str(&lean(include_str!("page.js"))),
            name => {
                let name = name.strip_prefix("text.").unwrap_or_default();
                let known = Text::ALL.iter().find(|text| text.key() == name);
                let known = known.map(|known| words.text(*known));
                // A test holds that no mark is unknown.
                let mut escaped = Vec::new();
                escape(known.unwrap_or("@?"), &mut escaped);
                text.push_str(&String::from_utf8_lossy(&escaped));
            }
        }
    }
    text.push_str(rest);
    pieces.push(Piece::Text(text));
    pieces
}

/// Without what only we read: indents, empty lines, and lines that are comments.
fn lean(text: &str) -> String {
    let lines = text.lines().map(str::trim);
    let kept =
        lines.filter(|line| !line.is_empty() && !line.starts_with("//") && !line.starts_with("/*"));
    kept.flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests;
