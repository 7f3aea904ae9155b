//! The forms that names in a catalog must have.

/// Longest name that DNS can carry, in text form.
const HOSTNAME_LEN_MAX: usize = 253;
const LABEL_LEN_MAX: usize = 63;

/// Whether `text` is a hostname: labels of letters, digits, `-` and, since private names have them,
/// `_`; the last one not a number, so that a mistyped address is not taken for a name.
pub(super) fn is_hostname(text: &str) -> bool {
    let label = |label: &str| {
        let inside = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        !label.is_empty()
            && label.len() <= LABEL_LEN_MAX
            && label.bytes().all(inside)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = text.rsplit('.').next().unwrap_or(text);
    text.len() <= HOSTNAME_LEN_MAX
        && text.split('.').all(label)
        && !last.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether `text` is a hostname without upper case, as hosts are compared.
pub(super) fn is_lower_hostname(text: &str) -> bool {
    is_hostname(text) && !text.bytes().any(|byte| byte.is_ascii_uppercase())
}

/// Whether `text` can stand in a `Host` header: a hostname or an address, with or without a port.
pub(super) fn is_authority(text: &str) -> bool {
    let is_host = |host: &str| is_hostname(host) || host.parse::<std::net::Ipv4Addr>().is_ok();
    let is_port = |port: &str| {
        port.parse::<u16>()
            .is_ok_and(|number| number.to_string() == port)
    };
    if let Some((address, port)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return address.parse::<std::net::Ipv6Addr>().is_ok() && port;
    }
    match text.split_once(':') {
        Some((host, port)) => is_host(host) && is_port(port),
        None => is_host(text),
    }
}

/// Whether `text` is a token of RFC 9110: a method or the name of a header.
pub(super) fn is_token(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(inside)
}

/// Whether `text` can be the value of a header.
pub(super) fn is_field_value(text: &str) -> bool {
    !text
        .bytes()
        .any(|byte| byte.is_ascii_control() && byte != b'\t')
        && text.trim() == text
}

/// Whether `text` can be the path and query of a request.
pub(super) fn is_path(text: &str) -> bool {
    text.starts_with('/')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'#')
}

/// The name among `names` that `text` was probably meant to be.
pub(crate) fn nearest<'a>(text: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let far = (text.chars().count() / 3).max(1) + 1;
    let near = names
        .map(|name| (distance(text, name, far), name))
        .filter(|&(distance, _)| distance < far);
    near.min().map(|(_, name)| name.to_owned())
}

/// How many characters must be put in, left out or replaced; `far` when it is not less than that.
fn distance(one: &str, other: &str, far: usize) -> usize {
    let other: Vec<char> = other.chars().collect();
    if one.chars().count().abs_diff(other.len()) >= far {
        return far;
    }
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (above, from) in one.chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], above + 1);
        for (left, &to) in other.iter().enumerate() {
            let replaced = corner + usize::from(from != to);
            corner = row[left + 1];
            row[left + 1] = replaced.min(corner + 1).min(row[left] + 1);
        }
    }
    row[other.len()].min(far)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostnames() {
        let long = format!("{}.example.com", "a".repeat(63));
        for text in [
            "example.com",
            "a",
            "xn--bcher-kva.example",
            "my_service",
            "1.example",
            &long,
        ] {
            assert!(is_lower_hostname(text), "{text}");
        }
        let long = format!("{}.example.com", "a".repeat(64));
        let longer = ["a"; 128].join(".");
        for text in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "-a",
            "a-",
            "a b",
            "256.1.1.1",
            "3",
            "*.a",
            "ü",
            &long,
            &longer,
        ] {
            assert!(!is_lower_hostname(text), "{text}");
        }
        assert!(is_hostname("Example.com") && !is_lower_hostname("Example.com"));
    }

    #[test]
    fn what_a_host_header_may_hold() {
        for text in [
            "example.com",
            "example.com:8080",
            "192.0.2.1",
            "192.0.2.1:80",
            "[2001:db8::1]",
            "[::1]:443",
        ] {
            assert!(is_authority(text), "{text}");
        }
        for text in [
            "",
            "a:",
            "a:65536",
            "a:080",
            "2001:db8::1",
            "[::1",
            "[::1]x",
            "a/b",
            "a b",
            "u@a",
        ] {
            assert!(!is_authority(text), "{text}");
        }
    }

    #[test]
    fn the_nearest_name() {
        let near = |text| nearest(text, ["eu", "us-east", "us-west"].into_iter());
        assert_eq!(near("eux").as_deref(), Some("eu"));
        assert_eq!(near("us-eats").as_deref(), Some("us-east"));
        assert_eq!(near("asia"), None);
    }
}
