//! `usher run --upstream`: a waiting room before one site, from two numbers in the environment.
//!
//! It is a configuration like any other, made here and not read from a file: what it declares is
//! shown by the API, explained by `usher explain` and refused to be changed like what a file
//! declares. Only what no file can say is put in afterwards: a load balancer of every host, and
//! sessions of a few seconds.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use serde_json::{Value, json};
use usher_api::Declared;
use usher_api::wire::reader::declared;
use usher_core::catalog::{Catalog, HostPattern, PAGE_BYTES_MAX};
use usher_core::id::Kind;

use crate::{Ending, config};

/// What is said of one upstream on the command line.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Arguments {
    /// The site, as scheme, host and port: it gets every request, from behind a waiting room
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
    /// Where visitors come in [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config")]
    listen: Option<SocketAddr>,
    /// Where the API listens, or 'off'; USHER_TOKEN is its token [default: 127.0.0.1:8788]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config")]
    api: Option<String>,
    /// The waiting page, a mustache template; the built-in page without
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    page: Option<PathBuf>,
}

const SEATS: &str = "TOTAL_ACTIVE_USERS";
const SESSION: &str = "SESSION_DURATION_SECONDS";
/// A store that other nodes share, by the names that people have it under.
const SHARED: [&str; 2] = ["REDIS_URL", "UPSTASH_REDIS_REST_URL"];

const LIMIT_MAX: u32 = 2_147_483_647;
const SESSION_SECS_MAX: u32 = 86_400;
/// What a file may say at least.
const SESSION_SECS_MIN_OF_FILE: u32 = 5;

/// The name that the load balancer of every host has while the configuration is read.
const STAND_IN: &str = "upstream.invalid";

/// A waiting room before one site.
#[derive(Debug, PartialEq)]
pub(crate) struct Upstream {
    listen: SocketAddr,
    api: Option<SocketAddr>,
    token: Option<String>,
    tls: bool,
    host: String,
    port: u16,
    seats: u32,
    session_secs: u32,
    page: String,
}

impl Upstream {
    /// Reads the command line and the environment.
    ///
    /// # Errors
    /// What the user must change.
    pub(crate) fn read(
        arguments: &Arguments,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Upstream, Ending> {
        let url = arguments.upstream.as_deref().unwrap_or_default();
        let (tls, host, port) =
            site(url).map_err(|why| Ending::Usage(anyhow!("--upstream {url:?} {why}")))?;
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let number = |name: &str, min: u32, max: u32| {
            let value = variable(name).ok_or_else(|| {
                anyhow!(
                    "{name} is not set: --upstream needs {SEATS} and {SESSION} in the environment"
                )
            })?;
            let found = value.trim().parse().ok();
            let found = found.filter(|found| (min..=max).contains(found));
            found.ok_or_else(|| anyhow!("{name} {value:?} is not a whole number in {min}..{max}"))
        };
        let seats = number(SEATS, 0, LIMIT_MAX).map_err(Ending::Change)?;
        let session_secs = number(SESSION, 1, SESSION_SECS_MAX).map_err(Ending::Change)?;
        if let Some(name) = SHARED.into_iter().find(|name| variable(name).is_some()) {
            return Err(Ending::Change(anyhow!(
                "{name} is set: a store that nodes share is not built yet; unset it, and the line is kept in the memory of this process"
            )));
        }
        let listen = SocketAddr::from(([127, 0, 0, 1], 8080));
        let api = match arguments.api.as_deref() {
            None => Some(SocketAddr::from(([127, 0, 0, 1], 8788))),
            Some("off") => None,
            Some(text) => Some(text.parse().map_err(|_| {
                Ending::Usage(anyhow!(
                    "--api {text:?} is neither an address with a port nor off"
                ))
            })?),
        };
        let page = match &arguments.page {
            None => String::new(),
            Some(path) => page(path)?,
        };
        Ok(Upstream {
            listen: arguments.listen.unwrap_or(listen),
            api,
            token: variable("USHER_TOKEN"),
            tls,
            host,
            port,
            seats,
            session_secs,
            page,
        })
    }

    /// The configuration.
    ///
    /// # Errors
    /// What it says is wrong.
    pub(crate) fn load(&self) -> Result<config::Loaded, Ending> {
        let wrong = |lines: Vec<String>| Ending::Change(anyhow!("{}", lines.join("\n")));
        let source = config::Source {
            name: "environment",
            folder: Path::new("."),
            variable: &|_| None,
        };
        let text = self.text(STAND_IN, self.session_secs.max(SESSION_SECS_MIN_OF_FILE));
        let loaded = config::load_text(&text.to_string(), &source);
        let mut loaded = loaded.map_err(|findings| wrong(findings.lines().collect()))?;
        let mut draft = loaded.catalog.draft().clone();
        for balancer in &mut draft.balancers {
            balancer.host = HostPattern::Any;
            balancer.name = HostPattern::Any.to_string();
            balancer.id = declared(Kind::Balancer, &balancer.name);
        }
        for room in &mut draft.rooms {
            room.session = Duration::from_secs(self.session_secs.into());
        }
        let shown = self.text(&HostPattern::Any.to_string(), self.session_secs);
        loaded.declared = Arc::new(Declared::new(draft.clone(), &shown, "the environment"));
        let catalog = Catalog::check(draft);
        let catalog = catalog.map_err(|faults| {
            wrong(faults.iter().map(|fault| fault.error.to_string()).collect())
        })?;
        loaded.catalog = Arc::new(catalog);
        Ok(loaded)
    }

    fn text(&self, host: &str, session_secs: u32) -> Value {
        let mut pool = json!({
            "origins": [{"name": "upstream", "address": self.host, "port": self.port}],
        });
        if self.tls {
            pool["usher"] = json!({"tls": "strict", "sni": self.host});
        }
        let mut text = json!({
            "listen": {"http": [self.listen]},
            "shutdown": {"grace": "5s"},
            "pools": {"upstream": pool},
            "load_balancers": {host: {
                "proxied": true, "default_pools": ["upstream"], "fallback_pool": "upstream",
            }},
            "waiting_rooms": {"seed": {
                "host": "*",
                "path": "/",
                "total_active_users": self.seats,
                "new_users_per_minute": LIMIT_MAX,
                "custom_page_html": self.page,
                "rules": [{
                    "description": "icons",
                    "expression": "starts_with(http.request.uri.path, \"/favicon\")",
                }],
                "usher": {
                    "session_duration_seconds": session_secs,
                    "refresh_interval_seconds": 30,
                },
            }},
        });
        if let Some(api) = self.api {
            let tokens = self.token.iter().map(
                |token| json!({"name": "environment", "token": token, "permissions": ["admin"]}),
            );
            text["api"] = json!({"listen": api, "tokens": tokens.collect::<Value>()});
        }
        text
    }
}

/// Whether TLS is spoken, the host and the port.
fn site(url: &str) -> Result<(bool, String, u16), &'static str> {
    let uri: http::Uri = url.parse().map_err(|_| "is not a URL")?;
    let (tls, port) = match uri.scheme_str() {
        Some("http") => (false, 80),
        Some("https") => (true, 443),
        _ => return Err("does not begin with http:// or https://"),
    };
    let authority = uri.authority().ok_or("names no host")?;
    if authority.as_str().contains('@') {
        return Err("names a user: only scheme, host and port are taken");
    }
    if !matches!(
        uri.path_and_query().map(|path| path.as_str()),
        None | Some("/")
    ) {
        return Err("has a path: requests keep their own, so give scheme, host and port");
    }
    let host = authority.host();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok((tls, host.to_owned(), authority.port_u16().unwrap_or(port)))
}

fn page(path: &Path) -> Result<String, Ending> {
    let shown = path.display();
    let read = std::fs::read(path);
    let bytes = read.map_err(|error| {
        Ending::Change(anyhow!(error).context(format!("--page {shown} cannot be read")))
    })?;
    if bytes.len() > PAGE_BYTES_MAX {
        let found = bytes.len();
        return Err(Ending::Change(anyhow!(
            "--page {shown} has {found} bytes, more than {PAGE_BYTES_MAX}"
        )));
    }
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_| Ending::Change(anyhow!("--page {shown} is not UTF-8")))?;
    match usher_rooms::template::Template::parse(&text) {
        Ok(_) if text.trim().is_empty() => Err(Ending::Change(anyhow!("--page {shown} is empty"))),
        Ok(_) => Ok(text),
        Err(fault) => Err(Ending::Change(anyhow!("--page {shown}: {fault}"))),
    }
}

#[cfg(test)]
mod tests {
    use usher_core::catalog::{ANY_HOST, TlsMode};

    use super::*;

    fn arguments(url: &str) -> Arguments {
        Arguments {
            upstream: Some(url.to_owned()),
            listen: None,
            api: None,
            page: None,
        }
    }

    fn read(url: &str, environment: &[(&str, &str)]) -> Result<Upstream, String> {
        let variable = |name: &str| {
            let found = environment.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Upstream::read(&arguments(url), &variable).map_err(|ending| match ending {
            Ending::Change(error) => format!("change: {error:#}"),
            Ending::Usage(error) => format!("usage: {error:#}"),
            other => panic!("{other:?}"),
        })
    }

    const NUMBERS: [(&str, &str); 2] = [(SEATS, "10"), (SESSION, "30")];

    #[test]
    fn two_numbers_make_a_room_before_every_host() {
        let upstream = read("http://127.0.0.1:3000", &NUMBERS).expect("enough");
        let loaded = upstream.load().expect("a configuration");
        let draft = loaded.catalog.draft();
        let [room] = draft.rooms.as_slice() else {
            panic!("{:?}", draft.rooms)
        };
        assert_eq!((room.name.as_str(), room.seats_max), ("seed", 10));
        assert_eq!(room.per_minute_max, LIMIT_MAX);
        assert_eq!(room.session, Duration::from_secs(30));
        assert_eq!(room.extras.refresh, Duration::from_secs(30));
        assert_eq!(room.routes[0].host, ANY_HOST);
        assert_eq!(room.bypass.len(), 1);
        assert_eq!(draft.balancers[0].host, HostPattern::Any);
        assert_eq!(draft.pools[0].tls.mode, None);
        assert_eq!(loaded.process.journals(), None);
        assert_eq!(loaded.warnings, [""; 0]);
    }

    #[test]
    fn sessions_may_be_shorter_than_a_file_says() {
        let numbers = [(SEATS, "0"), (SESSION, "1")];
        let upstream = read("https://example.com", &numbers).expect("enough");
        let loaded = upstream.load().expect("a configuration");
        let draft = loaded.catalog.draft();
        assert_eq!(draft.rooms[0].session, Duration::from_secs(1));
        assert_eq!(draft.rooms[0].seats_max, 0);
        let pool = &draft.pools[0];
        assert_eq!(pool.endpoints[0].port, Some(443));
        assert_eq!(pool.tls.mode, Some(TlsMode::Strict));
        assert_eq!(pool.tls.sni.as_deref(), Some("example.com"));
    }

    #[test]
    fn what_is_wrong_says_what_to_change() {
        let url = "http://127.0.0.1:3000";
        let with = |changed: (&'static str, &'static str)| {
            let mut numbers = NUMBERS.to_vec();
            numbers.retain(|(name, _)| *name != changed.0);
            numbers.push(changed);
            read(url, &numbers).expect_err("wrong")
        };
        assert_eq!(
            read(url, &[]).expect_err("nothing is set"),
            "change: TOTAL_ACTIVE_USERS is not set: --upstream needs TOTAL_ACTIVE_USERS and SESSION_DURATION_SECONDS in the environment"
        );
        assert_eq!(
            with((SEATS, "-1")),
            "change: TOTAL_ACTIVE_USERS \"-1\" is not a whole number in 0..2147483647"
        );
        assert_eq!(
            with((SESSION, "0")),
            "change: SESSION_DURATION_SECONDS \"0\" is not a whole number in 1..86400"
        );
        assert!(with(("REDIS_URL", "redis://127.0.0.1")).contains("is not built yet"));
        for (url, why) in [
            ("127.0.0.1:3000", "does not begin with http:// or https://"),
            ("ftp://127.0.0.1", "does not begin with http:// or https://"),
            ("http://127.0.0.1/shop", "has a path"),
            ("http://u:p@127.0.0.1", "names a user"),
            ("http:// ", "is not a URL"),
        ] {
            let told = read(url, &NUMBERS).expect_err(url);
            assert!(told.starts_with("usage: ") && told.contains(why), "{told}");
        }
    }
}
