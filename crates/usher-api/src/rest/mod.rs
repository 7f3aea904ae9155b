//! REST under `/client/v4`: one table of routes, and a few handlers that all resources share.
//!
//! Every call goes the same way: the path is found in the table, the caller is known and allowed,
//! the account or zone of the path is there, the body is in, and only then the route's own work
//! begins. The same table is what the description of the API is made of, so no route can be
//! missing from it.

mod alerting;
mod balancers;
mod desired;
mod document;
mod events;
mod fields;
mod health;
pub mod inventory;
mod letters;
mod list;
mod monitor_groups;
mod monitors;
mod moves;
mod names;
mod node;
mod openapi;
mod policies;
mod pools;
mod previews;
mod rate;
mod references;
mod regions;
mod resource;
mod rooms;
mod search;
mod tokens;
mod unbuilt;
mod webhooks;
mod write;
mod zones;

use std::pin::Pin;
use std::sync::Arc;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use http::{HeaderMap, Method, Uri};
use serde_json::{Map, Value};
use usher_core::catalog::Zone;
use usher_core::id::Id;
use usher_store::{Revision, Scope, Stamp, State};

pub(crate) use crate::access::Caller;
use crate::access::Product;
use crate::envelope::{ApiError, envelope, noted, ok};
use crate::server::{BODY_MAX, Control};
use crate::wire::reader::ACCOUNT;
use desired::Whole;
pub use desired::{Assembler, Declared, Desired, account};
use document::Field;
pub use letters::{Happened, Letter, What, letters};
use previews::Previews;
use rate::Rates;
use rooms::Drafts;
pub(crate) use rooms::show_draft;

/// What is said of a change that is kept and not yet in force.
const LATE: &str = "kept, and not yet in force on this node: usher status and the log say why";

/// What an answer will be.
pub(crate) type Pending = Pin<Box<dyn Future<Output = Result<Reply, ApiError>> + Send>>;

/// The work of a route.
pub(crate) type Run = fn(Call) -> Pending;

/// The API of a node.
pub(crate) struct App {
    pub(crate) control: Arc<dyn Control>,
    routes: Vec<Route>,
    rates: Rates,
    pub(crate) previews: Previews,
    pub(crate) drafts: Drafts,
}

/// One method of one path.
pub(crate) struct Route {
    pub(crate) method: Method,
    /// From `/client/v4` on; `{name}` stands for one segment.
    pub(crate) path: String,
    /// Its name in the description.
    pub(crate) operation: String,
    /// What it does, for people.
    pub(crate) summary: &'static str,
    pub(crate) needs: Needs,
    /// The fields of its body, if it takes one.
    pub(crate) body: Option<&'static [Field]>,
    /// Bytes of the largest body.
    pub(crate) body_max: usize,
    pub(crate) run: Run,
}

/// What a token must be allowed to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// To be a token.
    Nothing,
    Read(Product),
    Edit(Product),
}

impl Needs {
    /// Each product has numbers of its own for what is wrong.
    fn error(self, error: ApiError) -> ApiError {
        match self {
            Needs::Read(Product::WaitingRooms) | Needs::Edit(Product::WaitingRooms) => {
                error.of_rooms()
            }
            Needs::Read(_) | Needs::Edit(_) | Needs::Nothing => error,
        }
    }
}

/// A call that has come this far: it may be answered.
pub(crate) struct Call {
    pub(crate) app: Arc<App>,
    pub(crate) desired: Arc<Desired>,
    /// What is kept, at the moment of the call.
    pub(crate) state: Arc<State>,
    pub(crate) caller: Caller,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) scope: Scope,
    /// The zone of the path.
    pub(crate) zone: Option<Zone>,
    /// What stands in the path for `{name}`, less account and zone.
    params: Vec<String>,
    pub(crate) query: Vec<(String, String)>,
    /// The client says that it sends this again.
    pub(crate) again: bool,
    pub(crate) body: Bytes,
}

/// What a call is answered.
pub(crate) enum Reply {
    /// A result in JSON, the messages about it, and where the rest of a list is.
    Result(String, Vec<Value>, Option<Value>),
    /// The whole envelope, as it was made when the change was.
    Envelope(String),
    /// The same of a change that is kept, and the revision that it made.
    Kept(String, Revision),
    /// JSON without an envelope.
    Bare(String),
}

impl Reply {
    pub(crate) fn result(result: &Value) -> Reply {
        Reply::Result(result.to_string(), Vec::new(), None)
    }
}

impl Call {
    /// All of what is wanted.
    pub(crate) fn whole(&self) -> Whole<'_> {
        Whole {
            declared: &self.desired.declared,
            state: &self.state,
        }
    }

    /// The accounts that the caller may know of. All but the first are there for their browsers
    /// alone.
    pub(crate) fn accounts(&self) -> Vec<(Id, String)> {
        let mut all = vec![(account(), ACCOUNT.to_owned())];
        let more = self.app.control.browser_front();
        let more = more.map_or_else(Vec::new, |front| front.accounts());
        all.extend(more.into_iter().filter(|(id, _)| *id != account()));
        let own = &self.caller.accounts;
        all.retain(|(_, name)| own.is_empty() || own.contains(name));
        all
    }

    /// The id at that place of the path.
    pub(crate) fn id(&self, place: usize) -> Result<Id, ApiError> {
        let id = self.param(place).parse();
        id.map_err(|_| ApiError::NoRoute(self.path.clone()))
    }

    pub(crate) fn param(&self, place: usize) -> &str {
        self.params.get(place).map_or("", String::as_str)
    }

    /// The last value of a parameter of the query.
    pub(crate) fn query(&self, name: &str) -> Option<&str> {
        let mut found = self.query.iter().rev();
        found
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// A truth in the query.
    pub(crate) fn query_flag(&self, name: &str) -> Result<Option<bool>, ApiError> {
        if self.query.iter().filter(|(key, _)| key == name).count() > 1 {
            let message = format!("{name} is there more than once");
            return Err(ApiError::wrong(&format!("/{name}"), message));
        }
        match self.query(name) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(other) => Err(ApiError::wrong(
                &format!("/{name}"),
                format!("{name} must be true or false, not {other:?}"),
            )),
        }
    }

    /// The body, which must be an object.
    pub(crate) fn object(&self) -> Result<Map<String, Value>, ApiError> {
        match self.json()? {
            Value::Object(map) => Ok(map),
            _ => Err(ApiError::wrong("", "the body must be an object")),
        }
    }

    pub(crate) fn json(&self) -> Result<Value, ApiError> {
        serde_json::from_slice(&self.body).map_err(|error| ApiError::Malformed(error.to_string()))
    }
}

impl App {
    pub(crate) fn new(control: Arc<dyn Control>) -> App {
        App {
            control,
            routes: routes(),
            rates: Rates::default(),
            previews: Previews::default(),
            drafts: Drafts::default(),
        }
    }

    /// Answers one request under `/client/v4`.
    pub(crate) async fn answer(
        self: Arc<App>,
        request: Request<Body>,
    ) -> Result<Response, ApiError> {
        // Before the body: a stranger's is not waited for.
        let (route, mut call) = self.admit(request.method(), request.uri(), request.headers())?;
        if !matches!(call.method, Method::GET | Method::DELETE) {
            let body = to_bytes(request.into_body(), route.body_max).await;
            call.body = body.map_err(|_| ApiError::BodyTooLarge(route.body_max))?;
        }
        let answered = (route.run)(call).await;
        Ok(match answered.map_err(|error| route.needs.error(error))? {
            Reply::Result(result, messages, info) => {
                ok(envelope(&result, &messages, info.as_ref()))
            }
            Reply::Envelope(text) | Reply::Bare(text) => ok(text),
            // Whoever opens or closes a room counts on the very next visitor.
            Reply::Kept(text, revision) if route.needs == Needs::Edit(Product::WaitingRooms) => {
                match self.control.in_force(revision).await {
                    true => ok(text),
                    false => ok(noted(&text, LATE)),
                }
            }
            Reply::Kept(text, _) => ok(text),
        })
    }

    /// Finds the route, and lets in who may take it.
    fn admit<'a>(
        self: &'a Arc<App>,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<(&'a Route, Call), ApiError> {
        let full_path = uri.path();
        let path = below(full_path);
        let nowhere = || ApiError::NoRoute(full_path.to_owned());
        let candidates = self.find(path);
        let first = candidates.first().ok_or_else(nowhere)?;
        let method = match *method {
            Method::HEAD => Method::GET,
            _ => method.clone(),
        };
        let desired = self.control.desired();
        let state = desired.state();
        let caller = self.known(headers, &state, &desired)?;
        let route = candidates.iter().find(|route| route.method == method);
        let route = route.ok_or_else(|| {
            let all = candidates.iter().map(|route| route.method.as_str());
            ApiError::Method(all.collect::<Vec<_>>().join(", "))
        })?;
        let allowed = match route.needs {
            Needs::Nothing => true,
            Needs::Read(product) => caller.reads(product),
            Needs::Edit(product) => caller.edits(product),
        };
        let mut accounts = caller.accounts.iter();
        // Only browsers are other accounts'; what needs no permission tells each what is theirs.
        let account_open = route.needs == Needs::Nothing
            || caller.accounts.is_empty()
            || accounts.any(|name| name == ACCOUNT);
        if !allowed || !account_open {
            return Err(ApiError::Forbidden);
        }
        let whole = Whole {
            declared: &desired.declared,
            state: &state,
        };
        let mut scope = Scope::Account(account());
        let mut zone = None;
        let mut params = Vec::new();
        for (name, value) in matched(&first.path, path).unwrap_or_default() {
            match name {
                "account_id" if value.parse::<Id>().ok() == Some(account()) => {}
                "account_id" => return Err(nowhere()),
                "zone_id" => {
                    let id = value.parse().map_err(|_| nowhere())?;
                    zone = Some(whole.zone(id).ok_or_else(nowhere)?);
                    scope = Scope::Zone(id);
                }
                _ => params.push(value.to_owned()),
            }
        }
        let again = headers.get("x-stainless-retry-count");
        let call = Call {
            app: Arc::clone(self),
            desired,
            state,
            caller,
            method,
            path: full_path.to_owned(),
            scope,
            zone,
            params,
            query: pairs(uri.query().unwrap_or_default()),
            again: again.is_some_and(|count| count.as_bytes() != b"0"),
            body: Bytes::new(),
        };
        Ok((route, call))
    }

    /// Who asks for browsers, if they may ask now.
    pub(crate) fn caller(&self, headers: &HeaderMap) -> Result<Caller, ApiError> {
        let desired = self.control.desired();
        let known = self.known(headers, &desired.state(), &desired);
        known.map_err(|error| match error {
            ApiError::Unauthenticated | ApiError::Forbidden => ApiError::Stranger,
            other => other,
        })
    }

    /// Who calls, if they may call now.
    fn known(
        &self,
        headers: &HeaderMap,
        state: &State,
        desired: &Desired,
    ) -> Result<Caller, ApiError> {
        let caller = self.control.access().caller(headers, state)?;
        self.rates
            .admit(&caller.digest)
            .map_err(ApiError::Limited)?;
        if let (Some(token), Some(store)) = (caller.token, &desired.store) {
            store.note_use(token, Stamp::now());
        }
        Ok(caller)
    }

    /// The routes of this path, of which the one with the most fixed segments is meant.
    fn find(&self, path: &str) -> Vec<&Route> {
        let fixed = |route: &&Route| {
            let segments = route.path.split('/');
            segments.filter(|segment| !segment.starts_with('{')).count()
        };
        let all = || {
            self.routes
                .iter()
                .filter(|route| matched(&route.path, path).is_some())
        };
        let most = all().map(|route| fixed(&route)).max();
        all().filter(|route| Some(fixed(route)) == most).collect()
    }
}

/// The path from `/client/v4` on. Nothing in it is decoded: no id and no word needs that.
fn below(path: &str) -> &str {
    path.strip_prefix("/client/v4").unwrap_or(path)
}

/// What stands for `{name}` in `path`, if it is one of `template`.
pub(crate) fn matched<'a>(template: &'a str, path: &'a str) -> Option<Vec<(&'a str, &'a str)>> {
    let mut values = Vec::new();
    let (mut wanted, mut given) = (template.split('/'), path.split('/'));
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return Some(values),
            (Some(wanted), Some(given)) => {
                let name = wanted.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
                match name {
                    Some(name) if !given.is_empty() && given != ".." => values.push((name, given)),
                    None if wanted == given => {}
                    _ => return None,
                }
            }
            _ => return None,
        }
    }
}

/// The parameters of a query, decoded.
fn pairs(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(key), decoded(value))
        })
        .collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let mut ahead = rest.clone();
                match (digit(ahead.next()), digit(ahead.next())) {
                    (Some(high), Some(low)) => {
                        bytes.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
                        rest = ahead;
                    }
                    _ => bytes.push(byte),
                }
            }
            byte => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Every route there is.
pub(crate) fn routes() -> Vec<Route> {
    let mut all = Vec::new();
    for part in [
        monitors::routes,
        monitor_groups::routes,
        pools::routes,
        balancers::routes,
        zones::routes,
        tokens::routes,
        search::routes,
        regions::routes,
        events::routes,
        rooms::routes,
        node::routes,
        previews::routes,
        policies::routes,
        webhooks::routes,
        unbuilt::routes,
    ] {
        all.extend(part());
    }
    all
}

/// A route, as the parts of the API list them.
pub(crate) fn route(
    method: Method,
    path: &str,
    operation: &str,
    summary: &'static str,
    needs: Needs,
    run: Run,
) -> Route {
    Route {
        method,
        path: path.to_owned(),
        operation: operation.to_owned(),
        summary,
        needs,
        body: None,
        body_max: BODY_MAX,
        run,
    }
}

impl Route {
    /// Takes larger bodies.
    pub(crate) fn with_body_max(mut self, bytes: usize) -> Route {
        self.body_max = bytes;
        self
    }

    pub(crate) fn with_body(mut self, fields: &'static [Field]) -> Route {
        self.body = Some(fields);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_matched_segment_by_segment() {
        let template = "/accounts/{account_id}/load_balancers/pools/{pool_id}";
        let found = matched(template, "/accounts/a/load_balancers/pools/p");
        assert_eq!(found, Some(vec![("account_id", "a"), ("pool_id", "p")]));
        for path in [
            "/accounts/a/load_balancers/pools/",
            "/accounts/a/load_balancers/pools",
            "/accounts/a/load_balancers/pools/p/",
            "/accounts/a/load_balancers/pools/..",
            "/accounts//load_balancers/pools/p",
            "",
        ] {
            assert_eq!(matched(template, path), None, "{path}");
        }
    }

    #[test]
    fn a_query_is_decoded() {
        assert_eq!(
            pairs("a=b%20c+d&&x&%zz=%4"),
            [("a", "b c d"), ("x", ""), ("%zz", "%4")].map(|(k, v)| (k.to_owned(), v.to_owned()))
        );
    }

    #[test]
    fn no_two_routes_are_one() {
        let routes = routes();
        for (at, route) in routes.iter().enumerate() {
            for other in &routes[..at] {
                assert!(
                    (&route.method, &route.path) != (&other.method, &other.path),
                    "{} {}",
                    route.method,
                    route.path
                );
                assert_ne!(route.operation, other.operation);
            }
        }
    }
}
