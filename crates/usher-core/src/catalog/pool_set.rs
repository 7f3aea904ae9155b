//! Pool sets: whole replacements of the pools of a load balancer, by where a request is.

use super::Reference;
use crate::rules::FixedResponse;
use crate::steering::PoolSteering;

/// One set; the first that matches a request is used whole. Source: load-balancing API, `pool_sets`.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolSet {
    /// For people; at most 200 characters.
    pub name: String,
    /// True: skipped. Default false.
    pub disabled: bool,
    /// Which requests it is for; `None`: all.
    pub matching: Option<PoolSetMatch>,
    /// Its pools in order of preference. Either this or `fixed_response` is set.
    pub pools: Vec<Reference>,
    /// Weight of a pool that `weights` does not name. Range 0..=1; `None`: 1.
    pub weight_default: Option<f64>,
    /// Weights inside this set, 0..=1.
    pub weights: Vec<(Reference, f64)>,
    /// `None`: that of the load balancer.
    pub fallback: Option<Reference>,
    /// How a pool of the set is chosen. Geo and auto are refused. Default off.
    pub steering: PoolSteering,
    /// The complete answer, instead of pools.
    pub fixed_response: Option<FixedResponse>,
}

impl Default for PoolSet {
    /// One for all requests that has neither pools nor an answer yet, which is a fault.
    fn default() -> PoolSet {
        PoolSet {
            name: String::new(),
            disabled: false,
            matching: None,
            pools: Vec::new(),
            weight_default: None,
            weights: Vec::new(),
            fallback: None,
            steering: PoolSteering::Off,
            fixed_response: None,
        }
    }
}

/// Which requests a pool set is for: all, or those of a place. Exactly one of them is set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolSetMatch {
    /// Every request.
    pub default: bool,
    /// Requests of these places.
    pub places: Option<Places>,
}

/// Places by code. Entries of one list: any of them; several lists: all of them must match. At most
/// 1000 entries in each, and at least one in all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    /// Codes of nodes.
    pub pops: Vec<String>,
    /// ISO 3166-1 alpha-2 codes.
    pub countries: Vec<String>,
    /// Codes of regions.
    pub regions: Vec<String>,
}
