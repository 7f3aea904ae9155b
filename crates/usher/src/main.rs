//! The command line.
//!
//! Each command is a file of its own; this one only says what the words are and which exit code an
//! ending has: 0 done, 1 the user must change something, 2 wrong usage, 3 the environment failed.

mod apply;
mod browser_host;
mod check;
mod config;
mod demo;
mod explain;
mod export;
mod remote;
mod run;
mod status;
mod terminal;
mod upstream;
mod watch;
mod yaml;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The allocator of the release binary: steady resident size under load.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Shows every arrival to a place that can serve it.
#[derive(Debug, Parser)]
#[command(name = "usher", version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start everything that the file names, in the foreground
    Run(run::Arguments),
    /// Check a configuration file without starting anything; shows every fault at once
    Check(check::Arguments),
    /// Say where one request would go, and why, without sending it
    Explain(explain::Arguments),
    /// Make what the API of a running node manages what a file says; shows the plan first
    Apply(apply::Arguments),
    /// Write what the API of a running node manages as a file for 'usher apply'
    Export(export::Arguments),
    /// Show the pools, endpoints, waiting rooms and browsers of a running node
    Status(status::Arguments),
    /// Start two endpoints, a load balancer, a waiting room and browsers to play with
    Demo(demo::Arguments),
    /// Run the browsers of this machine, for the process that serves them
    #[command(hide = true)]
    BrowserHost(browser_host::Arguments),
    /// Listen in a browser's own network
    #[command(hide = true)]
    BrowserListen,
}

/// How a command ends. Printed by `main` as one line; `Display` of the error says what to change.
#[derive(Debug)]
enum Ending {
    /// Exit 0.
    Done,
    /// Exit 1: the user must change something. Said already.
    Refused,
    /// Exit 1: the user must change something.
    Change(anyhow::Error),
    /// Exit 2: wrong usage.
    Usage(anyhow::Error),
    /// Exit 3: the environment failed.
    Environment(anyhow::Error),
}

impl Ending {
    /// The same with words in front.
    fn context(self, words: String) -> Ending {
        match self {
            Ending::Done | Ending::Refused => self,
            Ending::Change(error) => Ending::Change(error.context(words)),
            Ending::Usage(error) => Ending::Usage(error.context(words)),
            Ending::Environment(error) => Ending::Environment(error.context(words)),
        }
    }

    fn exit(self) -> ExitCode {
        let (code, error) = match self {
            Ending::Done => return ExitCode::SUCCESS,
            Ending::Refused => return ExitCode::from(1),
            Ending::Change(error) => (1, error),
            Ending::Usage(error) => (2, error),
            Ending::Environment(error) => (3, error),
        };
        terminal::complain(&format!("{error:#}"));
        ExitCode::from(code)
    }
}

fn main() -> ExitCode {
    // First, so that no dependency installs another provider.
    if rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .is_err()
    {
        unreachable!("nothing ran before");
    }
    match Arguments::parse().command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Check(arguments) => check::check(&arguments),
        Command::Explain(arguments) => explain::explain(&arguments),
        Command::Apply(arguments) => apply::apply(&arguments),
        Command::Export(arguments) => export::export(&arguments),
        Command::Status(arguments) => status::status(&arguments),
        Command::Demo(arguments) => demo::demo(&arguments),
        Command::BrowserHost(arguments) => browser_host::browser_host(arguments),
        Command::BrowserListen => browser_host::browser_listen(),
    }
    .exit()
}
