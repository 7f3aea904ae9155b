//! What a session may reach, as its client says it and as the egress proxy is told.
//!
//! Read to its last word or refused: what is not understood may forbid something.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};
use usher_egress::guardrails::{COMMON_CDNS, SETS_MAX};
use usher_egress::{Guardrails, Lists, Pattern};

use super::Account;
use super::answer::Fault;

/// The header that carries them where a request has no body.
const HEADER: &str = "cf-brapi-guardrails";

/// Bytes of a header's value.
const HEADER_MAX: usize = 32 << 10;

/// Of a session, fixed when it begins.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Written {
    allowed_domains: Option<Vec<String>>,
    allowed_domain_sets: Option<Vec<String>>,
}

/// What stands in the body of a request for a browser.
#[derive(Debug, Default, Deserialize)]
struct Body {
    guardrails: Option<Written>,
}

/// Of one connection.
#[derive(Debug, Deserialize)]
struct Connection {
    mode: Option<String>,
}

/// What the body of a request says.
pub(super) fn of_body(body: &[u8]) -> Result<Option<Written>, Fault> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let body: Body =
        serde_json::from_slice(body).map_err(|fault| Fault::bad(format!("guardrails: {fault}")))?;
    Ok(body.guardrails)
}

/// What the header of a request that acquires says.
pub(super) fn of_header(headers: &HeaderMap) -> Result<Option<Written>, Fault> {
    header(headers)
}

/// Whether the header of a request that connects says that it may only look. What else it says was
/// settled when the session began.
pub(super) fn readonly(headers: &HeaderMap) -> Result<bool, Fault> {
    let mode = header::<Connection>(headers)?.and_then(|said| said.mode);
    match mode.as_deref() {
        None => Ok(false),
        Some("readonly") => Ok(true),
        Some(mode) => Err(Fault::bad(format!("guardrails: mode {mode:?}: readonly"))),
    }
}

fn header<T: for<'de> Deserialize<'de>>(headers: &HeaderMap) -> Result<Option<T>, Fault> {
    let Some(value) = headers.get(HEADER) else {
        return Ok(None);
    };
    if value.len() > HEADER_MAX {
        let text = format!("{HEADER}: {} bytes, more than {HEADER_MAX}", value.len());
        return Err(Fault::bad(text));
    }
    // Some programs pad it.
    let value = value.as_bytes().trim_ascii_end();
    let end = value.iter().rposition(|&byte| byte != b'=');
    let decoded = URL_SAFE_NO_PAD.decode(&value[..end.map_or(0, |end| end + 1)]);
    let decoded = decoded.map_err(|fault| Fault::bad(format!("{HEADER}: {fault}")))?;
    let read = serde_json::from_slice(&decoded);
    read.map(Some)
        .map_err(|fault| Fault::bad(format!("{HEADER}: {fault}")))
}

/// The policy of a browser, for the egress proxy. Lists that it names by an address are fetched.
pub(super) async fn policy(
    account: &Account,
    lists: &Lists,
    written: Option<Written>,
) -> Result<Value, Fault> {
    let mut policy = json!({});
    if !account.allow_private.is_empty() {
        policy["allow_private"] = account.allow_private.clone().into();
    }
    let Some(written) = written else {
        return Ok(policy);
    };
    if written == Written::default() {
        return Ok(policy);
    }
    let domains = written.allowed_domains.unwrap_or_default();
    let of = |fault: usher_egress::PatternFault| Fault::bad(format!("guardrails: {fault}"));
    Guardrails::new(domains.iter().map(String::as_str)).map_err(of)?;
    let mut hosts: Vec<String> = domains;
    let sets = written.allowed_domain_sets.unwrap_or_default();
    if sets.len() > SETS_MAX {
        let text = format!("guardrails: {} sets, more than {SETS_MAX}", sets.len());
        return Err(Fault::bad(text));
    }
    for set in sets {
        match set.as_str() {
            "common-cdns" => hosts.extend(common_cdns().map(|pattern| pattern.to_string())),
            address if address.starts_with("https://") => {
                let list = lists.get(address).await;
                let of = |fault| Fault::bad(format!("guardrails: set {address:?}: {fault}"));
                let list = list.map_err(of)?;
                hosts.extend(list.iter().map(ToString::to_string));
            }
            _ => {
                let text = format!("guardrails: set {set:?}: common-cdns, or an https:// address");
                return Err(Fault::bad(text));
            }
        }
    }
    policy["allowed_hosts"] = hosts.into();
    Ok(policy)
}

fn common_cdns() -> impl Iterator<Item = Pattern> {
    let lines = COMMON_CDNS.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .filter_map(|line| Pattern::parse(line).ok())
}

#[cfg(test)]
mod tests {
    use usher_core::id::{Id, Kind};
    use usher_core::lease::limits::{AccountKind, Limits};
    use usher_egress::{Deadlines, Egress, Policy};

    use super::*;

    fn account(allow_private: &[&str]) -> Account {
        Account {
            id: Id::derive("default", Kind::Account, "default"),
            name: "default".to_owned(),
            limits: Limits::of(AccountKind::Paygo),
            weight: 1,
            secret: None,
            allow_private: allow_private.iter().map(ToString::to_string).collect(),
        }
    }

    /// No name has an address.
    fn lists() -> Lists {
        let nothing = |_| async { Err(std::io::ErrorKind::NotFound.into()) };
        let egress = Egress::with(Deadlines::default(), nothing);
        Lists::new(egress, Policy::default(), None)
    }

    async fn of(body: &str) -> Result<Value, u16> {
        let written = of_body(body.as_bytes());
        let written = match written {
            Ok(written) => policy(&account(&[]), &lists(), written).await,
            Err(fault) => Err(fault),
        };
        written.map_err(|fault| fault.status.as_u16())
    }

    #[tokio::test]
    async fn what_is_not_understood_makes_no_session() {
        for body in ["", " \n", "{}", r#"{"guardrails":{}}"#, r#"{"other":1}"#] {
            assert_eq!(of(body).await, Ok(json!({})), "{body}");
        }
        let none = r#"{"guardrails":{"allowedDomains":[]}}"#;
        assert_eq!(of(none).await, Ok(json!({"allowed_hosts": []})));
        let one = r#"{"guardrails":{"allowedDomains":["*.example.com"]}}"#;
        assert_eq!(
            of(one).await,
            Ok(json!({"allowed_hosts": ["*.example.com"]}))
        );
        let set = of(r#"{"guardrails":{"allowedDomainSets":["common-cdns"]}}"#).await;
        let set = set.expect("a set");
        assert!(
            set["allowed_hosts"]
                .as_array()
                .is_some_and(|hosts| hosts.len() > 10)
        );
        for body in [
            "null",
            "[1]",
            r#"{"guardrails":{"allowedDomains":["https://a"]}}"#,
            r#"{"guardrails":{"allowedDomains":"a"}}"#,
            r#"{"guardrails":{"deniedDomains":["a"]}}"#,
            r#"{"guardrails":{"allowedDomainSets":["mine"]}}"#,
            r#"{"guardrails":{"allowedDomainSets":["common-cdns","a","b","c","d"]}}"#,
            r#"{"guardrails":{"allowedDomainSets":["http://example.com/list"]}}"#,
            // It does not come.
            r#"{"guardrails":{"allowedDomainSets":["https://example.com/list"]}}"#,
            r#"{"guardrails":{"allowedDomains":["a"],"allowedDomainSets":["https://169.254.169.254/"]}}"#,
        ] {
            assert_eq!(of(body).await, Err(400), "{body}");
        }
    }

    #[tokio::test]
    async fn the_proxy_understands_what_it_is_told() {
        let account = account(&["127.0.0.0/8"]);
        let body = br#"{"guardrails":{"allowedDomains":["a.example"],"allowedDomainSets":["common-cdns"]}}"#;
        let written = of_body(body).expect("read");
        let told = policy(&account, &lists(), written).await;
        let told = told.expect("a policy");
        let read = Policy::read(&told.to_string()).expect("the same words");
        let guardrails = read.guardrails.expect("some");
        assert!(guardrails.allow("a.example") && guardrails.allow("unpkg.com"));
        assert!(!guardrails.allow("b.example"));
        assert_eq!(read.allow_private.len(), 1);
    }

    #[test]
    fn a_header_says_what_a_body_would() {
        let headers = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HEADER, text.parse().expect("a value"));
            headers
        };
        let value = "eyJhbGxvd2VkRG9tYWlucyI6WyJleGFtcGxlLmNvbSJdfQ";
        for value in [value.to_owned(), format!("{value}==")] {
            let read = of_header(&headers(&value)).expect("read").expect("there");
            assert_eq!(read.allowed_domains, Some(vec!["example.com".to_owned()]));
        }
        assert!(of_header(&headers("====")).is_err());
        assert!(of_header(&headers("{}")).is_err());
        let looks = URL_SAFE_NO_PAD.encode(r#"{"mode":"readonly"}"#);
        assert!(readonly(&headers(&looks)).expect("read"));
        assert!(!readonly(&headers(value)).expect("read"));
        let other = URL_SAFE_NO_PAD.encode(r#"{"mode":"all"}"#);
        assert!(readonly(&headers(&other)).is_err());
    }
}
