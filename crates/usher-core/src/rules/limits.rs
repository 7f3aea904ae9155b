//! The bounds of a rule's own values. Expressions are checked when they are parsed, and whether the
//! pools of overrides exist is for the catalog to say.
//!
//! Source: load-balancing specification 3.6 and 18.

use super::transform::{EDITS_MAX, HeaderEdit, TEMPLATE_LEN_MAX, Template, Transform, Variable};
use super::{FixedResponse, Overrides, Rule};

/// Rules of a load balancer.
pub const RULES_MAX: usize = 1000;
/// Characters of a rule's name.
pub const NAME_LEN_MAX: usize = 200;
/// Characters of the content type of a fixed response.
pub const CONTENT_TYPE_LEN_MAX: usize = 32;
/// Characters of the location of a fixed response.
pub const LOCATION_LEN_MAX: usize = 2048;
/// Characters of the body of a fixed response.
pub const MESSAGE_BODY_LEN_MAX: usize = 1024;
/// Characters of a header's name.
const HEADER_NAME_LEN_MAX: usize = 128;
const TTL_SECS_MAX: u32 = 86_400;

/// Headers that a transform may not touch: they name the host, frame the message or belong to one
/// connection (RFC 9110, 7.6.1).
const UNTOUCHABLE: [&str; 13] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "http2-settings",
];

/// One thing that is wrong with a rule, and where.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleFault {
    /// The field.
    pub field: RuleField,
    /// What is wrong with it.
    pub error: RuleError,
}

/// A field of a rule, in the words of this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleField {
    /// [`Rule::name`]
    Name,
    /// [`FixedResponse::status`]
    Status,
    /// [`FixedResponse::content_type`]
    ContentType,
    /// [`FixedResponse::location`]
    Location,
    /// [`FixedResponse::body`]
    Body,
    /// [`Overrides::pools`]
    Pools,
    /// [`Overrides::ttl_secs`]
    Ttl,
    /// [`Overrides::weight_default`]
    WeightDefault,
    /// One of [`Overrides::weights`], by its place.
    Weight(usize),
    /// One of [`Transform::request_headers`], by its place.
    RequestHeader(usize),
    /// One of [`Transform::response_headers`], by its place.
    ResponseHeader(usize),
    /// [`Transform::path`]
    Path,
}

/// What is wrong with a value. Its `Display` names the thing, the value and the limit.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RuleError {
    /// A text is too long.
    #[error("{what} has {found} characters, more than {max}")]
    TooLong {
        /// The thing.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The limit.
        max: usize,
    },
    /// A number is too small or too large.
    #[error("{what} {found} is outside {min}..{max}")]
    OutOfRange {
        /// The thing.
        what: &'static str,
        /// Its value.
        found: f64,
        /// The least value that is allowed.
        min: f64,
        /// The greatest value that is allowed.
        max: f64,
    },
    /// A weight is between two steps.
    #[error("weight {found} is not a multiple of 0.01")]
    WeightStep {
        /// Its value.
        found: f64,
    },
    /// Two things that exclude each other.
    #[error("fixed_response and overrides.pools exclude each other")]
    ResponseWithPools,
    /// A text is not what it must be.
    #[error("{what} {found:?} {rule}")]
    Syntax {
        /// The thing.
        what: &'static str,
        /// Its value.
        found: String,
        /// What it breaks.
        rule: &'static str,
    },
    /// A header that must stay as it is.
    #[error(
        "header {name} cannot be changed: it frames the message, belongs to the connection or names the host"
    )]
    Untouchable {
        /// The header.
        name: String,
    },
    /// A variable stands where nobody knows it yet.
    #[error("variable {{{name}}} is known only in response headers")]
    TooEarly {
        /// The variable.
        name: &'static str,
    },
    /// Too many edits.
    #[error("{found} header edits are more than {max}")]
    Edits {
        /// How many there are.
        found: usize,
        /// The limit.
        max: usize,
    },
}

impl<P> Rule<P> {
    /// Everything that is wrong with this rule by itself.
    #[must_use]
    pub fn faults(&self) -> Vec<RuleFault> {
        let mut at = At(Vec::new());
        at.len(RuleField::Name, "rule name", &self.name, NAME_LEN_MAX);
        if let Some(response) = &self.fixed_response {
            at.response(response);
            if self.overrides.pools.is_some() {
                at.fault(RuleField::Pools, RuleError::ResponseWithPools);
            }
        }
        at.overrides(&self.overrides);
        at.transform(&self.transform);
        at.0
    }
}

/// Everything that is wrong with a fixed response, which pool sets have too.
impl FixedResponse {
    /// Everything that is wrong with it.
    #[must_use]
    pub fn faults(&self) -> Vec<RuleFault> {
        let mut at = At(Vec::new());
        at.response(self);
        at.0
    }
}

/// Everything that is wrong with the name of a header that is to be set or removed.
pub(crate) fn header_faults(name: &str) -> Vec<RuleError> {
    let mut at = At(Vec::new());
    // Whose field it is, the caller knows.
    at.header(RuleField::Name, name);
    at.0.into_iter().map(|fault| fault.error).collect()
}

struct At(Vec<RuleFault>);

impl At {
    fn fault(&mut self, field: RuleField, error: RuleError) {
        self.0.push(RuleFault { field, error });
    }

    fn len(&mut self, field: RuleField, what: &'static str, text: &str, max: usize) {
        let found = text.chars().count();
        if found > max {
            self.fault(field, RuleError::TooLong { what, found, max });
        }
    }

    fn range(&mut self, field: RuleField, what: &'static str, found: f64, min: f64, max: f64) {
        if !(min..=max).contains(&found) {
            let error = RuleError::OutOfRange {
                what,
                found,
                min,
                max,
            };
            self.fault(field, error);
        }
    }

    fn syntax(&mut self, field: RuleField, what: &'static str, found: &str, rule: &'static str) {
        let error = RuleError::Syntax {
            what,
            found: found.to_owned(),
            rule,
        };
        self.fault(field, error);
    }

    fn response(&mut self, response: &FixedResponse) {
        let status = f64::from(response.status);
        self.range(RuleField::Status, "status_code", status, 200.0, 599.0);
        let headers = [
            (
                RuleField::ContentType,
                "content_type",
                &response.content_type,
                CONTENT_TYPE_LEN_MAX,
            ),
            (
                RuleField::Location,
                "location",
                &response.location,
                LOCATION_LEN_MAX,
            ),
        ];
        for (field, what, value, max) in headers {
            let Some(value) = value else { continue };
            self.len(field, what, value, max);
            if !value.bytes().all(is_value_byte) || value.trim() != value {
                self.syntax(field, what, value, "cannot be the value of a header");
            }
        }
        let body = &response.body;
        self.len(RuleField::Body, "message_body", body, MESSAGE_BODY_LEN_MAX);
    }

    fn overrides<P>(&mut self, overrides: &Overrides<P>) {
        if let Some(ttl_secs) = overrides.ttl_secs {
            let max = f64::from(TTL_SECS_MAX);
            self.range(RuleField::Ttl, "ttl", f64::from(ttl_secs), 1.0, max);
        }
        if let Some(weight) = overrides.weight_default {
            self.weight(RuleField::WeightDefault, weight);
        }
        for (place, (_, weight)) in overrides.weights.iter().flatten().enumerate() {
            self.weight(RuleField::Weight(place), *weight);
        }
    }

    fn weight(&mut self, field: RuleField, found: f64) {
        self.range(field, "weight", found, 0.0, 1.0);
        let hundredths = found * 100.0;
        if (0.0..=1.0).contains(&found) && (hundredths - hundredths.round()).abs() > 1e-9 {
            self.fault(field, RuleError::WeightStep { found });
        }
    }

    fn transform(&mut self, transform: &Transform) {
        let found = transform.request_headers.len() + transform.response_headers.len();
        if found > EDITS_MAX {
            let error = RuleError::Edits {
                found,
                max: EDITS_MAX,
            };
            // The edit that is one too many.
            let place = transform.request_headers.len().min(EDITS_MAX);
            self.fault(RuleField::RequestHeader(place), error);
        }
        for (place, edit) in transform.request_headers.iter().enumerate() {
            self.edit(RuleField::RequestHeader(place), edit, false);
        }
        for (place, edit) in transform.response_headers.iter().enumerate() {
            self.edit(RuleField::ResponseHeader(place), edit, true);
        }
        let Some(path) = &transform.path else {
            return;
        };
        self.template(RuleField::Path, &path.to, false);
        let rule = "does not start with \"/\" or holds blanks, \"?\", \"#\" or control characters";
        if !is_path(path.to.text()) {
            self.syntax(RuleField::Path, "path", path.to.text(), rule);
        }
        if let Some(prefix) = &path.strip_prefix {
            self.len(RuleField::Path, "prefix", prefix, TEMPLATE_LEN_MAX);
            if !is_path(prefix) {
                self.syntax(RuleField::Path, "prefix", prefix, rule);
            } else if prefix.ends_with('/') {
                self.syntax(RuleField::Path, "prefix", prefix, "ends with \"/\"");
            }
        }
    }

    fn header(&mut self, field: RuleField, name: &str) {
        self.len(field, "header", name, HEADER_NAME_LEN_MAX);
        let is_token_byte =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token_byte) {
            self.syntax(field, "header", name, "is not a header name");
        }
        let untouchable = UNTOUCHABLE.iter().any(|it| name.eq_ignore_ascii_case(it));
        if untouchable {
            let name = name.to_owned();
            self.fault(field, RuleError::Untouchable { name });
        }
    }

    fn edit(&mut self, field: RuleField, edit: &HeaderEdit, is_response: bool) {
        self.header(field, edit.name());
        if let HeaderEdit::Set { value, .. } = edit {
            self.template(field, value, is_response);
            if !value.text().bytes().all(is_value_byte) || value.text().trim() != value.text() {
                let rule = "cannot be the value of a header";
                self.syntax(field, "value", value.text(), rule);
            }
        }
    }

    fn template(&mut self, field: RuleField, template: &Template, is_response: bool) {
        self.len(field, "value", template.text(), TEMPLATE_LEN_MAX);
        for variable in template.variables() {
            let late = matches!(variable, Variable::Pool | Variable::Endpoint);
            if late && !is_response {
                let name = variable.name();
                self.fault(field, RuleError::TooEarly { name });
            }
        }
    }
}

/// Whether a byte may stand in the value of a header.
pub(super) fn is_value_byte(byte: u8) -> bool {
    byte == b'\t' || !byte.is_ascii_control()
}

fn is_path(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_graphic() && byte != b'?' && byte != b'#';
    text.starts_with('/') && text.bytes().all(inside)
}

#[cfg(test)]
mod tests {
    use super::super::transform::PathRewrite;
    use super::super::{Condition, Transform};
    use super::*;

    fn good() -> Rule<()> {
        Rule {
            name: "x".repeat(NAME_LEN_MAX),
            condition: Condition::parse("").unwrap(),
            disabled: false,
            priority: None,
            terminates: false,
            fixed_response: Some(FixedResponse {
                status: 599,
                content_type: Some("x".repeat(CONTENT_TYPE_LEN_MAX)),
                location: Some("x".repeat(LOCATION_LEN_MAX)),
                body: "ü".repeat(MESSAGE_BODY_LEN_MAX),
            }),
            overrides: Overrides {
                ttl_secs: Some(TTL_SECS_MAX),
                weight_default: Some(0.07),
                weights: Some(vec![((), 0.0), ((), 1.0)]),
                ..Overrides::default()
            },
            transform: Transform {
                request_headers: vec![set("X-Country", "{country}"); EDITS_MAX - 1],
                response_headers: vec![set("x-served-by", "{endpoint}")],
                path: Some(PathRewrite {
                    strip_prefix: Some("/api".to_owned()),
                    to: Template::parse("/{country}{path}").unwrap(),
                }),
            },
        }
    }

    fn set(name: &str, value: &str) -> HeaderEdit {
        HeaderEdit::Set {
            name: name.to_owned(),
            value: Template::parse(value).unwrap(),
        }
    }

    #[test]
    fn values_at_their_limits_pass() {
        assert_eq!(good().faults(), []);
    }

    #[test]
    fn values_beyond_their_limits_are_named() {
        type Change = fn(&mut Rule<()>);
        fn response(rule: &mut Rule<()>) -> &mut FixedResponse {
            rule.fixed_response.as_mut().unwrap()
        }
        fn edit(rule: &mut Rule<()>, name: &str, value: &str) {
            rule.transform.request_headers[0] = set(name, value);
        }
        fn path(rule: &mut Rule<()>, prefix: &str, to: &str) {
            rule.transform.path = Some(PathRewrite {
                strip_prefix: Some(prefix.to_owned()),
                to: Template::parse(to).unwrap(),
            });
        }
        let cases: &[(Change, &str)] = &[
            (
                |rule| rule.name.push('x'),
                "rule name has 201 characters, more than 200",
            ),
            (
                |rule| response(rule).status = 199,
                "status_code 199 is outside 200..599",
            ),
            (
                |rule| response(rule).status = 600,
                "status_code 600 is outside 200..599",
            ),
            (
                |rule| response(rule).content_type = Some("x".repeat(33)),
                "content_type has 33 characters, more than 32",
            ),
            (
                |rule| response(rule).location = Some("/a\r\nb".to_owned()),
                "location \"/a\\r\\nb\" cannot be the value of a header",
            ),
            (
                |rule| response(rule).body.push('x'),
                "message_body has 1025 characters, more than 1024",
            ),
            (
                |rule| rule.overrides.pools = Some(vec![]),
                "fixed_response and overrides.pools exclude each other",
            ),
            (
                |rule| rule.overrides.ttl_secs = Some(0),
                "ttl 0 is outside 1..86400",
            ),
            (
                |rule| rule.overrides.weight_default = Some(1.01),
                "weight 1.01 is outside 0..1",
            ),
            (
                |rule| rule.overrides.weight_default = Some(f64::NAN),
                "weight NaN is outside 0..1",
            ),
            (
                |rule| rule.overrides.weight_default = Some(0.005),
                "weight 0.005 is not a multiple of 0.01",
            ),
            (
                |rule| edit(rule, "Host", "a"),
                "header Host cannot be changed: it frames the message, belongs to the connection or names the host",
            ),
            (
                |rule| edit(rule, "", "a"),
                "header \"\" is not a header name",
            ),
            (
                |rule| edit(rule, "a b", "a"),
                "header \"a b\" is not a header name",
            ),
            (
                |rule| edit(rule, ":path", "a"),
                "header \":path\" is not a header name",
            ),
            (
                |rule| edit(rule, "a", "b\n"),
                "value \"b\\n\" cannot be the value of a header",
            ),
            (
                |rule| edit(rule, "a", "{endpoint}"),
                "variable {endpoint} is known only in response headers",
            ),
            (
                |rule| rule.transform.response_headers.push(set("a", "b")),
                "33 header edits are more than 32",
            ),
            (
                |rule| path(rule, "/a", "b"),
                "path \"b\" does not start with \"/\" or holds blanks, \"?\", \"#\" or control characters",
            ),
            (
                |rule| path(rule, "/a", "/b?c"),
                "path \"/b?c\" does not start with \"/\" or holds blanks, \"?\", \"#\" or control characters",
            ),
            (
                |rule| path(rule, "/a/", "/b"),
                "prefix \"/a/\" ends with \"/\"",
            ),
        ];
        for (change, expected) in cases {
            let mut rule = good();
            change(&mut rule);
            let faults = rule.faults();
            let texts: Vec<String> = faults.iter().map(|fault| fault.error.to_string()).collect();
            assert_eq!(texts, [*expected]);
        }
    }

    #[test]
    fn every_header_that_frames_or_connects_is_untouchable() {
        for name in UNTOUCHABLE {
            for edit in [
                set(name, "x"),
                HeaderEdit::Remove {
                    name: name.to_uppercase(),
                },
            ] {
                let mut rule = good();
                rule.transform.response_headers[0] = edit;
                assert_eq!(rule.faults().len(), 1, "{name}");
            }
        }
    }
}
