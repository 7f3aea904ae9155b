//! The node itself: its state, its explanations, and the description of its API.

use http::Method;
use serde_json::Value;

use super::{Call, Needs, Reply, Route, openapi, route};
use crate::access::Product;
use crate::envelope::{ApiError, messages};
use crate::server::{apart, state_of};
use crate::wire::explain::Question;

pub(crate) fn routes() -> Vec<Route> {
    let read = Needs::Read(Product::LoadBalancing);
    vec![
        route(
            Method::GET,
            "/usher/state",
            "get_state",
            "Shows the state of this node",
            read,
            |call| Box::pin(show(call)),
        ),
        route(
            Method::POST,
            "/usher/explain",
            "explain",
            "Decides one request and says why",
            read,
            |call| Box::pin(explain(call)),
        ),
        route(
            Method::GET,
            "/openapi.json",
            "get_description",
            "This description",
            Needs::Nothing,
            |_| Box::pin(async { Ok(Reply::Bare(openapi::document())) }),
        ),
    ]
}

async fn show(call: Call) -> Result<Reply, ApiError> {
    let shown = apart(move || {
        let control = &call.app.control;
        let view = control.view();
        state_of(&**control, &view)
    });
    Ok(Reply::result(&shown.await))
}

async fn explain(call: Call) -> Result<Reply, ApiError> {
    let body: Value = call.json()?;
    let question = Question::read(&body).map_err(ApiError::Invalid)?;
    let control = &call.app.control;
    let view = control.view();
    let answer = question.answer(&view.snapshot, &view, control.now(), control.draw());
    answer
        .map(|answer| Reply::Result(answer.to_string(), messages(question.notes()), None))
        .map_err(ApiError::Invalid)
}
