//! Who may call the API, and what they may do.
//!
//! Tokens are kept as SHA-256 digests and compared in constant time: whoever reads this process's
//! memory or its logs finds no token, and whoever measures answers learns none.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use serde_json::Value;
use usher_core::id::Id;
pub use usher_store::Secret;
use usher_store::token::Digest;
use usher_store::{Stamp, State};

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

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Permission::Admin => f.write_str("admin"),
            Permission::Read(product) => write!(f, "{}:read", product.name()),
            Permission::Edit(product) => write!(f, "{}:edit", product.name()),
        }
    }
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
    digest: Digest,
    name: String,
    permissions: Vec<Permission>,
    accounts: Vec<String>,
}

/// Who calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The token, where the store keeps it.
    pub(crate) token: Option<Id>,
    /// What the token is called.
    pub(crate) name: String,
    pub(crate) permissions: Vec<Permission>,
    /// Accounts, by name, that it is limited to. Empty: all.
    pub(crate) accounts: Vec<String>,
    /// What was presented, to tell repeats and rates of different callers apart.
    pub(crate) digest: Digest,
}

impl Caller {
    pub(crate) fn reads(&self, product: Product) -> bool {
        self.permissions.iter().any(|held| held.reads(product))
    }

    pub(crate) fn edits(&self, product: Product) -> bool {
        self.permissions.iter().any(|held| held.edits(product))
    }
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
                digest: Digest::of(token.secret.expose()),
                name: token.name.clone(),
                permissions: token.permissions.clone(),
                accounts: token.accounts.clone(),
            })
            .collect();
        Access { holders }
    }

    /// Who calls with these headers: a token of the file, or one that `state` keeps.
    ///
    /// # Errors
    /// Why nobody does.
    pub(crate) fn caller(&self, headers: &HeaderMap, state: &State) -> Result<Caller, Denied> {
        let digest = Digest::of(&credential(headers).ok_or(Denied::Missing)?);
        // Every holder is compared, so that the time does not tell which one came close.
        let declared = self.holders.iter().fold(None, |found, holder| {
            if holder.digest.matches(&digest) {
                Some(holder)
            } else {
                found
            }
        });
        let kept = state.holder(&digest, Stamp::now());
        if let Some(holder) = declared {
            return Ok(Caller {
                token: None,
                name: holder.name.clone(),
                permissions: holder.permissions.clone(),
                accounts: holder.accounts.clone(),
                digest,
            });
        }
        let kept = kept.map_err(|_| Denied::Wrong)?;
        let document: Value = serde_json::from_str(&kept.document).unwrap_or_default();
        let mail = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let stored = document["email"].as_str();
        if let (Some(stored), Some(sent)) = (stored, mail("x-auth-email"))
            && !stored.eq_ignore_ascii_case(sent)
        {
            return Err(Denied::Wrong);
        }
        let texts = |key: &str| {
            let list = document[key].as_array().into_iter().flatten();
            list.filter_map(Value::as_str)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let permissions = texts("permissions");
        Ok(Caller {
            token: Some(kept.id),
            name: kept.name.clone(),
            permissions: permissions
                .iter()
                .filter_map(|text| Permission::parse(text))
                .collect(),
            accounts: texts("accounts"),
            digest,
        })
    }
}

/// Where a token may stand beside `Authorization`.
const KEYS: [&str; 2] = ["x-auth-key", "x-auth-user-service-key"];

/// Whether a request says who it is, rightly or not.
pub(crate) fn presents(headers: &HeaderMap) -> bool {
    headers.contains_key(AUTHORIZATION) || KEYS.iter().any(|name| headers.contains_key(*name))
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
    KEYS.into_iter()
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
            let caller = access().caller(&headers(name, value), &State::default());
            let caller = caller.unwrap_or_else(|denied| panic!("{name}: {value}: {denied:?}"));
            assert_eq!(caller.name, "root");
            assert!(caller.edits(Product::LoadBalancing));
        }
    }

    #[test]
    fn a_token_that_is_missing_wrong_or_short_of_permission_is_turned_away() {
        let denied = |headers: &HeaderMap| access().caller(headers, &State::default()).map(|_| ());
        assert_eq!(denied(&HeaderMap::new()), Err(Denied::Missing));
        for value in ["", "root", "Bearer", "Bearer ", "Digest root", "Basic !!"] {
            let answer = denied(&headers("authorization", value));
            assert_eq!(answer, Err(Denied::Missing), "{value:?}");
        }
        for value in ["Bearer roo", "Bearer root2"] {
            let answer = denied(&headers("authorization", value));
            assert_eq!(answer, Err(Denied::Wrong), "{value}");
        }
        let zones = headers("authorization", "Bearer zones");
        let zones = access().caller(&zones, &State::default()).expect("known");
        assert!(zones.reads(Product::Zones) && !zones.edits(Product::Zones));
        assert!(!zones.reads(Product::LoadBalancing));
    }

    #[test]
    fn permissions() {
        let edit = Permission::parse("load_balancing:edit").expect("valid");
        assert_eq!(edit.to_string(), "load_balancing:edit");
        assert_eq!(Permission::Admin.to_string(), "admin");
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
