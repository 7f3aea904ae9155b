//! A configuration as a test builds it: a working whole to which a test adds its one difference.
//!
//! It is written as JSON, which is YAML; tests of the file format itself write their own text.

use serde_json::{Value, json};

use super::endpoint::PROBE_PATH;

/// The host that a test asks for unless hosts are its subject.
pub const HOST: &str = "shop.example.com";
/// The token of the API in every test.
pub const TOKEN: &str = "test-token-with-enough-letters";

#[derive(Clone)]
pub struct Config(Value);

impl Config {
    /// Listeners on free ports, an API, an access log: nothing to serve yet.
    pub fn new() -> Self {
        Self(json!({
            "node": {"name": "test1", "code": "TST", "region": "WEU", "country": "NL"},
            "listen": {"http": ["127.0.0.1:0"]},
            "api": {
                "listen": "127.0.0.1:0",
                "tokens": [{"name": "admin", "token": TOKEN, "permissions": ["admin"]}],
            },
            "access_log": {"path": "access.log", "format": "json"},
            "limits": {"monitor_interval_min": "1s"},
            "shutdown": {"grace": "5s"},
            "zones": {"example.com": {}},
            "monitors": {},
            "pools": {},
            "load_balancers": {},
        }))
    }

    /// One load balancer for [`HOST`] with one pool `main` of these origins.
    pub fn serving(origins: impl IntoIterator<Item = Value>) -> Self {
        Self::new().pool("main", origins).balancer(HOST, &["main"])
    }

    /// Adds a pool without a monitor.
    pub fn pool(self, name: &str, origins: impl IntoIterator<Item = Value>) -> Self {
        let origins: Vec<Value> = origins.into_iter().collect();
        self.set(&["pools", name], json!({"origins": origins}))
    }

    /// Adds a load balancer over these pools, of which the last is the fallback.
    pub fn balancer(self, host: &str, pools: &[&str]) -> Self {
        let fallback = pools.last().expect("a load balancer has a pool");
        self.set(
            &["load_balancers", host],
            json!({"proxied": true, "default_pools": pools, "fallback_pool": fallback}),
        )
    }

    /// Adds the monitor `web`, as quick as the rules allow, and gives it to the pool.
    pub fn monitored(self, pool: &str) -> Self {
        self.set(
            &["monitors", "web"],
            json!({"type": "http", "path": PROBE_PATH, "interval": 2, "timeout": 1, "retries": 0}),
        )
        .set(&["pools", pool, "monitor"], json!("web"))
    }

    pub fn timeout(self, name: &str, value: &str) -> Self {
        self.set(&["timeouts", name], json!(value))
    }

    /// Sets any value; objects on the way are made.
    pub fn set(mut self, path: &[&str], value: Value) -> Self {
        let mut place = &mut self.0;
        for key in path {
            place = match place {
                Value::Array(list) => &mut list[key.parse::<usize>().expect("an index")],
                other => &mut other[*key],
            };
        }
        *place = value;
        self
    }

    pub fn text(&self) -> String {
        format!("{:#}\n", self.0)
    }
}
