//! Asks a running node over its API.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use serde_json::{Map, Value};

use crate::Ending;

/// How long one answer may take, connecting included.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The largest answer that is read: a list of everything that a store may hold.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// Where the API is, and the token that opens it.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Api {
    /// Address of the node's API
    #[arg(long, value_name = "URL", default_value = DEFAULT_URL)]
    pub(crate) api: String,
    /// Token for the API
    #[arg(long, env = "USHER_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
}

/// Where a node's API is unless its file says otherwise.
pub(crate) const DEFAULT_URL: &str = "http://127.0.0.1:8788";

/// `POST` of `body` to a path below `/client/v4`; the `result` of the envelope.
pub(crate) fn post(
    url: &str,
    token: Option<&str>,
    path: &str,
    body: &Value,
) -> Result<Value, Ending> {
    let node = Node::at(url, token)?;
    node.call("POST", path, Some(body)).map(result)
}

/// A node whose API can be asked; keeps its connection between calls.
pub(crate) struct Node {
    agent: ureq::Agent,
    base: String,
    bearer: String,
}

impl Node {
    /// The node whose API is at `url`.
    ///
    /// # Errors
    /// It cannot be asked like this.
    pub(crate) fn at(url: &str, token: Option<&str>) -> Result<Node, Ending> {
        if !url.starts_with("http://") {
            return Err(Ending::Usage(anyhow!(
                "--api {url}: the API is spoken to over http:// only; reach a remote node through a tunnel"
            )));
        }
        let token = token.ok_or_else(|| {
            Ending::Usage(anyhow!(
                "the API asks for a token: give --token or set USHER_TOKEN"
            ))
        })?;
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(ANSWER_MAX))
            .http_status_as_error(false)
            .proxy(None)
            .allow_non_standard_methods(true)
            .build();
        Ok(Node {
            agent: agent.into(),
            base: url.trim_end_matches('/').to_owned(),
            bearer: format!("Bearer {token}"),
        })
    }

    /// `GET` of a path below `/client/v4`; the `result` of the envelope.
    ///
    /// # Errors
    /// There is no answer, or it says no.
    pub(crate) fn get(&self, path: &str) -> Result<Value, Ending> {
        self.call("GET", path, None).map(result)
    }

    /// Any call of a path below `/client/v4`; the envelope of its success.
    ///
    /// # Errors
    /// There is no answer, or it says no.
    pub(crate) fn call(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Map<String, Value>, Ending> {
        let (base, target) = (&self.base, format!("{}/client/v4{path}", self.base));
        let request = http::Request::builder()
            .method(method)
            .uri(&target)
            .header("authorization", &self.bearer);
        let sent = match body {
            None => self.agent.run(usable(request.body(()))?),
            Some(body) => {
                let request = request.header("content-type", "application/json");
                self.agent.run(usable(request.body(body.to_string()))?)
            }
        };
        let mut response = sent
            .with_context(|| {
                format!("no answer from the API at {base}; is the node running there?")
            })
            .map_err(Ending::Environment)?;
        let status = response.status();
        let envelope: Value = response
            .body_mut()
            .with_config()
            .limit(ANSWER_BYTES_MAX)
            .read_json()
            .with_context(|| format!("{target} answered {status} without the API's envelope"))
            .map_err(Ending::Environment)?;
        match envelope {
            Value::Object(keys) if keys.get("success") == Some(&Value::Bool(true)) => Ok(keys),
            other => {
                let said = other["errors"].as_array().into_iter().flatten();
                let said: Vec<&str> = said.filter_map(|it| it["message"].as_str()).collect();
                let told = anyhow!("{target}: {status}: {}", said.join("; "));
                // What the node cannot do now is not for the user to change.
                Err(match status.as_u16() {
                    503 => Ending::Environment(told),
                    _ => Ending::Change(told),
                })
            }
        }
    }
}

/// What an envelope holds.
pub(crate) fn result(mut envelope: Map<String, Value>) -> Value {
    envelope.remove("result").unwrap_or(Value::Null)
}

fn usable<B>(request: Result<http::Request<B>, http::Error>) -> Result<http::Request<B>, Ending> {
    request.map_err(|error| Ending::Usage(anyhow!(error).context("--api is no usable address")))
}
