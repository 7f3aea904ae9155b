//! What an account has: sessions, history, limits.

use http::{Response, Uri};
use serde_json::{Value, json};
use usher_core::lease::SessionId;
use usher_pool::{HISTORY_PAGE_MAX, SessionView};

use super::answer::{Fault, Said, json};
use super::{Caller, Front, Style, parameter, session_id, uuid};

/// Entries of a history that asks for no number.
const HISTORY_DEFAULT: u32 = 100;

impl Front {
    pub(super) async fn sessions(&self, caller: &Caller) -> Result<Response<Said>, Fault> {
        let sessions = self.live(caller).await?;
        Ok(json(&json!({"sessions": sessions})))
    }

    /// The same for programs: without a name around it, and in parts.
    pub(super) async fn listed(&self, caller: &Caller, uri: &Uri) -> Result<Response<Said>, Fault> {
        let (offset, limit) = page(uri, u32::MAX)?;
        let sessions = self.live(caller).await?.into_iter();
        let sessions = sessions.skip(offset as usize).take(limit as usize);
        Ok(json(&Value::Array(sessions.collect())))
    }

    async fn live(&self, caller: &Caller) -> Result<Vec<Value>, Fault> {
        let mut all = Vec::new();
        for pool in self.sessions.pools().iter() {
            all.extend(pool.sessions(caller.account.id).await?);
        }
        all.sort_by_key(newest_first);
        Ok(all.iter().map(|view| written(caller, view)).collect())
    }

    pub(super) async fn session(&self, caller: &Caller, id: &str) -> Result<Response<Said>, Fault> {
        let (_, view) = self
            .sessions
            .find(caller.account.id, session_id(id)?)
            .await?;
        Ok(json(&written(caller, &view)))
    }

    pub(super) async fn history(
        &self,
        caller: &Caller,
        uri: &Uri,
    ) -> Result<Response<Said>, Fault> {
        let (offset, limit) = page(uri, HISTORY_DEFAULT)?;
        let limit = limit.min(HISTORY_PAGE_MAX);
        let mut all = Vec::new();
        // Of several regions together, the first part of the whole is within the first of each.
        let reach = offset.saturating_add(limit).min(HISTORY_PAGE_MAX);
        for pool in self.sessions.pools().iter() {
            all.extend(pool.history(caller.account.id, 0, reach).await?);
        }
        all.sort_by_key(newest_first);
        let part = all.iter().skip(offset as usize).take(limit as usize);
        let history: Vec<Value> = part.map(|view| written(caller, view)).collect();
        Ok(json(&json!({"history": history})))
    }

    pub(super) async fn limits(&self, caller: &Caller) -> Result<Response<Said>, Fault> {
        let Some(home) = self.sessions.pools().first().cloned() else {
            return Err(Fault::unbuilt("an account without a region"));
        };
        let limits = caller.account.limits;
        let account = home.account(caller.account.id, limits).await?;
        let active = account.sessions.iter();
        let active: Vec<Value> = active
            .map(|session| json!({"id": uuid(session.0)}))
            .collect();
        let wait = u64::try_from(account.wait.as_millis()).unwrap_or(u64::MAX);
        Ok(json(&json!({
            "activeSessions": active,
            "maxConcurrentSessions": limits.concurrent,
            "allowedBrowserAcquisitions": u8::from(wait == 0),
            "timeUntilNextAllowedBrowserAcquisition": wait,
            "usedBrowserTimeSeconds": account.used.as_secs_f64(),
        })))
    }

    pub(super) async fn close(&self, caller: &Caller, id: &str) -> Result<Response<Said>, Fault> {
        let closed = self.sessions.close(caller.account.id, session_id(id)?);
        let status = if closed.await? { "closing" } else { "closed" };
        Ok(json(&json!({"status": status})))
    }
}

fn newest_first(view: &SessionView) -> (std::cmp::Reverse<i64>, SessionId) {
    (std::cmp::Reverse(view.started.as_millis()), view.session)
}

fn written(caller: &Caller, view: &SessionView) -> Value {
    let mut told = json!({
        "sessionId": uuid(view.session.0),
        "startTime": view.started.as_millis(),
    });
    if let Some((ended, reason)) = view.ended {
        told["endTime"] = ended.as_millis().into();
        told["closeReason"] = reason.number().into();
        told["closeReasonText"] = reason.as_str().into();
    } else {
        // Who has no connection is free: that is judged by there being none.
        let connection = view
            .connection
            .filter(|connection| connection.ended.is_none());
        if let Some(connection) = connection {
            told["connectionId"] = uuid(connection.id.0).into();
            told["connectionStartTime"] = connection.started.as_millis().into();
        }
        if caller.style == Style::Api {
            told["webSocketDebuggerUrl"] = caller.browser_url(view.session).into();
        }
    }
    told
}

/// Where a part of a list begins, and how long it is.
fn page(uri: &Uri, limit: u32) -> Result<(u32, u32), Fault> {
    let number = |name: &str, default: u32| {
        parameter(uri.query(), name).map_or(Ok(default), |text| {
            let read = text.parse::<u32>();
            read.map_err(|_| Fault::bad(format!("{name} {text:?}: a whole number")))
        })
    };
    Ok((number("offset", 0)?, number("limit", limit)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_list_is_asked_for_by_numbers() {
        let of = |text: &str| page(&text.parse().expect("a path"), 100).ok();
        assert_eq!(of("/v1/history"), Some((0, 100)));
        assert_eq!(of("/v1/history?limit=5&offset=7"), Some((7, 5)));
        assert_eq!(of("/v1/history?limit=x"), None);
        assert_eq!(of("/v1/history?offset=-1"), None);
    }
}
