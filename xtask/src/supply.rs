//! The supply chain: where a dependency comes from, under which licence, and what is known of it.
//!
//! The same questions that `cargo deny` asks, answered in seconds from what a checkout has: the
//! metadata, `deny.toml`, and a copy of the advisory database beside the checkout. Building the
//! commands themselves takes longer than all tests together.

use std::path::PathBuf;

use anyhow::{Context, Result};
use cargo_metadata::Package;
use rustsec::{Database, Lockfile};
use spdx::{Expression, Licensee};

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Prints every fault; true when there is none.
pub(crate) fn check() -> Result<bool> {
    let rules = Rules::read()?;
    let metadata = crate::metadata()?;
    let mut faults: Vec<String> = metadata
        .packages
        .iter()
        .flat_map(|package| rules.package_faults(package))
        .collect();
    let packages = metadata.packages.len();
    match advisory_database() {
        Some(folder) => {
            let database = Database::open(&folder).context("read the advisory database")?;
            let lockfile =
                Lockfile::load(crate::root().join("Cargo.lock")).context("read Cargo.lock")?;
            println!("supply: {} advisories read", database.iter().count());
            faults.extend(rules.advisory_faults(&database, &lockfile));
        }
        None => println!(
            "supply: no advisory database beside the checkout (USHER_ADVISORY_DB): advisories skipped"
        ),
    }
    for fault in &faults {
        println!("supply: {fault}");
    }
    if faults.is_empty() {
        println!("supply: {packages} packages, ok");
    }
    Ok(faults.is_empty())
}

fn advisory_database() -> Option<PathBuf> {
    let named = std::env::var_os("USHER_ADVISORY_DB").map(PathBuf::from);
    let beside = crate::root().join("../shared/advisory-db");
    named
        .or(Some(beside))
        .filter(|folder| folder.join("crates").is_dir())
}

/// What `deny.toml` allows.
struct Rules {
    allow: Vec<Licensee>,
    ignore: Vec<String>,
}

impl Rules {
    fn read() -> Result<Self> {
        let path = crate::root().join("deny.toml");
        let text = std::fs::read_to_string(&path).context("read deny.toml")?;
        let table: toml::Table = text.parse().context("parse deny.toml")?;
        let allow = strings(&table, "licenses", "allow")?
            .iter()
            .map(|name| Licensee::parse(name).with_context(|| format!("deny.toml: licence {name}")))
            .collect::<Result<_>>()?;
        let ignore = strings(&table, "advisories", "ignore")?;
        Ok(Self { allow, ignore })
    }

    fn package_faults(&self, package: &Package) -> Option<String> {
        let name = format!("{} {}", package.name, package.version);
        let source = package.source.as_ref()?; // ours have none
        if source.repr != CRATES_IO {
            return Some(format!("{name} comes from {source}, not from crates.io"));
        }
        let Some(licence) = &package.license else {
            return Some(format!("{name} names no licence"));
        };
        self.licence_fault(licence)
            .map(|fault| format!("{name}: {fault}"))
    }

    fn licence_fault(&self, licence: &str) -> Option<String> {
        // Old manifests separate alternatives with a slash.
        let expression = match Expression::parse(&licence.replace('/', " OR ")) {
            Ok(expression) => expression,
            Err(error) => return Some(format!("licence {licence:?}: {}", error.reason)),
        };
        let taken = expression
            .evaluate(|wanted| self.allow.iter().any(|allowed| allowed.satisfies(wanted)));
        (!taken).then(|| format!("licence {licence} is not one that deny.toml allows"))
    }

    fn advisory_faults(&self, database: &Database, lockfile: &Lockfile) -> Vec<String> {
        database
            .vulnerabilities(lockfile)
            .iter()
            .filter(|found| {
                !self
                    .ignore
                    .iter()
                    .any(|id| id == found.advisory.id.as_str())
            })
            .map(|found| {
                format!(
                    "{} {}: {} {}",
                    found.package.name,
                    found.package.version,
                    found.advisory.id,
                    found.advisory.title
                )
            })
            .collect()
    }
}

fn strings(table: &toml::Table, section: &str, key: &str) -> Result<Vec<String>> {
    table
        .get(section)
        .and_then(|section| section.get(key))
        .and_then(toml::Value::as_array)
        .with_context(|| format!("deny.toml: {section}.{key} is not a list"))?
        .iter()
        .map(|value| {
            let text = value
                .as_str()
                .with_context(|| format!("deny.toml: {section}.{key}"))?;
            Ok(text.to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_are_taken_by_what_their_expression_allows() {
        let rules = Rules::read().unwrap();
        for taken in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0-only OR ISC",
            "Apache-2.0 AND BSD-3-Clause",
        ] {
            assert_eq!(rules.licence_fault(taken), None, "{taken}");
        }
        for refused in [
            "AGPL-3.0-only",
            "GPL-3.0-only AND MIT",
            "LGPL-2.1-only",
            "my own words",
        ] {
            assert!(rules.licence_fault(refused).is_some(), "{refused}");
        }
    }

    #[test]
    fn a_known_vulnerability_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let crates = folder.path().join("crates/sample");
        std::fs::create_dir_all(&crates).unwrap();
        let advisory = "```toml\n[advisory]\nid = \"RUSTSEC-2020-0001\"\npackage = \"sample\"\n\
            date = \"2020-01-01\"\n[versions]\npatched = [\">=1.2.0\"]\n```\n\n# It breaks\n\nBadly.\n";
        std::fs::write(crates.join("RUSTSEC-2020-0001.md"), advisory).unwrap();
        let database = Database::open(folder.path()).unwrap();
        let lockfile = |version: &str| -> Lockfile {
            format!(
                "version = 4\n[[package]]\nname = \"sample\"\nversion = \"{version}\"\nsource = \"{CRATES_IO}\"\n"
            )
            .parse()
            .unwrap()
        };
        let rules = Rules::read().unwrap();
        let found = rules.advisory_faults(&database, &lockfile("1.1.0"));
        assert_eq!(found, ["sample 1.1.0: RUSTSEC-2020-0001 It breaks"]);
        assert!(
            rules
                .advisory_faults(&database, &lockfile("1.2.0"))
                .is_empty()
        );
    }
}
