//! The command line. `main` parses it, runs `up` and `dev` itself, and hands everything else to [`run`].
//!
//! One file per noun; each talks to the daemon through [`crate::control::Client`] and to the terminal through
//! [`terminal`]. Nothing here starts, stops or reads a component.

mod assets;
pub mod changes;
mod cluster;
mod config;
mod doctor;
mod down;
mod events;
pub mod exit;
mod handovers;
pub mod health;
mod kcp;
pub mod live;
mod logs;
mod metrics;
mod node;
pub mod place;
mod retry;
mod service;
mod status;
pub mod terminal;
pub mod tree;
pub mod units;
mod upgrade;
mod words;

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;

pub use place::Place;

use crate::assets::Overrides;
use crate::control::Client;
use crate::names;
use clap::{Args, CommandFactory, Parser, Subcommand};
use exit::{CliError, Exit};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs Kubernetes control planes as plain supervised processes on one Linux host.
#[derive(Debug, Parser)]
#[command(name = "berth", version, propagate_version = true, after_help = exit::HELP)]
pub struct Cli {
    #[command(flatten)]
    pub place: Place,
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run the daemon: kcp, its front, and every cluster
    Up(Up),
    /// Run everything in ./.berth with one cluster, to try it out; Ctrl-C stops it
    Dev(Dev),
    /// Run plain services from a file, until Ctrl-C, SIGTERM or `berth down`
    Supervise(Supervise),
    #[command(flatten)]
    Client(ClientVerb),
}

#[derive(Debug, Args)]
#[command(after_help = SUPERVISE_HELP)]
pub struct Supervise {
    /// The services, in TOML (or JSON, by its extension)
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

const SUPERVISE_HELP: &str = "\
The file:

  [[services]]
  name = \"db\"
  argv = [\"/usr/bin/db\", \"--port\", \"5432\"]
  ready_fd = 3                   # writes a newline there when it is ready

  [[services]]
  name = \"web\"
  argv = [\"web\"]
  after = [\"db\"]                 # starts once db has been ready

Its state lies beside it (services.toml: services.berth) unless --state says otherwise. Name that directory to reach it:
berth --state services.berth status; ... service stop web; ... logs web; ... down. docs/supervise.md has every key.";

#[derive(Debug, Args)]
pub struct Up {
    /// Configuration file; without it, the defaults
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Dev {
    /// Where clients reach kcp
    #[arg(long, value_name = "ADDR", default_value_t = crate::config::defaults::FRONT_LISTEN.0)]
    pub front: SocketAddr,
    /// Name of the cluster to start
    #[arg(long, value_name = "NAME", default_value = "demo", value_parser = names::cluster)]
    pub tenant: String,
    #[command(flatten)]
    pub components: Overrides,
}

/// Everything that is asked of a running daemon, or needs none.
#[derive(Debug, Subcommand)]
pub enum ClientVerb {
    /// Stop everything in order
    Down,
    /// Let another berth binary take over; everything runs on, and no connection attempt fails
    Upgrade(upgrade::Upgrade),
    /// Show the tree: what runs, since when, and what it waits for
    Status(status::Status),
    /// Print the daemon's figures as Prometheus reads them
    Metrics,
    /// Show what happened lately
    Events(events::Events),
    /// Show what a component, or every component of a chain, has written
    Logs(logs::Logs),
    /// Try again what gave up, was refused or is done
    Retry(retry::Retry),
    /// Clusters: create, delete, start, stop, reach
    #[command(subcommand)]
    Cluster(cluster::ClusterVerb),
    /// The nodes a cluster's cloud controller manager believes in
    #[command(subcommand)]
    Node(node::NodeVerb),
    /// kcp and its two slots
    #[command(subcommand)]
    Kcp(kcp::KcpVerb),
    /// Plain services of `berth supervise`: start, stop
    #[command(subcommand)]
    Service(service::ServiceVerb),
    /// The store of component programs: list, add, import, verify, clean up
    #[command(subcommand)]
    Assets(assets::AssetsVerb),
    /// Look at the host as `berth up` would, and at the daemon that runs; changes nothing
    Doctor(doctor::Doctor),
    /// The configuration of `berth up`
    #[command(subcommand)]
    Config(config::ConfigVerb),
    /// Print a completion script for a shell
    Completions { shell: clap_complete::Shell },
}

/// Executes a verb that is not the daemon's own, and turns its outcome into an exit code.
pub fn run(place: &Place, verb: ClientVerb) -> ExitCode {
    let outcome = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let outcome = runtime.block_on(execute(place, verb));
            // A file read for the terminal may hang on its file system: nothing to wait for.
            runtime.shutdown_background();
            outcome
        }
        Err(error) => Err(CliError::Output(error)),
    };
    outcome.unwrap_or_else(|error| exit::report(&error)).into()
}

async fn execute(place: &Place, verb: ClientVerb) -> Result<Exit, CliError> {
    match verb {
        ClientVerb::Config(verb) => config::run(place, &verb),
        ClientVerb::Assets(verb) => assets::run(place, verb).await,
        ClientVerb::Doctor(args) => doctor::run(place, &args).await,
        ClientVerb::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "berth", &mut script);
            terminal::write(&script)?;
            Ok(Exit::Ok)
        }
        verb => {
            let layout = place.layout()?;
            let client = Client::new(layout.control_socket());
            match verb {
                ClientVerb::Down => down::run(&client).await,
                ClientVerb::Upgrade(args) => upgrade::run(&client, &args).await,
                ClientVerb::Status(args) => status::run(&client, &args).await,
                ClientVerb::Metrics => metrics::run(&client).await,
                ClientVerb::Events(args) => events::run(&client, args).await,
                ClientVerb::Logs(args) => logs::run(&client, &layout, args).await,
                ClientVerb::Retry(args) => retry::run(&client, &args).await,
                ClientVerb::Cluster(verb) => cluster::run(&client, &layout, verb).await,
                ClientVerb::Node(verb) => node::run(&client, verb).await,
                ClientVerb::Kcp(verb) => kcp::run(&client, verb).await,
                ClientVerb::Service(verb) => service::run(&client, verb).await,
                ClientVerb::Assets(_)
                | ClientVerb::Config(_)
                | ClientVerb::Doctor(_)
                | ClientVerb::Completions { .. } => Ok(Exit::Ok),
            }
        }
    }
}
