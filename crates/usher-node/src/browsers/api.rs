//! Browsers, as the API asks for them.
//!
//! Who asks was settled there; a Worker's secret is settled by the binding. Both come to the same
//! table, on the threads of the browsers: a relay between a client and its browser takes nothing from
//! the task that owns the engine, on whose thread the API reads requests.

use std::sync::Arc;

use http_body_util::Full;
use tokio::task::JoinSet;
use usher_api::browsers::{Answering, Asked, Body, BrowserFront, Style};
use usher_broker::wire::{self, Caller};
use usher_core::id::Id;

use super::Browsers;

/// The browsers of a node, for its API.
#[derive(Debug)]
pub(crate) struct Asking(pub(crate) Arc<Browsers>);

impl BrowserFront for Asking {
    fn accounts(&self) -> Vec<(Id, String)> {
        let accounts = self.0.accounts();
        accounts
            .iter()
            .map(|account| (account.id, account.name.clone()))
            .collect()
    }

    fn answer(&self, asked: Asked) -> Answering {
        let browsers = Arc::clone(&self.0);
        Box::pin(async move {
            let (front, runtime) = browsers.front().await?;
            let caller = Caller {
                account: browsers.account(asked.account)?,
                style: match asked.style {
                    Style::Bare => wire::Style::Api,
                    Style::Envelope => wire::Style::Envelope,
                },
                base: asked.base.into(),
                once: asked.once.map(Into::into),
            };
            let answering = async move {
                let request = asked.request.map(Full::new);
                front.answer(caller, &asked.path, request).await
            };
            // Dropped with this, when nobody waits for the answer any more.
            let mut answer = JoinSet::new();
            answer.spawn_on(answering, &runtime);
            let answer = answer.join_next().await?.ok()?;
            Some(answer.map(Body::new))
        })
    }
}
