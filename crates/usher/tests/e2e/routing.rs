//! Which endpoint a request reaches: shares, hosts, the fallback pool.

use crate::support::config::HOST;
use crate::support::{Config, Endpoint, Usher};

#[test]
fn a_request_reaches_the_endpoint_and_its_answer_the_client() {
    let endpoint = Endpoint::named("a");
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    let answer = usher.get("/some/path?and=query");
    assert_eq!((answer.status(), answer.text().as_str()), (200, "a"));
    let arrived = endpoint.next();
    assert_eq!(arrived.start, "GET /some/path?and=query HTTP/1.1");
    assert_eq!(arrived.field("host"), Some(HOST));
}
