//! Who may call the API, and what they may do.
//!
//! Tokens are kept as SHA-256 digests and compared in constant time: whoever reads this process's
//! memory or its logs finds no token, and whoever measures answers learns none.

use std::fmt;

use aws_lc_rs::{constant_time, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::AUTHORIZATION;

/// A secret that opens the API, and what it opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// For logs and messages; unique.
    pub name: String,
    /// What the caller sends. At least one character.
    pub secret: Secret,
    /// What it may do; at least one.
    pub permissions: Vec<Permission>,
    /// Accounts, by name, that it is limited to. Empty (the default): all.
    pub accounts: Vec<String>,
}

/// Text that never reaches a log: its `Debug` shows dots.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes the text in.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text itself. Compare it in constant time.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(...)")
    }
}

/// What a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Permission {
    /// Everything.
    Admin,
    /// Look at one product.
    Read(Product),
    /// Look at and change one product.
    Edit(Product),
}

impl Permission {
    /// Reads `admin`, `<product>:read` or `<product>:edit`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Permission> {
        if text == "admin" {
            return Some(Permission::Admin);
        }
        let (product, verb) = text.split_once(':')?;
        let product = Product::ALL
            .into_iter()
            .find(|known| known.name() == product)?;
        match verb {
            "read" => Some(Permission::Read(product)),
            "edit" => Some(Permission::Edit(product)),
            _ => None,
        }
    }

    /// Whether it covers looking at `product`.
    #[must_use]
    pub fn reads(self, product: Product) -> bool {
        match self {
            Permission::Admin => true,
            Permission::Read(own) | Permission::Edit(own) => own == product,
        }
    }

    /// Whether it covers changing `product`.
    #[must_use]
    pub fn edits(self, product: Product) -> bool {
        match self {
            Permission::Admin => true,
            Permission::Edit(own) => own == product,
            Permission::Read(_) => false,
        }
    }
}

/// A part of the API that permissions are given for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Product {
    /// Monitors, pools, load balancers, and the state of the node.
    LoadBalancing,
    /// Waiting rooms.
    WaitingRooms,
    /// Browsers.
    Browsers,
    /// Notification policies and their destinations.
    Notifications,
    /// Zones.
    Zones,
    /// Tokens.
    Tokens,
}

impl Product {
    /// Every product.
    pub const ALL: [Product; 6] = [
        Product::LoadBalancing,
        Product::WaitingRooms,
        Product::Browsers,
        Product::Notifications,
        Product::Zones,
        Product::Tokens,
    ];

    /// The name, as permissions spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Product::LoadBalancing => "load_balancing",
            Product::WaitingRooms => "waiting_rooms",
            Product::Browsers => "browsers",
            Product::Notifications => "notifications",
            Product::Zones => "zones",
            Product::Tokens => "tokens",
        }
    }
}

/// The tokens of a node, ready to be checked against.
#[derive(Debug, Clone, Default)]
pub struct Access {
    holders: Vec<Holder>,
}

#[derive(Debug, Clone)]
struct Holder {
    digest: [u8; 32],
    permissions: Vec<Permission>,
}

/// Why a caller is turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// No credentials, or none that can be read: 400, code 6003.
    Missing,
    /// Credentials that nobody holds, or that do not go this far: 403, code 10000.
    Wrong,
}

impl Access {
    /// Keeps the digests of these tokens.
    #[must_use]
    pub fn new(tokens: &[Token]) -> Access {
        let holders = tokens
            .iter()
            .map(|token| Holder {
                digest: sha256(token.secret.expose()),
                permissions: token.permissions.clone(),
            })
            .collect();
        Access { holders }
    }

    /// Whether the caller with these headers may look at `product`.
    ///
    /// # Errors
    /// Why not.
    pub fn read(&self, headers: &HeaderMap, product: Product) -> Result<(), Denied> {
        let presented = sha256(&credential(headers).ok_or(Denied::Missing)?);
        // Every holder is compared, so that the time does not tell which one came close.
        let allowed = self.holders.iter().fold(false, |allowed, holder| {
            let same = constant_time::verify_slices_are_equal(&holder.digest, &presented).is_ok();
            allowed | (same && holder.permissions.iter().any(|held| held.reads(product)))
        });
        if allowed { Ok(()) } else { Err(Denied::Wrong) }
    }
}

fn sha256(text: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest::digest(&digest::SHA256, text.as_bytes()).as_ref());
    bytes
}

/// The token of a request: Bearer, the password of Basic, `X-Auth-Key`, or the service key.
fn credential(headers: &HeaderMap) -> Option<String> {
    if let Some(value) = headers.get(AUTHORIZATION) {
        let (scheme, rest) = value.to_str().ok()?.split_once(' ')?;
        let rest = rest.trim();
        let token = if scheme.eq_ignore_ascii_case("bearer") {
            rest.to_owned()
        } else if scheme.eq_ignore_ascii_case("basic") {
            let text = String::from_utf8(STANDARD.decode(rest).ok()?).ok()?;
            text.split_once(':')?.1.to_owned()
        } else {
            return None;
        };
        return Some(token).filter(|token| !token.is_empty());
    }
    ["x-auth-key", "x-auth-user-service-key"]
        .into_iter()
        .find_map(|name| headers.get(name)?.to_str().ok())
        .filter(|token| !token.is_empty())
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_does_not_show_itself() {
        let token = Token {
            name: "admin".into(),
            secret: Secret::new("opensesame"),
            permissions: vec![Permission::Admin],
            accounts: Vec::new(),
        };
        assert!(!format!("{token:?}").contains("sesame"));
        assert_eq!(token.secret.expose(), "opensesame");
    }

    fn access() -> Access {
        let token = |name: &str, permission: &str| Token {
            name: name.into(),
            secret: Secret::new(name),
            permissions: Permission::parse(permission).into_iter().collect(),
            accounts: Vec::new(),
        };
        Access::new(&[token("root", "admin"), token("zones", "zones:read")])
    }

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(
            http::HeaderName::from_static(name),
            value.parse().expect("valid"),
        )])
    }

    #[test]
    fn a_token_comes_in_each_of_its_places() {
        let basic = format!("Basic {}", STANDARD.encode("any:root"));
        for (name, value) in [
            ("authorization", "Bearer root"),
            ("authorization", "bearer   root"),
            ("authorization", basic.as_str()),
            ("x-auth-key", "root"),
            ("x-auth-user-service-key", "root"),
        ] {
            let answer = access().read(&headers(name, value), Product::LoadBalancing);
            assert_eq!(answer, Ok(()), "{name}: {value}");
        }
    }

    #[test]
    fn a_token_that_is_missing_wrong_or_short_of_permission_is_turned_away() {
        let denied = |headers: &HeaderMap| access().read(headers, Product::LoadBalancing);
        assert_eq!(denied(&HeaderMap::new()), Err(Denied::Missing));
        for value in ["", "root", "Bearer", "Bearer ", "Digest root", "Basic !!"] {
            let answer = denied(&headers("authorization", value));
            assert_eq!(answer, Err(Denied::Missing), "{value:?}");
        }
        for value in ["Bearer roo", "Bearer root2", "Bearer zones"] {
            let answer = denied(&headers("authorization", value));
            assert_eq!(answer, Err(Denied::Wrong), "{value}");
        }
        let zones = access().read(&headers("authorization", "Bearer zones"), Product::Zones);
        assert_eq!(zones, Ok(()));
    }

    #[test]
    fn permissions() {
        let edit = Permission::parse("load_balancing:edit").expect("valid");
        assert!(edit.reads(Product::LoadBalancing) && edit.edits(Product::LoadBalancing));
        assert!(!edit.reads(Product::Zones) && !edit.edits(Product::Zones));
        let read = Permission::parse("zones:read").expect("valid");
        assert!(read.reads(Product::Zones) && !read.edits(Product::Zones));
        assert!(
            Product::ALL
                .into_iter()
                .all(|product| Permission::Admin.edits(product))
        );
        for text in [
            "",
            "Admin",
            "zones",
            "zones:",
            "zones:write",
            "pools:read",
            "zones:read ",
        ] {
            assert_eq!(Permission::parse(text), None, "{text}");
        }
    }
}
