//! What a rule does to a request and to its answer on the way: headers and the path.
//!
//! Headers that frame a message, belong to one connection or name the host cannot be touched: with
//! them a rule could make two programs see two different requests. A value may hold variables; one
//! whose variable is unknown for a request is not written, and a header that would have been set is
//! removed instead, so that a visitor cannot supply what the node could not.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::net::IpAddr;

use super::limits::is_value_byte;

/// Header edits of one rule, of request and response together.
pub const EDITS_MAX: usize = 32;
/// Characters of a template.
pub const TEMPLATE_LEN_MAX: usize = 1024;
/// Bytes that a template may give for one request; beyond it counts as unknown.
const FILLED_LEN_MAX: usize = 16 * 1024;

/// What one rule does on the way.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transform {
    /// Done in order to the request that the endpoint gets.
    pub request_headers: Vec<HeaderEdit>,
    /// Done in order to the answer that the visitor gets.
    pub response_headers: Vec<HeaderEdit>,
    /// Another path towards the endpoint.
    pub path: Option<PathRewrite>,
}

/// One change of one header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderEdit {
    /// Exactly this value, instead of all that were there.
    Set {
        /// A token, in any case.
        name: String,
        /// The value.
        value: Template,
    },
    /// Not there.
    Remove {
        /// A token, in any case.
        name: String,
    },
}

impl HeaderEdit {
    /// The header.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            HeaderEdit::Set { name, .. } | HeaderEdit::Remove { name } => name,
        }
    }
}

/// Another path; the query stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathRewrite {
    /// What the path must start with, and loses, whole segments only. Paths that do not stay as
    /// they are. Starts with `/` and does not end with it.
    pub strip_prefix: Option<String>,
    /// The new path. In it `{path}` is the path without the prefix. Starts with `/`.
    pub to: Template,
}

/// A text with variables: `/{country_lower}{path}`. `{{` and `}}` stand for braces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    text: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Variable(Variable),
}

macro_rules! variables {
    ($($(#[$doc:meta])* $variant:ident = $name:literal;)*) => {
        /// What a template may hold.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Variable {
            $($(#[$doc])* $variant,)*
        }

        impl Variable {
            /// Every variable.
            pub const ALL: &[Variable] = &[$(Variable::$variant,)*];

            /// The name between the braces.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Variable::$variant => $name,)* }
            }
        }
    };
}

variables! {
    /// The visitor's country, upper case.
    Country = "country";
    /// The visitor's country, lower case.
    CountryLower = "country_lower";
    /// The visitor's region code, upper case.
    Region = "region";
    /// The visitor's region code, lower case.
    RegionLower = "region_lower";
    /// The visitor's address.
    Client = "client";
    /// The host that was asked for.
    Host = "host";
    /// The path as received; in [`PathRewrite::to`] without the prefix.
    Path = "path";
    /// Name of the load balancer.
    Balancer = "load_balancer";
    /// Code of this node.
    Node = "node";
    /// Name of the pool that the answer comes from; only in response headers.
    Pool = "pool";
    /// Name of the endpoint that the answer comes from; only in response headers.
    Endpoint = "endpoint";
}

/// What variables stand for in one request.
#[derive(Debug, Clone, Copy)]
pub struct Values<'a> {
    /// The visitor's country, two upper case letters.
    pub country: Option<&'a str>,
    /// The visitor's region code.
    pub region: Option<&'a str>,
    /// The visitor's address.
    pub client: IpAddr,
    /// Host in lower case.
    pub host: &'a str,
    /// Path and query as received.
    pub uri: &'a str,
    /// Name of the load balancer.
    pub balancer: &'a str,
    /// Code of this node.
    pub node: &'a str,
    /// Pool and endpoint, once there is an answer.
    pub served_by: Option<(&'a str, &'a str)>,
}

/// What is to be done to one header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit<'t> {
    /// Replace all values by this one, which is a valid field value.
    Set(&'t str, Cow<'t, str>),
    /// Remove all values.
    Remove(&'t str),
}

impl Transform {
    /// Whether it does nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.request_headers.is_empty() && self.response_headers.is_empty() && self.path.is_none()
    }

    /// The edits of the request, in order.
    pub fn request_edits<'t>(&'t self, values: &Values<'t>) -> impl Iterator<Item = Edit<'t>> {
        let values = *values;
        let edits = self.request_headers.iter();
        edits.map(move |edit| edit.filled(&values))
    }

    /// The edits of the answer, in order.
    pub fn response_edits<'t>(&'t self, values: &Values<'t>) -> impl Iterator<Item = Edit<'t>> {
        let values = *values;
        let edits = self.response_headers.iter();
        edits.map(move |edit| edit.filled(&values))
    }

    /// The new path and query; `None` when it stays as it is.
    #[must_use]
    pub fn rewritten(&self, values: &Values<'_>) -> Option<String> {
        let rewrite = self.path.as_ref()?;
        let path_len = values.uri.find('?').unwrap_or(values.uri.len());
        let (path, query) = values.uri.split_at(path_len);
        let rest = match &rewrite.strip_prefix {
            Some(prefix) => path
                .strip_prefix(prefix.as_str())
                .filter(|rest| rest.is_empty() || rest.starts_with('/'))?,
            None => path,
        };
        let mut uri = rewrite.to.fill_with_path(values, rest)?.into_owned();
        uri.push_str(query);
        let is_target = uri.starts_with('/') && uri.bytes().all(|byte| byte > b' ' && byte != 0x7f);
        (uri.len() <= FILLED_LEN_MAX && is_target).then_some(uri)
    }
}

impl HeaderEdit {
    fn filled<'t>(&'t self, values: &Values<'t>) -> Edit<'t> {
        match self {
            HeaderEdit::Remove { name } => Edit::Remove(name),
            HeaderEdit::Set { name, value } => match value.fill(values) {
                Some(value) => Edit::Set(name, value),
                None => Edit::Remove(name),
            },
        }
    }
}

impl Template {
    /// Reads a template; otherwise what is wrong with it.
    ///
    /// # Errors
    /// A brace without its other half, or an unknown variable.
    pub fn parse(text: &str) -> Result<Template, String> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(behind) = rest.strip_prefix(brace) {
                plain.push_str(brace);
                rest = behind;
                continue;
            }
            let Some((name, behind)) = rest.split_once('}').filter(|_| brace == "{") else {
                let double = brace.repeat(2);
                return Err(format!(
                    "{brace:?} has no other half: a brace itself is {double:?}"
                ));
            };
            let variable = Variable::ALL
                .iter()
                .find(|variable| variable.name() == name);
            let Some(&variable) = variable else {
                let late = |known: &&Variable| matches!(known, Variable::Pool | Variable::Endpoint);
                let (late, early): (Vec<_>, Vec<_>) = Variable::ALL.iter().partition(late);
                let names = |list: Vec<&Variable>| {
                    let names: Vec<&str> = list.into_iter().map(|known| known.name()).collect();
                    names.join(", ")
                };
                return Err(format!(
                    "no variable {name:?}: there are {}, and in response headers {}",
                    names(early),
                    names(late)
                ));
            };
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut plain)));
            }
            parts.push(Part::Variable(variable));
            rest = behind;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Ok(Template {
            text: text.to_owned(),
            parts,
        })
    }

    /// The text, exactly as it was given.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The variables that it holds.
    pub fn variables(&self) -> impl Iterator<Item = Variable> {
        self.parts.iter().filter_map(|part| match part {
            Part::Variable(variable) => Some(*variable),
            Part::Text(_) => None,
        })
    }

    /// The value for one request; `None` when a variable is unknown or the result cannot be a
    /// header's value.
    fn fill<'t>(&'t self, values: &Values<'t>) -> Option<Cow<'t, str>> {
        let path = values
            .uri
            .split_once('?')
            .map_or(values.uri, |(path, _)| path);
        let filled = self.fill_with_path(values, path)?;
        filled.bytes().all(is_value_byte).then_some(filled)
    }

    fn fill_with_path<'t>(&'t self, values: &Values<'t>, path: &'t str) -> Option<Cow<'t, str>> {
        match self.parts.as_slice() {
            [] => Some(Cow::Borrowed("")),
            [Part::Text(text)] => Some(Cow::Borrowed(text)),
            parts => {
                let mut filled = String::new();
                for part in parts {
                    match part {
                        Part::Text(text) => filled.push_str(text),
                        Part::Variable(variable) => write(*variable, values, path, &mut filled)?,
                    }
                }
                (filled.len() <= FILLED_LEN_MAX).then_some(Cow::Owned(filled))
            }
        }
    }
}

fn write(variable: Variable, values: &Values<'_>, path: &str, to: &mut String) -> Option<()> {
    match variable {
        Variable::Country => to.push_str(values.country?),
        Variable::CountryLower => to.push_str(&values.country?.to_ascii_lowercase()),
        Variable::Region => to.push_str(values.region?),
        Variable::RegionLower => to.push_str(&values.region?.to_ascii_lowercase()),
        Variable::Client => write!(to, "{}", values.client).ok()?,
        Variable::Host => to.push_str(values.host),
        Variable::Path => to.push_str(path),
        Variable::Balancer => to.push_str(values.balancer),
        Variable::Node => to.push_str(values.node),
        Variable::Pool => to.push_str(values.served_by?.0),
        Variable::Endpoint => to.push_str(values.served_by?.1),
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Values<'static> {
        Values {
            country: Some("KR"),
            region: Some("NEAS"),
            client: IpAddr::from([192, 0, 2, 1]),
            host: "shop.example.com",
            uri: "/api/v1/items?q={x}",
            balancer: "*.example.com",
            node: "SJC",
            served_by: None,
        }
    }

    fn path(strip: Option<&str>, to: &str, uri: &'static str) -> Option<String> {
        let transform = Transform {
            path: Some(PathRewrite {
                strip_prefix: strip.map(str::to_owned),
                to: Template::parse(to).unwrap(),
            }),
            ..Transform::default()
        };
        transform.rewritten(&Values { uri, ..values() })
    }

    #[test]
    fn paths() {
        let rewritten = |strip, to, uri| path(strip, to, uri).unwrap_or_else(|| "-".to_owned());
        assert_eq!(
            rewritten(None, "/{country_lower}{path}", "/a?b=/c"),
            "/kr/a?b=/c"
        );
        assert_eq!(rewritten(None, "/{region}{path}", "/"), "/NEAS/");
        assert_eq!(rewritten(Some("/api"), "/v2{path}", "/api/x?y"), "/v2/x?y");
        assert_eq!(rewritten(Some("/api"), "/v2{path}", "/api"), "/v2");
        assert_eq!(rewritten(Some("/api"), "/v2{path}", "/apis/x"), "-");
        assert_eq!(rewritten(Some("/api"), "/v2{path}", "/x/api"), "-");
        assert_eq!(rewritten(None, "/fixed", "/a?b"), "/fixed?b");
        assert_eq!(rewritten(None, "/{pool}{path}", "/a"), "-");
        assert_eq!(rewritten(None, "/a b", "/a"), "-");
    }

    #[test]
    fn a_header_whose_variable_is_unknown_is_removed() {
        let set = |name: &str, value: &str| HeaderEdit::Set {
            name: name.to_owned(),
            value: Template::parse(value).unwrap(),
        };
        let transform = Transform {
            request_headers: vec![
                set("x-country", "{country}"),
                set("x-fixed", "a {{b}}"),
                HeaderEdit::Remove {
                    name: "x-debug".to_owned(),
                },
            ],
            response_headers: vec![set("x-served-by", "{pool}/{endpoint} on {node}")],
            path: None,
        };
        let known = values();
        let edits: Vec<Edit<'_>> = transform.request_edits(&known).collect();
        assert_eq!(
            edits,
            [
                Edit::Set("x-country", "KR".into()),
                Edit::Set("x-fixed", "a {b}".into()),
                Edit::Remove("x-debug"),
            ]
        );
        let unknown = Values {
            country: None,
            ..values()
        };
        let first = transform.request_edits(&unknown).next();
        assert_eq!(first, Some(Edit::Remove("x-country")));
        let served = Values {
            served_by: Some(("eu", "web-1")),
            ..values()
        };
        let edits: Vec<Edit<'_>> = transform.response_edits(&served).collect();
        assert_eq!(edits, [Edit::Set("x-served-by", "eu/web-1 on SJC".into())]);
        let injected = Values {
            served_by: Some(("eu", "a\r\nset-cookie: b")),
            ..values()
        };
        let edits: Vec<Edit<'_>> = transform.response_edits(&injected).collect();
        assert_eq!(edits, [Edit::Remove("x-served-by")]);
    }

    #[test]
    fn templates() {
        assert_eq!(
            Template::parse("{{}}").unwrap().parts,
            [Part::Text("{}".to_owned())]
        );
        assert!(
            Template::parse("{country")
                .unwrap_err()
                .contains("no other half")
        );
        assert!(Template::parse("a}").unwrap_err().contains("no other half"));
        let unknown = Template::parse("{city}").unwrap_err();
        assert!(
            unknown.starts_with("no variable \"city\": there are country,"),
            "{unknown}"
        );
        for variable in Variable::ALL {
            let text = format!("<{{{}}}>", variable.name());
            let template = Template::parse(&text).unwrap();
            assert_eq!(template.variables().collect::<Vec<_>>(), [*variable]);
            assert_eq!(template.text(), text);
        }
    }
}
