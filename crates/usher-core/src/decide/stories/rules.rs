//! What rules and pool sets make of the request's load balancer.

use super::*;

fn rule(condition: &str, overrides: Overrides<Reference>) -> Rule<Reference> {
    Rule {
        name: "r".to_owned(),
        condition: Condition::parse(condition).unwrap(),
        disabled: false,
        priority: None,
        terminates: false,
        fixed_response: None,
        overrides,
        transform: Transform::default(),
    }
}

#[test]
fn rules_replace_pools_answer_and_renew_sessions() {
    let sample = pinned(AffinityMode::Cookie, |draft| {
        let write = Overrides {
            pools: Some(references(draft, "c")),
            ..Overrides::default()
        };
        let checkout = Overrides {
            affinity_ttl: Some(Duration::from_secs(604_800)),
            ..Overrides::default()
        };
        let mut teapot = rule("http.request.uri.path eq \"/tea\"", Overrides::default());
        teapot.fixed_response = Some(FixedResponse {
            status: 418,
            content_type: None,
            location: None,
            body: "short and stout".to_owned(),
        });
        draft.balancers[0].rules = Rules::new(vec![
            rule("http.request.method eq \"POST\"", write),
            rule(
                "starts_with(http.request.uri.path, \"/checkout\")",
                checkout,
            ),
            teapot,
        ]);
    });
    let snapshot = snapshot(sample, "");
    let front = Front::default();
    let get = front.ask(&snapshot, &at(0, 1), Served::First);
    let post = Request {
        method: "POST",
        ..at(1, 1)
    };
    // The pool of the session is not one of this request's: it moves, as told.
    assert!(front.ask(&snapshot, &post, Served::First).starts_with('c'));
    assert!(
        front
            .ask(&snapshot, &at(2, 1), Served::First)
            .ends_with("moved set"),
        "{get}"
    );
    let checkout = Request {
        uri: "/checkout/pay",
        ..at(3, 1)
    };
    let renewed = front.ask(&snapshot, &checkout, Served::First);
    assert!(renewed.ends_with("kept set"), "{renewed}");
    assert_eq!(front.cookie.get().unwrap().ends(), at(3 + 604_800, 0).time);
    // The longer time holds on other paths too.
    assert!(
        front
            .ask(&snapshot, &at(500_000, 1), Served::First)
            .ends_with(" kept")
    );
    let tea = Request {
        uri: "/tea?milk",
        ..at(4, 1)
    };
    let (decision, trace) = explain(&snapshot, &tea, &front);
    let Decision::Respond {
        balancer,
        with: Response::Fixed(source),
    } = decision
    else {
        panic!("{decision:?}")
    };
    assert_eq!(source, FixedSource::Rule(2));
    assert_eq!(snapshot.fixed_response(balancer, source).status, 418);
    let texts: Vec<&str> = trace.steps.iter().map(|step| step.text.as_str()).collect();
    let told = |text: &str| texts.iter().any(|told| told.starts_with(text));
    let third = "rule 3 (r) is true: fixed response; http.request.uri.path is \"/tea\"";
    assert!(told(third), "{texts:?}");
    let first = "rule 1 (r) is false; http.request.method is \"GET\"";
    assert!(told(first), "{texts:?}");
}

#[test]
fn the_first_pool_set_that_matches_is_used_whole() {
    let set = |draft: &Draft, countries: &[&str], pools: &str| PoolSet {
        matching: (!countries.is_empty()).then(|| PoolSetMatch {
            default: false,
            places: Some(crate::catalog::Places {
                countries: countries.iter().map(|code| (*code).to_owned()).collect(),
                ..Default::default()
            }),
        }),
        pools: references(draft, pools),
        ..PoolSet::default()
    };
    let sample = pools(PoolSteering::Random, "a b").with(|draft| {
        let mut off = set(draft, &[], "d");
        off.disabled = true;
        let answer = PoolSet {
            pools: Vec::new(),
            fixed_response: Some(FixedResponse {
                status: 451,
                content_type: None,
                location: None,
                body: String::new(),
            }),
            ..set(draft, &["FR"], "a")
        };
        let sets = vec![off, set(draft, &["KR", "JP"], "c b"), answer];
        draft.balancers[0].pool_sets = sets;
    });
    let snapshot = snapshot(sample, "");
    let of = |country| Request {
        location: Location {
            country: CountryCode::parse(country),
            ..Location::default()
        },
        ..request(HOST, 1)
    };
    let (_, trace) = explain(&snapshot, &of("JP"), &NoPins);
    let shares: Vec<f64> = trace.pools.iter().map(|pool| pool.probability).collect();
    assert_eq!(
        (trace.pools[0].name.as_str(), shares),
        ("c", vec![1.0, 0.0, 0.0])
    );
    let (decision, _) = explain(&snapshot, &of("FR"), &NoPins);
    assert!(matches!(
        decision,
        Decision::Respond {
            with: Response::Fixed(FixedSource::PoolSet(2)),
            ..
        }
    ));
    assert_eq!(
        explain(&snapshot, &of("US"), &NoPins).1.pools[0].probability,
        0.5
    );
    assert_eq!(
        explain(&snapshot, &of(""), &NoPins).1.pools[0].probability,
        0.5
    );
}
