//! Rules: what a load balancer does differently for some requests.
//!
//! [`condition`] is the language, [`facts`] what it may ask. A [`Rule`] says what holds when its
//! condition does, and [`Rules::apply`] lays all of them on one request. Nothing here knows pools or
//! steering: the outcome points into the rules that matched, and the decision takes from it what it
//! needs, so a request that matches no rule costs no more than its conditions.

pub mod condition;
pub mod facts;
mod limits;
mod overrides;
mod transform;

pub use condition::Condition;
pub use facts::Facts;
pub(crate) use limits::header_faults;
pub use limits::{
    CONTENT_TYPE_LEN_MAX, LOCATION_LEN_MAX, MESSAGE_BODY_LEN_MAX, NAME_LEN_MAX, RULES_MAX,
    RuleError, RuleFault, RuleField,
};
pub use overrides::{Ecs, Laid, Location, LocationMode, Overrides, PoolMap};
pub use transform::{
    EDITS_MAX, Edit, HeaderEdit, PathRewrite, TEMPLATE_LEN_MAX, Template, Transform, Values,
    Variable,
};

/// One rule, as it was written. `P` is how a pool is named: by reference in the catalog, by index
/// in a snapshot.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule<P> {
    /// For people. At most [`NAME_LEN_MAX`] characters.
    pub name: String,
    /// When it applies. Of empty text: always.
    pub condition: Condition,
    /// True: skipped.
    pub disabled: bool,
    /// Lower runs first; equal ones in the order of the list. Absent counts as 0.
    pub priority: Option<u64>,
    /// Whether a match is the last.
    pub terminates: bool,
    /// The answer that ends the request; a rule that has one terminates, whatever `terminates` says.
    pub fixed_response: Option<FixedResponse>,
    /// What is different.
    pub overrides: Overrides<P>,
    /// What is done to the request and its answer on the way.
    pub transform: Transform,
}

/// An answer without an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedResponse {
    /// Range 200..=599, default 200.
    pub status: u16,
    /// `Content-Type`, at most [`CONTENT_TYPE_LEN_MAX`] characters.
    pub content_type: Option<String>,
    /// `Location`, at most [`LOCATION_LEN_MAX`] characters.
    pub location: Option<String>,
    /// The body, at most [`MESSAGE_BODY_LEN_MAX`] characters. Default empty.
    pub body: String,
}

impl<P> Rule<P> {
    /// Whether a match ends the evaluation.
    #[must_use]
    pub fn ends(&self) -> bool {
        self.terminates || self.fixed_response.is_some()
    }
}

/// The rules of a load balancer in the order in which they run.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules<P> {
    rules: Box<[Rule<P>]>,
    /// Places in `rules`, sorted by priority; disabled ones left out.
    order: Box<[u32]>,
}

impl<P> Default for Rules<P> {
    fn default() -> Rules<P> {
        Rules::new(Vec::new())
    }
}

impl<P> Rules<P> {
    /// From the list as it was written.
    #[must_use]
    pub fn new(rules: Vec<Rule<P>>) -> Rules<P> {
        let places = (0_u32..).zip(&rules).filter(|(_, rule)| !rule.disabled);
        let mut order: Vec<u32> = places.map(|(place, _)| place).collect();
        // Stable, so without any priority the order is that of the list.
        order.sort_by_key(|&place| rules[place as usize].priority.unwrap_or(0));
        Rules {
            rules: rules.into(),
            order: order.into(),
        }
    }

    /// Whether no rule can hold: there is none, or all are disabled.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The list as it was written.
    #[must_use]
    pub fn as_written(&self) -> &[Rule<P>] {
        &self.rules
    }

    /// The same rules with pools named in another way.
    #[must_use]
    pub fn map_pools<Q>(&self, mut pool: impl FnMut(&P) -> Q) -> Rules<Q> {
        let rules = self.rules.iter().map(|rule| Rule {
            name: rule.name.clone(),
            condition: rule.condition.clone(),
            disabled: rule.disabled,
            priority: rule.priority,
            terminates: rule.terminates,
            fixed_response: rule.fixed_response.clone(),
            overrides: rule.overrides.map_pools(&mut pool),
            transform: rule.transform.clone(),
        });
        Rules {
            rules: rules.collect(),
            order: self.order.clone(),
        }
    }

    /// Those of an [`Outcome`], in the order of the rules.
    pub fn transforms(&self, of: Transforms) -> impl Iterator<Item = &Transform> {
        let all = self
            .order
            .iter()
            .map(|&place| &self.rules[place as usize].transform);
        let all = all.filter(|transform| !transform.is_empty());
        (all.enumerate())
            .filter_map(move |(place, transform)| of.contains(place).then_some(transform))
    }

    /// Lays the rules on one request: in order, each that holds replaces what it names, until one
    /// ends it.
    #[must_use]
    pub fn apply<'r>(&'r self, facts: &Facts<'_>) -> Outcome<'r, P> {
        self.apply_and_tell(facts, &mut |_, _| {})
    }

    /// The same, and says of each rule that was asked whether it holds, with its place in
    /// [`Rules::as_written`]. Rules that are disabled or behind the end are not asked.
    #[must_use]
    pub fn apply_and_tell<'r>(
        &'r self,
        facts: &Facts<'_>,
        tell: &mut dyn FnMut(usize, bool),
    ) -> Outcome<'r, P> {
        let mut outcome = Outcome::default();
        let mut changing = 0;
        for &place in &self.order {
            let place = place as usize;
            let rule = &self.rules[place];
            let own = changing;
            changing += usize::from(!rule.transform.is_empty());
            let holds = rule.condition.matches(facts);
            tell(place, holds);
            if !holds {
                continue;
            }
            outcome.last = Some(place);
            outcome.overrides.lay(&rule.overrides);
            if changing > own {
                outcome.transforms.insert(own);
            }
            outcome.response = rule.fixed_response.as_ref();
            if rule.ends() {
                break;
            }
        }
        outcome
    }
}

/// Which of the rules that change requests hold for one. A set of bits, so that deciding takes no
/// memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Transforms(u64);

impl Transforms {
    /// The most rules of a load balancer that may change requests.
    pub const MAX: usize = 64;

    /// Whether nothing is to be changed.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn insert(&mut self, place: usize) {
        if place < Transforms::MAX {
            self.0 |= 1 << place;
        }
    }

    fn contains(self, place: usize) -> bool {
        place < Transforms::MAX && self.0 & (1 << place) != 0
    }
}

/// What the rules say of one request.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome<'r, P> {
    /// Place in [`Rules::as_written`] of the last rule that held.
    pub last: Option<usize>,
    /// The answer, if a rule gives one.
    pub response: Option<&'r FixedResponse>,
    /// What is different, of all rules that held.
    pub overrides: Laid<'r, P>,
    /// What is done on the way, to be read with [`Rules::transforms`].
    pub transforms: Transforms,
}

impl<P> Default for Outcome<'_, P> {
    fn default() -> Self {
        Outcome {
            last: None,
            response: None,
            overrides: Laid::default(),
            transforms: Transforms::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::facts::{Front, Http};
    use super::*;
    use crate::request::Scheme;
    use crate::steering::PoolSteering;
    use crate::time::Wall;

    type Pool = &'static str;

    fn rule(name: &str, condition: &str) -> Rule<Pool> {
        Rule {
            name: name.to_owned(),
            condition: Condition::parse(condition).unwrap(),
            disabled: false,
            priority: None,
            terminates: false,
            fixed_response: None,
            overrides: Overrides::default(),
            transform: Transform::default(),
        }
    }

    fn ttl(name: &str, condition: &str, ttl_secs: u32) -> Rule<Pool> {
        let mut rule = rule(name, condition);
        rule.overrides.ttl_secs = Some(ttl_secs);
        rule
    }

    fn response() -> FixedResponse {
        FixedResponse {
            status: 503,
            content_type: None,
            location: None,
            body: "later".to_owned(),
        }
    }

    /// Runs the rules on `GET /blog`; what was asked, as `+name` and `-name`.
    fn run(rules: &Rules<Pool>) -> (Outcome<'_, Pool>, String) {
        let headers: [(&str, &str); 0] = [];
        let facts = Facts {
            balancer: "shop.example.com",
            node: "SJC",
            region: None,
            client: IpAddr::from([192, 0, 2, 1]),
            country: None,
            front: Front::Http(Http {
                scheme: Scheme::Http,
                method: "GET",
                host: "shop.example.com",
                uri: "/blog",
                version: "HTTP/1.1",
                headers: &headers,
                time: Wall::from_millis(0),
            }),
        };
        let mut asked = Vec::new();
        let outcome = rules.apply_and_tell(&facts, &mut |place, holds| {
            let sign = if holds { '+' } else { '-' };
            asked.push(format!("{sign}{}", rules.as_written()[place].name));
        });
        assert_eq!(rules.apply(&facts), outcome);
        (outcome, asked.join(" "))
    }

    const BLOG: &str = "http.request.uri.path contains \"/blog\"";
    const POST: &str = "http.request.method eq \"POST\"";

    #[test]
    fn rules_run_by_priority_and_then_in_the_order_of_the_list() {
        let with = |priorities: [Option<u64>; 4]| {
            let names = ["a", "b", "c", "d"];
            let rules = names
                .into_iter()
                .zip(priorities)
                .map(|(name, priority)| Rule {
                    priority,
                    ..rule(name, "")
                });
            run(&Rules::new(rules.collect())).1
        };
        assert_eq!(with([None; 4]), "+a +b +c +d");
        assert_eq!(with([Some(3), Some(2), Some(1), Some(0)]), "+d +c +b +a");
        assert_eq!(with([Some(7), Some(1), Some(7), Some(1)]), "+b +d +a +c");
        assert_eq!(with([Some(1), None, Some(u64::MAX), None]), "+b +d +a +c");
    }

    #[test]
    fn disabled_rules_are_not_asked_and_a_termination_is_the_end() {
        let mut rules = vec![
            ttl("a", POST, 10),
            ttl("b", "", 20),
            ttl("c", BLOG, 30),
            ttl("d", "", 40),
        ];
        rules[1].disabled = true;
        rules[0].terminates = true;
        let (outcome, asked) = run(&Rules::new(rules.clone())).clone_parts();
        assert_eq!((asked.as_str(), outcome), ("-a +c +d", Some(40)));
        rules[2].terminates = true;
        let (outcome, asked) = run(&Rules::new(rules.clone())).clone_parts();
        assert_eq!((asked.as_str(), outcome), ("-a +c", Some(30)));
        rules[2].terminates = false;
        rules[2].fixed_response = Some(response());
        let rules = Rules::new(rules);
        let (outcome, asked) = run(&rules);
        assert_eq!(asked, "-a +c");
        assert_eq!(outcome.response, Some(&response()));
        assert_eq!(outcome.last, Some(2));
    }

    trait Parts {
        fn clone_parts(self) -> (Option<u32>, String);
    }

    impl Parts for (Outcome<'_, Pool>, String) {
        fn clone_parts(self) -> (Option<u32>, String) {
            (self.0.overrides.ttl_secs, self.1)
        }
    }

    #[test]
    fn a_later_rule_replaces_only_what_it_names() {
        let mut first = ttl("a", "", 10);
        first.overrides.steering = Some(PoolSteering::Random);
        first.overrides.fallback = Some("x");
        first.overrides.country_pools = Some(vec![("US".to_owned(), vec!["us"])]);
        let mut second = rule("b", BLOG);
        second.overrides.fallback = Some("y");
        second.overrides.default_pools = Some(vec!["p", "q"]);
        let mut third = rule("c", POST);
        third.overrides.fallback = Some("z");
        let rules = Rules::new(vec![first.clone(), second.clone(), third]);
        let laid = run(&rules).0.overrides;
        assert_eq!(laid.ttl_secs, Some(10));
        assert_eq!(laid.steering, Some(PoolSteering::Random));
        assert_eq!(laid.fallback, Some(&"y"));
        assert_eq!(laid.default_pools, Some(["p", "q"].as_slice()));
        assert_eq!(laid.country_pools.map(<[_]>::len), Some(1));
        assert_eq!(laid.region_pools, None);

        second.overrides.pools = Some(vec!["only"]);
        let rules = Rules::new(vec![first, second]);
        let laid = run(&rules).0.overrides;
        assert_eq!(laid.default_pools, Some(["only"].as_slice()));
        let maps = [laid.country_pools, laid.region_pools, laid.pop_pools];
        assert!(maps.iter().all(|map| map.is_some_and(<[_]>::is_empty)));

        let named = rules.map_pools(|pool| pool.to_uppercase());
        let overrides = &named.as_written()[1].overrides;
        assert_eq!(overrides.pools, Some(vec!["ONLY".to_owned()]));
        assert_eq!(overrides.fallback.as_deref(), Some("Y"));
    }

    #[test]
    fn no_rules_say_nothing() {
        let rules = Rules::default();
        let (outcome, asked) = run(&rules);
        assert_eq!((outcome, asked.as_str()), (Outcome::default(), ""));
    }
}
