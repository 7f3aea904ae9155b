//! Asks a running node over its API.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use serde_json::Value;

use crate::Ending;

/// How long one answer may take, connecting included.
const ANSWER_MAX: Duration = Duration::from_secs(10);

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

/// `GET` of a path below `/client/v4`; the `result` of the envelope.
pub(crate) fn get(url: &str, token: Option<&str>, path: &str) -> Result<Value, Ending> {
    call(url, token, path, None)
}

/// `POST` of `body` to a path below `/client/v4`; the `result` of the envelope.
pub(crate) fn post(
    url: &str,
    token: Option<&str>,
    path: &str,
    body: &Value,
) -> Result<Value, Ending> {
    call(url, token, path, Some(body))
}

fn call(url: &str, token: Option<&str>, path: &str, body: Option<&Value>) -> Result<Value, Ending> {
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
    let target = format!("{}/client/v4{path}", url.trim_end_matches('/'));
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(ANSWER_MAX))
        .http_status_as_error(false)
        .proxy(None)
        .build()
        .into();
    let bearer = format!("Bearer {token}");
    let sent = match body {
        None => agent.get(&target).header("authorization", &bearer).call(),
        Some(body) => agent
            .post(&target)
            .header("authorization", &bearer)
            .send_json(body),
    };
    let mut response = sent
        .with_context(|| format!("no answer from the API at {url}; is the node running there?"))
        .map_err(Ending::Environment)?;
    let status = response.status();
    let envelope: Value = response
        .body_mut()
        .read_json()
        .with_context(|| format!("{target} answered {status} without the API's envelope"))
        .map_err(Ending::Environment)?;
    match envelope {
        Value::Object(mut keys) if keys.get("success") == Some(&Value::Bool(true)) => {
            Ok(keys.remove("result").unwrap_or(Value::Null))
        }
        other => {
            let said = other["errors"].as_array().into_iter().flatten();
            let said: Vec<&str> = said.filter_map(|error| error["message"].as_str()).collect();
            Err(Ending::Change(anyhow!(
                "{target}: {status}: {}",
                said.join("; ")
            )))
        }
    }
}
