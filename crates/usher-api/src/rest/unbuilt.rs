//! Parts that are named in the API and not there yet: refused by name, so that nobody waits for
//! what will not come.

use http::Method;

use super::{Call, Needs, Pending, Route, route};
use crate::access::Product;
use crate::envelope::ApiError;

pub(crate) fn routes() -> Vec<Route> {
    let mut all = Vec::new();
    let needs = [
        Needs::Read(Product::LoadBalancing),
        Needs::Edit(Product::LoadBalancing),
    ];
    both(
        &mut all,
        "/zones/{zone_id}/spectrum/apps",
        "spectrum_app",
        needs,
        spectrum,
    );
    all.push(route(
        Method::POST,
        "/usher/verdicts",
        "report_verdict",
        "Takes the verdict of a prober elsewhere (not built yet)",
        Needs::Edit(Product::LoadBalancing),
        |_| refuse("verdicts of other probers are not built yet: this node goes by its own probes"),
    ));
    all
}

fn both(
    all: &mut Vec<Route>,
    path: &str,
    noun: &str,
    [read, edit]: [Needs; 2],
    run: fn(Call) -> Pending,
) {
    let item = format!("{path}/{{{noun}_id}}");
    let text = "Is not built yet";
    for (method, path, verb, needs) in [
        (Method::GET, path, "list", read),
        (Method::POST, path, "create", edit),
        (Method::GET, item.as_str(), "get", read),
        (Method::PUT, item.as_str(), "replace", edit),
        (Method::DELETE, item.as_str(), "delete", edit),
    ] {
        all.push(route(
            method,
            path,
            &format!("{verb}_{noun}"),
            text,
            needs,
            run,
        ));
    }
}

fn spectrum(_: Call) -> Pending {
    refuse("the front for tcp and udp is not built yet")
}

fn refuse(what: &'static str) -> Pending {
    Box::pin(async { Err(ApiError::Unbuilt(what.to_owned())) })
}
