//! The dependency picture: which of our crates may know which.
//!
//! The table is the picture of ARCHITECTURE.md, written once more so that a manifest that
//! contradicts it fails by name. It lists everything that is allowed, not what is used today.

use cargo_metadata::{DependencyKind, Metadata, Package};

const CORE: &str = "usher-core";

/// Crate, and the crates of ours that it may depend on.
const PICTURE: [(&str, &[&str]); 14] = [
    (CORE, &[]),
    ("usher-sim", &[CORE]),
    ("usher-store", &[CORE]),
    ("usher-rooms", &[CORE]),
    ("usher-pool", &[CORE]),
    ("usher-edge", &["usher-rooms", CORE]),
    ("usher-egress", &["usher-edge", CORE]),
    ("usher-cdp", &[]),
    ("usher-browsers", &["usher-egress", CORE]),
    (
        "usher-broker",
        &[
            "usher-pool",
            "usher-cdp",
            "usher-browsers",
            "usher-egress",
            CORE,
        ],
    ),
    ("usher-api", &["usher-store", "usher-rooms", CORE]),
    (
        "usher-node",
        &[
            "usher-api",
            "usher-edge",
            "usher-rooms",
            "usher-egress",
            "usher-cdp",
            "usher-browsers",
            "usher-broker",
            "usher-pool",
            "usher-store",
            CORE,
        ],
    ),
    (
        "usher",
        &[
            "usher-node",
            "usher-api",
            "usher-edge",
            "usher-rooms",
            "usher-browsers",
            CORE,
        ],
    ),
    ("xtask", &[]),
];

/// What the core may take from others: each reviewed for clocks, entropy and IO.
const CORE_THIRD_PARTY: [&str; 4] = ["memchr", "regex", "siphasher", "thiserror"];

/// Every crate that stands where the picture does not put it.
pub(crate) fn faults(metadata: &Metadata) -> Vec<String> {
    let members = metadata.workspace_packages();
    members
        .iter()
        .flat_map(|package| package_faults(package, &members))
        .collect()
}

fn package_faults(package: &Package, members: &[&Package]) -> Vec<String> {
    let name = package.name.as_str();
    let Some((_, allowed)) = PICTURE.iter().find(|(known, _)| *known == name) else {
        return vec![format!(
            "{name} is not in the dependency picture (xtask/src/picture.rs)"
        )];
    };
    let mut faults = Vec::new();
    for dependency in &package.dependencies {
        let wanted = dependency.name.as_str();
        if members.iter().any(|member| member.name.as_str() == wanted) {
            if !allowed.contains(&wanted) {
                faults.push(format!("{name} must not depend on {wanted}"));
            }
        } else if name == CORE
            && dependency.kind != DependencyKind::Development
            && !CORE_THIRD_PARTY.contains(&wanted)
        {
            faults.push(format!(
                "{name}: {wanted} is not on its list of reviewed crates"
            ));
        }
    }
    faults
}
