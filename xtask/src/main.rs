//! Checks of the source tree that cargo has no word for, and the list of steps that the gate runs.
//!
//! `cargo xtask tidy` compares the tree with the rules it is written by, `cargo xtask supply` the
//! dependencies with the licences we take and the advisories that are known, and `cargo xtask ci`
//! runs everything in the order in which a fault is cheapest to find.
#![allow(clippy::print_stdout, clippy::print_stderr)] // a command line speaks on its terminal

mod ci;
mod picture;
mod supply;
mod tree;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use cargo_metadata::{Metadata, MetadataCommand};

const USAGE: &str = "usage: cargo xtask <command>

  tidy     the dependency picture, the shape of files and names, Cargo.lock
  supply   licences, sources and known advisories of the dependencies
  ci       everything that the gate runs, in its order";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let outcome = match (args.next().as_deref(), args.next()) {
        (Some("tidy"), None) => tidy(),
        (Some("supply"), None) => supply::check(),
        (Some("ci"), None) => ci::run(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(3)
        }
    }
}

fn tidy() -> Result<bool> {
    let metadata = metadata()?;
    let mut faults = picture::faults(&metadata);
    faults.extend(tree::faults(&root())?);
    for fault in &faults {
        println!("tidy: {fault}");
    }
    if faults.is_empty() {
        println!("tidy: ok");
    }
    Ok(faults.is_empty())
}

/// The workspace root: this manifest's parent, whatever folder the clone has.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Read with `--locked`, so that a lock file that lags behind a manifest is a fault here.
fn metadata() -> Result<Metadata> {
    MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .other_options(vec!["--locked".to_owned()])
        .exec()
        .context("cargo metadata --locked (is Cargo.lock in sync with the manifests?)")
}
