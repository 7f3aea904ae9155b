//! Where a request wants to go: a host in the one spelling that everything after it looks at.
//!
//! Hosts are read as browsers read them (WHATWG URL), so that `2130706433`, `0x7f.1`, `127.1` and
//! `0177.0.0.1` are the address that the browser means and not names that a resolver may
//! understand in its own way.

use std::fmt;
use std::net::IpAddr;

use url::Host;

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    host: Box<str>,
    ip: Option<IpAddr>,
    port: u16,
}

impl Target {
    /// Reads `host`, with brackets around an IPv6 address. `None`: no browser would take it.
    #[must_use]
    pub fn new(host: &str, port: u16) -> Option<Target> {
        let (host, ip) = match Host::parse(host).ok()? {
            Host::Domain(name) => {
                // The dot at the end says that the name is complete; it names nothing else.
                let name = name.strip_suffix('.').unwrap_or(&name);
                let sound = !name.is_empty()
                    && name.len() <= 253
                    && name.split('.').all(|label| (1..=63).contains(&label.len()));
                if !sound {
                    return None;
                }
                (name.into(), None)
            }
            Host::Ipv4(ip) => (ip.to_string().into(), Some(IpAddr::V4(ip))),
            Host::Ipv6(ip) => (format!("[{ip}]").into(), Some(IpAddr::V6(ip))),
        };
        Some(Target { host, ip, port })
    }

    /// Reads `host:port`.
    #[must_use]
    pub fn of_authority(authority: &str) -> Option<Target> {
        let (host, port) = authority.rsplit_once(':')?;
        if port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        Target::new(host, port.parse().ok()?)
    }

    /// In lower case, without a dot at the end; an address in its usual form.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The address, if the host is one.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_what_a_browser_takes_it_for() {
        for (text, host) in [
            ("Example.COM", "example.com"),
            ("example.com.", "example.com"),
            ("a_b.example.com", "a_b.example.com"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("１２７.0.0.1", "127.0.0.1"),
            ("127.0.0.1", "127.0.0.1"),
            ("127.0.0.1.", "127.0.0.1"),
            ("127.1", "127.0.0.1"),
            ("2130706433", "127.0.0.1"),
            ("0x7f000001", "127.0.0.1"),
            ("0177.0.0.01", "127.0.0.1"),
            ("0x7f.1", "127.0.0.1"),
            ("0", "0.0.0.0"),
            ("4294967295", "255.255.255.255"),
            ("[::1]", "[::1]"),
            ("[0:0::0001]", "[::1]"),
            ("[::ffff:7f00:1]", "[::ffff:127.0.0.1]"),
            ("[::127.0.0.1]", "[::7f00:1]"),
        ] {
            let target = Target::new(text, 80).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(target.host(), host, "{text}");
            assert_eq!(
                target.ip().is_some(),
                !host.contains(char::is_alphabetic) || host.starts_with('['),
                "{text}"
            );
        }
    }

    #[test]
    fn what_no_browser_takes_is_nowhere() {
        let label = "a".repeat(64);
        let long = "a.".repeat(130);
        for text in [
            "",
            ".",
            "..",
            "a..b",
            "4294967296",
            "256.1.1.1",
            "1.1.1.1.1",
            "0x100000000",
            "[::1%eth0]",
            "[::1",
            "::1",
            "user@example.com",
            "exa mple.com",
            "a/b",
            "a?b",
            "a#b",
            "a:80",
            "%00",
            "xn--",
            "1.2.3.09",
            &label,
            &long,
        ] {
            assert_eq!(Target::new(text, 80), None, "{text}");
        }
        for text in [
            "", "a", ":", "a:", "a:+1", "a:65536", ":80", "a:-1", "[::1]",
        ] {
            assert_eq!(Target::of_authority(text), None, "{text}");
        }
        assert_eq!(Target::of_authority("[::1]:443"), Target::new("[::1]", 443));
    }

    /// Each file of the fuzz target's corpus, by the folder that says how it ends.
    #[test]
    fn the_corpus_ends_as_its_folders_say() {
        let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let corpus = corpus.join("../../fuzz/corpus/egress");
        let mut seen = 0;
        for end in ["read", "refused"] {
            for file in std::fs::read_dir(corpus.join(end)).unwrap() {
                let path = file.unwrap().path();
                let text = std::fs::read_to_string(&path).unwrap();
                let read = Target::of_authority(text.lines().next().unwrap_or_default());
                assert_eq!(
                    read.is_some(),
                    end == "read",
                    "{}: {read:?}",
                    path.display()
                );
                seen += 1;
            }
        }
        assert!(seen >= 20);
    }
}
