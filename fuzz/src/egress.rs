//! The laws of what a browser may name: one spelling for one place, and none that is let through by
//! another name than it is judged by.

#[path = "../../crates/usher-egress/src/guardrails.rs"]
#[allow(dead_code)]
mod guardrails;
#[path = "../../crates/usher-egress/src/target.rs"]
#[allow(dead_code)]
mod target;

use std::net::IpAddr;

use guardrails::{Guardrails, Pattern};
use target::Target;

/// The first line of `input` is an authority, as a page may have written it; the rest is a list of
/// host patterns.
pub fn egress(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (authority, list) = text.split_once('\n').unwrap_or((&text, ""));
    let list = Guardrails::of_list(list);
    let Some(target) = Target::of_authority(authority) else {
        return;
    };
    let host = target.host();
    assert_eq!(Target::of_authority(&target.to_string()).as_ref(), Some(&target), "{authority:?}");
    assert!(!host.ends_with('.') && !host.is_empty() && host.len() <= 253, "{host:?}");
    assert!(host.bytes().all(|byte| byte.is_ascii_graphic() && !byte.is_ascii_uppercase()), "{host:?}");
    // What the system's resolver could take for an address is one, and judged as one.
    let literal = host.trim_matches(['[', ']']).parse::<IpAddr>().ok();
    assert_eq!(target.ip(), literal, "{host:?}");
    let number = host.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    assert!(!number || target.ip().is_some(), "{host:?}");
    if let Ok(pattern) = Pattern::parse(host) {
        assert!(pattern.matches(host));
    }
    if let Ok(list) = list {
        let own = Guardrails::of_list(host);
        assert!(own.is_err() || list.and(own.unwrap_or_default()).allow(host));
    }
}
