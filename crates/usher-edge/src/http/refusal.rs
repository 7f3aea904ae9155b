//! What a client gets when Usher itself must answer: a short page, JSON, or a line of text.
//!
//! Each answer says what happened, whose fault it was and what to do about it, and carries the
//! request's id, so that a visitor's screenshot leads to the line in the log. Nothing that a client
//! sent is repeated in it. The texts are put together once; an answer is one copy, because a flood
//! of refused requests must be cheaper to answer than to send.

use std::sync::LazyLock;
use std::time::SystemTime;

use usher_rooms::route::Ambiguous;

use super::forward::RequestId;

/// Whose fault a failed exchange was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Party {
    /// The client's.
    Client,
    /// Ours, or of how we are set up.
    Usher,
    /// The endpoint's.
    Endpoint,
}

/// Why an exchange ends with an answer of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Failure {
    status: u16,
    reason: &'static str,
}

impl Failure {
    /// The path can be read in two ways that belong to different waiting rooms.
    pub const AMBIGUOUS_PATH: Failure = Failure::new(400, Ambiguous::WORD);
    /// No load balancer has this host, or it is disabled.
    pub const UNKNOWN_HOST: Failure = Failure::new(404, "unknown-host");
    /// CONNECT or TRACE.
    pub const METHOD: Failure = Failure::new(405, "method-not-allowed");
    /// The head of a request took longer than `timeouts.client_header`.
    pub const HEADER_TIMEOUT: Failure = Failure::new(408, "client-header-timeout");
    /// Nothing of a request body came for `timeouts.client_body_idle`.
    pub const BODY_TIMEOUT: Failure = Failure::new(408, "client-body-timeout");
    /// The host is that of another certificate than the one this connection was opened with.
    pub const MISDIRECTED: Failure = Failure::new(421, "misdirected");
    /// No room for more.
    pub const BUSY: Failure = Failure::new(503, "busy");
    /// The endpoint closed the connection without an answer.
    pub const NO_ANSWER: Failure = Failure::new(520, "no-answer");
    /// The endpoint sent no head within `timeouts.response_header`.
    pub const RESPONSE_TIMEOUT: Failure = Failure::new(524, "response-timeout");
    /// No usable endpoint, the fallback pool's included.
    pub const NO_ENDPOINT: Failure = Failure::new(530, "no-endpoint");

    /// `reason` is one stable word for log, metrics and JSON.
    #[must_use]
    pub const fn new(status: u16, reason: &'static str) -> Failure {
        Failure { status, reason }
    }

    /// The status that the client gets.
    #[must_use]
    pub const fn status(self) -> u16 {
        self.status
    }

    /// One stable word for log, metrics and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.reason
    }

    /// Whose fault it was.
    #[must_use]
    pub fn party(self) -> Party {
        text(self.status).party
    }

    /// The answer, in the form that the values of `Accept` prefer.
    #[must_use]
    pub fn page<'a>(self, accept: impl Iterator<Item = &'a [u8]>, request_id: &RequestId) -> Page {
        let form = Form::of(accept);
        let [before, between, after] = &prepared(self.status)[form as usize];
        let id = request_id.as_str();
        let mut body = Vec::with_capacity(
            before.len() + self.reason.len() + between.len() + id.len() + after.len(),
        );
        for part in [before, self.reason, between, id, after] {
            body.extend_from_slice(part.as_bytes());
        }
        let date = httpdate::fmt_http_date(SystemTime::now());
        Page {
            failure: self,
            form,
            request_id: *request_id,
            date,
            body,
        }
    }
}

impl From<usher_core::decision::Refusal> for Failure {
    fn from(refusal: usher_core::decision::Refusal) -> Failure {
        Failure::new(refusal.status(), refusal.as_str())
    }
}

/// An answer of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    failure: Failure,
    form: Form,
    request_id: RequestId,
    date: String,
    /// The body; to `HEAD` only its length is sent.
    pub body: Vec<u8>,
}

impl Page {
    /// The status.
    #[must_use]
    pub const fn status(&self) -> u16 {
        self.failure.status
    }

    /// The fields beside those that frame the body; names in lower case.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let retry_after = match self.failure.status {
            503 => Some("5"),
            530 => Some("10"),
            _ => None,
        };
        let allow = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
        let allow = (self.failure.status == 405).then_some(allow);
        let always = [
            ("content-type", self.form.content_type()),
            ("cache-control", "no-store"),
            ("date", &*self.date),
            ("x-request-id", self.request_id.as_str()),
        ];
        let sometimes = [("retry-after", retry_after), ("allow", allow)];
        let sometimes = sometimes
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        always.into_iter().chain(sometimes)
    }
}

/// How an answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Html,
    Json,
}

impl Form {
    const ALL: [Form; 3] = [Form::Text, Form::Html, Form::Json];

    const fn content_type(self) -> &'static str {
        match self {
            Form::Text => "text/plain; charset=utf-8",
            Form::Html => "text/html; charset=utf-8",
            Form::Json => "application/json",
        }
    }

    /// A page for who asks for HTML by name, JSON for who prefers that by name, and text for who
    /// takes anything: that is a person at a terminal.
    fn of<'a>(accept: impl Iterator<Item = &'a [u8]>) -> Form {
        let [mut html, mut json] = [0; 2];
        for range in accept.flat_map(|value| value.split(|&byte| byte == b',')) {
            let mut parts = range.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
            let media = parts.next().unwrap_or_default();
            let wish = parts.find_map(quality).unwrap_or(1000);
            let is = |name: &[u8]| media.eq_ignore_ascii_case(name);
            if is(b"text/html") || is(b"application/xhtml+xml") {
                html = html.max(wish);
            } else if is(b"application/json") || media.ends_with(b"+json") {
                json = json.max(wish);
            }
        }
        match (html, json) {
            (0, 0) => Form::Text,
            (html, json) if json > html => Form::Json,
            _ => Form::Html,
        }
    }
}

/// The thousandths of a `q` parameter; `None` when it is another one, 0 when it is malformed.
fn quality(parameter: &[u8]) -> Option<u16> {
    let value = parameter
        .strip_prefix(b"q=")
        .or_else(|| parameter.strip_prefix(b"Q="))?;
    let value = std::str::from_utf8(value)
        .ok()
        .and_then(|value| value.parse::<f32>().ok());
    Some((value.unwrap_or(0.0).clamp(0.0, 1.0) * 1000.0) as u16)
}

struct Text {
    status: u16,
    party: Party,
    title: &'static str,
    what: &'static str,
    advice: &'static str,
}

/// Keeps the table readable.
const fn text_of(
    status: u16,
    party: Party,
    title: &'static str,
    what: &'static str,
    advice: &'static str,
) -> Text {
    Text {
        status,
        party,
        title,
        what,
        advice,
    }
}

static TEXTS: [Text; 21] = [
    text_of(
        400,
        Party::Client,
        "Bad request",
        "The request breaks a rule of HTTP and was not passed on.",
        "Check the program that sent it; the word below names the rule.",
    ),
    text_of(
        404,
        Party::Client,
        "No such site here",
        "Nothing is set up for this host name.",
        "Check the address. If the site is yours, add a load balancer for this name.",
    ),
    text_of(
        405,
        Party::Client,
        "Method not allowed",
        "This request method is not served here.",
        "Use another method.",
    ),
    text_of(
        408,
        Party::Client,
        "Request timed out",
        "The request did not arrive completely in time.",
        "Check your connection and try again.",
    ),
    text_of(
        413,
        Party::Client,
        "Body too large",
        "The body of the request is larger than this gateway accepts.",
        "Send less at a time.",
    ),
    text_of(
        414,
        Party::Client,
        "Address too long",
        "The address of the request is longer than this gateway accepts.",
        "Shorten it, or send the data in the body of a request.",
    ),
    text_of(
        417,
        Party::Client,
        "Expectation failed",
        "The request expects something that this gateway does not do.",
        "Check the program that sent it.",
    ),
    text_of(
        421,
        Party::Client,
        "Wrong connection",
        "This connection was opened for another site, with another certificate.",
        "Try again on a new connection; browsers do so by themselves.",
    ),
    text_of(
        431,
        Party::Client,
        "Header too large",
        "The header of the request is larger than this gateway accepts.",
        "Clear the cookies of this site and try again.",
    ),
    text_of(
        500,
        Party::Usher,
        "Internal error",
        "The gateway failed at this request.",
        "Try again. If the site is yours, look for this request in the log of the gateway.",
    ),
    text_of(
        501,
        Party::Client,
        "Not implemented",
        "The request asks for something that this gateway does not do.",
        "Check the program that sent it.",
    ),
    text_of(
        503,
        Party::Usher,
        "Busy",
        "The gateway has no room for more requests just now.",
        "Try again in a few seconds.",
    ),
    text_of(
        505,
        Party::Client,
        "Version not supported",
        "The request uses a version of HTTP that is not served here.",
        "Use HTTP/1.1 or HTTP/2.",
    ),
    text_of(
        520,
        Party::Endpoint,
        "Invalid answer",
        "The server behind this site gave no answer, or one that is not valid HTTP.",
        "Try again in a minute. If the site is yours, look into the log of its server.",
    ),
    text_of(
        521,
        Party::Endpoint,
        "Server refuses connections",
        "The server behind this site is down or refuses connections.",
        "Try again in a minute. If the site is yours, check that its server runs on the right port.",
    ),
    text_of(
        522,
        Party::Endpoint,
        "Connection timed out",
        "The server behind this site did not take the connection in time.",
        "Try again in a minute. If the site is yours, check its firewall and its load.",
    ),
    text_of(
        523,
        Party::Endpoint,
        "Server unreachable",
        "There is no way to the server behind this site.",
        "Try again in a minute. If the site is yours, check its address, name and route.",
    ),
    text_of(
        524,
        Party::Endpoint,
        "Server took too long",
        "The server behind this site took the request but did not answer in time.",
        "Try again later. The request may have had an effect all the same.",
    ),
    text_of(
        525,
        Party::Endpoint,
        "TLS handshake failed",
        "No secure connection to the server behind this site could be made.",
        "Try again later. If the site is yours, check the TLS settings of its server.",
    ),
    text_of(
        526,
        Party::Endpoint,
        "Invalid certificate",
        "The certificate of the server behind this site is not valid.",
        "Try again later. If the site is yours, renew the certificate or name its authority.",
    ),
    text_of(
        530,
        Party::Usher,
        "No server available",
        "No server behind this site can take the request.",
        "Try again in a minute. If the site is yours, check the state of its pools.",
    ),
];

/// The text of `status`; of the nearest in kind where there is none.
fn text(status: u16) -> &'static Text {
    let find = |status| TEXTS.iter().find(|text| text.status == status);
    let nearest = || find(if status < 500 { 400 } else { 520 });
    find(status).or_else(nearest).expect("both have a text")
}

/// Around the reason and around the id.
type Pieces = [Box<str>; 3];

fn prepared(status: u16) -> &'static [Pieces; 3] {
    static ALL: LazyLock<Vec<(u16, [Pieces; 3])>> = LazyLock::new(|| {
        let prepared = |text: &Text| (text.status, Form::ALL.map(|form| prepare(text, form)));
        TEXTS.iter().map(prepared).collect()
    });
    let status = text(status).status;
    let found = ALL.iter().find(|(known, _)| *known == status);
    &found.expect("every text is prepared").1
}

/// The code that names the failure: that of the hosted service where it has one of its own.
const fn code(status: u16) -> u16 {
    if status == 530 { 1016 } else { status }
}

fn prepare(text: &Text, form: Form) -> Pieces {
    let Text {
        status,
        title,
        what,
        advice,
        ..
    } = text;
    let code = code(*status);
    let whole = match form {
        Form::Text => format!(
            "{status} {title}\n{what}\n{advice}\nerror code: {code} ({{reason}}), request {{id}}\n"
        ),
        Form::Json => format!(
            "{{\"error\": {{\"status\": {status}, \"code\": {code}, \"reason\": \"{{reason}}\", \
             \"message\": \"{what} {advice}\", \"request_id\": \"{{id}}\"}}}}\n"
        ),
        Form::Html => html(text, code),
    };
    let (before, rest) = whole
        .split_once("{reason}")
        .expect("every form names the reason");
    let (between, after) = rest
        .split_once("{id}")
        .expect("every form names the request");
    [before, between, after].map(Into::into)
}

fn html(text: &Text, code: u16) -> String {
    let Text {
        status,
        party,
        title,
        what,
        advice,
    } = text;
    let hop = |of: Party, name| {
        let class = if of == *party { " class=bad" } else { "" };
        format!("<li{class}>{name}")
    };
    let path = [
        hop(Party::Client, "You"),
        hop(Party::Usher, "Gateway"),
        hop(Party::Endpoint, "Server"),
    ];
    include_str!("refusal.html")
        .replace('\n', "")
        .replace("{status}", &status.to_string())
        .replace("{code}", &code.to_string())
        .replace("{title}", title)
        .replace("{what}", what)
        .replace("{advice}", advice)
        .replace("{path}", &path.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(status: u16, accept: &str) -> (String, String) {
        let id = RequestId::new(0xabc);
        let page = Failure::new(status, "a-reason").page([accept.as_bytes()].into_iter(), &id);
        let content_type = page.fields().next().expect("a type").1.to_owned();
        (content_type, String::from_utf8(page.body).expect("text"))
    }

    #[test]
    fn the_form_follows_accept() {
        let rows = [
            ("", Form::Text),
            ("*/*", Form::Text),
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
                Form::Html,
            ),
            ("application/json", Form::Json),
            ("application/json, text/plain, */*", Form::Json),
            ("application/problem+json", Form::Json),
            ("text/html;q=0.5, application/json", Form::Json),
            ("text/html, application/json", Form::Html),
            ("application/json;q=0, text/html;level=1;q=0.1", Form::Html),
            ("application/json;q=0", Form::Text),
            ("application/json;q=x", Form::Text),
            ("TEXT/HTML", Form::Html),
            ("image/*", Form::Text),
        ];
        for (accept, expected) in rows {
            assert_eq!(
                Form::of([accept.as_bytes()].into_iter()),
                expected,
                "{accept}"
            );
        }
    }

    #[test]
    fn every_answer_is_small_and_names_code_reason_and_request() {
        for text in &TEXTS {
            for accept in ["", "text/html", "application/json"] {
                let (_, body) = page(text.status, accept);
                assert!(
                    body.len() < 2048,
                    "{} {accept}: {}",
                    text.status,
                    body.len()
                );
                for part in [
                    &code(text.status).to_string(),
                    "a-reason",
                    "0000000000000abc",
                ] {
                    assert!(body.contains(part), "{} {accept}: {part}", text.status);
                }
                assert!(
                    !body.contains("{reason}") && !body.contains("{id}"),
                    "{body}"
                );
            }
        }
    }

    #[test]
    fn the_three_forms_of_one_answer() {
        insta::assert_snapshot!(page(530, "*/*").1);
        insta::assert_snapshot!(page(521, "application/json").1);
        insta::assert_snapshot!(page(521, "text/html").1);
    }

    #[test]
    fn fields_that_only_some_answers_have() {
        let names = |failure: Failure| {
            let page = failure.page(std::iter::empty(), &RequestId::new(1));
            page.fields().map(|(name, _)| name).collect::<Vec<_>>()
        };
        let always = ["content-type", "cache-control", "date", "x-request-id"];
        assert_eq!(names(Failure::UNKNOWN_HOST), always);
        assert_eq!(names(Failure::METHOD), [&always[..], &["allow"]].concat());
        assert_eq!(
            names(Failure::NO_ENDPOINT),
            [&always[..], &["retry-after"]].concat()
        );
    }

    #[test]
    fn a_status_without_text_gets_the_nearest() {
        assert!(page(418, "").1.contains("breaks a rule"));
        assert!(page(599, "").1.contains("no answer"));
        assert_eq!(Failure::NO_ANSWER.party(), Party::Endpoint);
    }
}
