//! Choosing a pool: steering, and load shedding that pushes a request on.

use super::{Case, Purpose};
use crate::assume::UnderWay;
use crate::catalog::{EndpointIx, PoolIx, ShedPolicy, Shedding};
use crate::chance::{Chance, part_of};
use crate::snapshot::{Counts, PoolHealth};
use crate::steering::{
    Among, CANDIDATES_MAX, EndpointSteering, Point, PoolSteering, Weights, by_load, first, least,
    rendezvous,
};

/// With more pools than this that may shed a request, an explanation counts draws instead of adding
/// up chances, of which there would be two to the power of that number.
pub(super) const SHEDDING_EXACT_MAX: usize = 16;

/// How many draws it counts then.
const SAMPLES: u32 = 20_000;

/// Percentages are compared in steps of 0.01.
const PERCENT_STEPS: u64 = 10_000;

/// Candidates that cannot be chosen any more: they shed the request, or it comes from there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Passed([u64; CANDIDATES_MAX / 64]);

impl Passed {
    pub(super) fn insert(&mut self, place: usize) {
        if let Some(word) = self.0.get_mut(place / 64) {
            *word |= 1 << (place % 64);
        }
    }

    fn contains(&self, place: usize) -> bool {
        self.0
            .get(place / 64)
            .is_some_and(|word| word & (1 << (place % 64)) != 0)
    }
}

/// The chances of the candidate pools, and of the fallback pool.
pub(super) struct PoolChances {
    pub(super) each: Vec<f64>,
    pub(super) fallback: f64,
    pub(super) approximate: bool,
}

impl<C: Counts> Case<'_, C> {
    /// The pool that steering and shedding come to; `None`: the fallback pool is next. Pools that
    /// shed the request are passed afterwards.
    pub(super) fn choose_pool(
        &self,
        passed: &mut Passed,
        purpose: Purpose,
        tracer: &mut impl crate::trace::Tracer,
    ) -> Option<PoolIx> {
        for round in 0.. {
            let place = self.weigh_pools(passed).draw(self.draw(purpose, round))?;
            let pool = self.pools[place];
            if !self.sheds(pool, purpose) {
                return Some(pool);
            }
            tracer.step(crate::trace::StepKind::Shedding, || {
                format!("pool {:?} sheds this request", self.pool_name(pool))
            });
            passed.insert(place);
        }
        None
    }

    /// Takes `pool` out of the candidates, if it is one.
    pub(super) fn pass(&self, passed: &mut Passed, pool: PoolIx) {
        if let Some(place) = self.pools.iter().position(|&known| known == pool) {
            passed.insert(place);
        }
    }

    /// The chance of each candidate to be the next that is tried.
    pub(super) fn weigh_pools(&self, passed: &Passed) -> Weights {
        let usable = |(place, &pool): (usize, &PoolIx)| {
            let health = self.snapshot.pool_health(pool);
            (health.usable && !passed.contains(place)).then_some((pool, health))
        };
        let all = || self.pools.iter().enumerate().map(usable);
        match self.plan.steering.among() {
            Among::Ordered => first(all().map(|candidate| candidate.is_some())),
            Among::Fastest => least(
                all().map(|candidate| candidate.map(|(pool, health)| self.latency(pool, health))),
            ),
            Among::Nearest => {
                let here = self.location.coordinates.map(Point::new);
                least(all().map(|candidate| {
                    candidate.map(|(pool, _)| {
                        let there = self.snapshot.topology().point(pool);
                        Some(here?.to(there?).0)
                    })
                }))
            }
            Among::Drawn(_) if self.by_address() => {
                let keyed = all().enumerate().filter_map(|(place, candidate)| {
                    let (pool, _) = candidate?;
                    let id = self.snapshot.catalog().pool(pool).id;
                    Some((place, self.plan.weight(pool).shares(), id))
                });
                rendezvous(self.hash_key, self.request.client, keyed)
            }
            Among::Drawn(steering) => by_load(all().map(|candidate| match candidate {
                Some((pool, _)) => {
                    let shares = self.plan.weight(pool).shares();
                    (shares, self.pool_load(pool, steering))
                }
                None => (0, 0),
            })),
        }
    }

    /// Nanoseconds.
    pub(super) fn latency(&self, pool: PoolIx, health: &PoolHealth) -> Option<f64> {
        let assumed = self.assumed.and_then(|assumed| {
            let found = assumed.latency.iter().find(|(of, _)| *of == pool)?;
            Some(found.1)
        });
        let latency = assumed.or(health.latency)?;
        Some(latency.as_secs_f64() * 1e9)
    }

    /// What is under way in a pool, as far as the method looks at it.
    pub(super) fn pool_load(&self, pool: PoolIx, steering: EndpointSteering) -> u32 {
        if matches!(steering, EndpointSteering::Random | EndpointSteering::Hash) {
            return 0;
        }
        let endpoints = 0..self.snapshot.pool_health(pool).endpoints.len();
        let loads = endpoints
            .map(|place| self.load(self.snapshot.topology().endpoint_of(pool, place), steering));
        loads.fold(0, u32::saturating_add)
    }

    /// What is under way at an endpoint, as far as the method looks at it.
    pub(super) fn load(&self, endpoint: EndpointIx, steering: EndpointSteering) -> u32 {
        let what = match steering {
            EndpointSteering::Random | EndpointSteering::Hash => return 0,
            EndpointSteering::LeastOutstandingRequests => UnderWay::Requests,
            EndpointSteering::LeastConnections => UnderWay::Connections,
        };
        let assumed = self.assumed.and_then(|assumed| {
            let mut all = assumed.under_way.iter();
            all.find(|(of, known, _)| (*of, *known) == (endpoint, what))
        });
        match (assumed, what) {
            (Some(&(_, _, count)), _) => count,
            (None, UnderWay::Requests) => self.counts.open_requests(endpoint),
            (None, UnderWay::Connections) => self.counts.open_connections(endpoint),
        }
    }

    fn shedding(&self, pool: PoolIx) -> Shedding {
        let own = self.snapshot.catalog().pool(pool).shedding;
        let assumed = self.assumed.and_then(|assumed| {
            let found = assumed.shed.iter().find(|(of, _)| *of == pool)?;
            Some(found.1)
        });
        match assumed {
            Some(percent) => Shedding {
                default_percent: percent,
                session_percent: percent,
                ..own
            },
            None => own,
        }
    }

    fn sheds(&self, pool: PoolIx, purpose: Purpose) -> bool {
        let shedding = self.shedding(pool);
        let steps = percent_steps(shedding.default_percent);
        steps > 0
            && match shedding.default_policy {
                ShedPolicy::Random => {
                    let which = u64::from(pool.0) << 3 | purpose as u64;
                    part_of(PERCENT_STEPS, self.draw(Purpose::Shed, which)) < steps
                }
                ShedPolicy::Hash => self.sheds_address(pool, steps),
            }
    }

    /// Whether a visitor who is pinned to `pool` is pushed on.
    pub(super) fn sheds_pinned(&self, pool: PoolIx) -> bool {
        let steps = percent_steps(self.shedding(pool).session_percent);
        steps > 0 && self.sheds_address(pool, steps)
    }

    fn sheds_address(&self, pool: PoolIx, steps: u64) -> bool {
        let id = self.snapshot.catalog().pool(pool).id;
        self.hash_key.of_shedding(self.request.client, id) % PERCENT_STEPS < steps
    }

    /// The chance that `pool` sheds this request: exact for what is drawn, 0 or 1 for what depends
    /// on the address.
    pub(super) fn shed_chance(&self, pool: PoolIx) -> f64 {
        let shedding = self.shedding(pool);
        let steps = percent_steps(shedding.default_percent);
        match shedding.default_policy {
            ShedPolicy::Random => steps as f64 / PERCENT_STEPS as f64,
            ShedPolicy::Hash => f64::from(u8::from(steps > 0 && self.sheds_address(pool, steps))),
        }
    }

    /// The chances of all candidates over every draw that there is, when those of `passed` are out.
    ///
    /// A pool that is drawn may shed the request, and then the draw is made anew among the others:
    /// so the chances are added up over all sets of pools that may have shed it before.
    pub(super) fn pool_chances(&self, passed: &Passed) -> PoolChances {
        let sheds: Vec<f64> = self
            .pools
            .iter()
            .map(|&pool| self.shed_chance(pool))
            .collect();
        let mut chances = PoolChances {
            each: vec![0.0; self.pools.len()],
            fallback: 0.0,
            approximate: false,
        };
        let doubtful = sheds.iter().filter(|&&chance| chance > 0.0 && chance < 1.0);
        if doubtful.count() > SHEDDING_EXACT_MAX {
            self.sample_chances(passed, &sheds, &mut chances);
            return chances;
        }
        // Sets grow, so each is complete before it is taken up: by how many are in it, then by which.
        let mut open = std::collections::BTreeMap::from([((0, passed.clone()), 1.0)]);
        while let Some(((size, passed), mass)) = open.pop_first() {
            let weights = self.weigh_pools(&passed);
            if weights.is_empty() {
                chances.fallback += mass;
                continue;
            }
            for (place, shed) in sheds.iter().enumerate() {
                let tried = mass * weights.probability(place);
                if tried > 0.0 {
                    chances.each[place] += tried * (1.0 - shed);
                    if *shed > 0.0 {
                        let mut more = passed.clone();
                        more.insert(place);
                        *open.entry((size + 1, more)).or_insert(0.0) += tried * shed;
                    }
                }
            }
        }
        chances
    }

    fn sample_chances(&self, passed: &Passed, sheds: &[f64], chances: &mut PoolChances) {
        chances.approximate = true;
        let mut chance = Chance::new(self.request.draw);
        let share = 1.0 / f64::from(SAMPLES);
        for _ in 0..SAMPLES {
            let mut passed = passed.clone();
            loop {
                let Some(place) = self.weigh_pools(&passed).draw(chance.draw()) else {
                    chances.fallback += share;
                    break;
                };
                let drawn = chance.draw() as f64 / u64::MAX as f64;
                if drawn >= sheds[place] {
                    chances.each[place] += share;
                    break;
                }
                passed.insert(place);
            }
        }
    }

    /// The weight that steering gives a pool, 0..=1: of methods that look at none, 1.
    pub(super) fn weight_shown(&self, pool: PoolIx) -> f64 {
        self.plan.weight(pool).as_f64()
    }

    pub(super) fn steering_name(&self) -> &'static str {
        PoolSteering::name(self.plan.steering)
    }
}

fn percent_steps(percent: f64) -> u64 {
    // `as` saturates and takes NaN to 0: both are what is wanted here.
    (percent.clamp(0.0, 100.0) * 100.0).round() as u64
}
