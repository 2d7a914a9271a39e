//! `berth cluster ...`

mod adopt;
mod backup;
mod certs;

use super::exit::{CliError, Exit};
use super::live::{Live, Output};
use super::logs::{self, How, Logs, Which};
use super::terminal::{self, Style};
use super::{status, tree, words};
use crate::control::api::Action;
use crate::control::{Client, ClientError};
use crate::files::write_atomic;
use crate::layout::Layout;
use crate::names;
use crate::tenant::stack;
use adopt::Adopt;
use backup::{OneFile, Verify};
use berth_actors::status::{ChainStatus, ChildState};
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct Named {
    #[arg(value_parser = names::cluster)]
    pub name: String,
}

#[derive(Debug, Subcommand)]
pub enum ClusterVerb {
    /// Create a cluster and wait until it is ready
    Create(Named),
    /// Stop a cluster and delete everything of it
    Delete {
        #[command(flatten)]
        cluster: Named,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// List all clusters
    List {
        /// JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Show one cluster
    Status {
        #[command(flatten)]
        cluster: Named,
        /// JSON instead of a tree
        #[arg(long)]
        json: bool,
    },
    /// Start a stopped cluster
    Start(Named),
    /// Stop a cluster; its data stay
    Stop(Named),
    /// Stop a cluster for a while: `start` refuses it until `resume`
    Pause(Named),
    /// Bring a paused cluster back
    Resume(Named),
    /// Stop a cluster and start it again
    Restart(Named),
    /// Clear a give-up or a repaired refusal and try again
    Retry(Named),
    /// Accept data that the identity guard refused: shows what differs and what would change, asks, raises the epoch
    Adopt(Adopt),
    /// Write everything of a cluster into one file while it serves; the file holds all its keys
    Backup(OneFile),
    /// Make a new cluster from a backup and wait until it is ready
    Restore(OneFile),
    /// Read a backup to its last byte and say what it is
    Verify(Verify),
    /// Certificates and keys of a cluster: look at them, replace them
    #[command(subcommand)]
    Certs(certs::CertsVerb),
    /// Show what the components of a cluster have written
    Logs {
        #[command(flatten)]
        cluster: Named,
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        how: How,
    },
    /// Print the admin kubeconfig of a cluster
    Kubeconfig {
        #[command(flatten)]
        cluster: Named,
        /// Write it to this file (mode 0600) instead
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

pub(super) async fn run(client: &Client, layout: &Layout, verb: ClusterVerb) -> Result<Exit, CliError> {
    match verb {
        ClusterVerb::Create(Named { name }) => {
            shown(client, &name, client.create_cluster(&name)).await?;
            terminal::say(&format!(
                "{name} is ready: `berth cluster kubeconfig {name} --output {name}.kubeconfig` lets kubectl in"
            ))?;
        }
        ClusterVerb::Delete { cluster: Named { name }, yes } => {
            if !yes {
                confirm(&name)?;
            }
            shown(client, &name, client.delete_cluster(&name)).await?;
            terminal::say(&format!("{name} is deleted"))?;
        }
        ClusterVerb::List { json } => {
            let clusters = client.clusters().await?;
            let text = if json { status::json(&clusters)? + "\n" } else { table(&clusters) };
            terminal::write(text.as_bytes())?;
        }
        ClusterVerb::Status { cluster: Named { name }, json } => {
            let tree = client.status().await?;
            let cluster = tree.tenants.iter().find(|cluster| cluster.name == name);
            let missing = || CliError::NotFound(format!("no cluster {name}: see `berth cluster list`"));
            let cluster = cluster.ok_or_else(missing)?;
            let text = if json {
                status::json(cluster)? + "\n"
            } else {
                let holding = tree.holdings.get(&name);
                tree::render_tenant(cluster, holding, Style::of(&std::io::stdout()))
            };
            terminal::write(text.as_bytes())?;
        }
        ClusterVerb::Start(Named { name }) => act(client, &name, Action::Start, "ready").await?,
        ClusterVerb::Stop(Named { name }) => act(client, &name, Action::Stop, "stopped").await?,
        ClusterVerb::Pause(Named { name }) => act(client, &name, Action::Pause, "paused").await?,
        ClusterVerb::Resume(Named { name }) => act(client, &name, Action::Resume, "ready").await?,
        ClusterVerb::Restart(Named { name }) => act(client, &name, Action::Restart, "ready again").await?,
        ClusterVerb::Retry(Named { name }) => act(client, &name, Action::Retry, "ready again").await?,
        ClusterVerb::Adopt(args) => adopt::run(client, &args).await?,
        ClusterVerb::Backup(args) => backup::back_up(client, args).await?,
        ClusterVerb::Restore(args) => backup::restore(client, args).await?,
        ClusterVerb::Verify(args) => backup::check(args).await?,
        ClusterVerb::Certs(verb) => return certs::run(client, &verb).await,
        ClusterVerb::Logs { cluster: Named { name }, which, how } => {
            return logs::run(client, layout, Logs { chain: name, which, how }).await;
        }
        ClusterVerb::Kubeconfig { cluster: Named { name }, output } => {
            let kubeconfig = client.kubeconfig(&name).await?;
            match output {
                Some(path) => write_atomic(&path, &kubeconfig, None)?,
                None => terminal::write(&kubeconfig)?,
            }
        }
    }
    Ok(Exit::Ok)
}

async fn act(client: &Client, name: &str, action: Action, then: &str) -> Result<(), CliError> {
    shown(client, name, client.act(name, action)).await?;
    Ok(terminal::say(&format!("{name} is {then}"))?)
}

/// Shows the cluster on standard error while `work` goes on.
pub(super) async fn shown(
    client: &Client,
    name: &str,
    work: impl Future<Output = Result<(), ClientError>>,
) -> Result<(), CliError> {
    let mut live = Live::of_chain(Output::Stderr, name).since(&client.status().await?);
    Ok(live.during(work, || async { client.status().await.ok() }).await??)
}

fn confirm(name: &str) -> Result<(), CliError> {
    let question = format!("Delete {name} with all its data? There is no way back. Type its name:");
    match terminal::ask(&question)? {
        Some(answer) if answer == name => Ok(()),
        Some(_) => Err(CliError::Usage(format!("{name} was not deleted: that is not its name"))),
        None => Err(CliError::Usage(format!("to delete {name} without a terminal to ask on, say --yes"))),
    }
}

fn table(clusters: &[ChainStatus]) -> String {
    let width = clusters.iter().map(|cluster| cluster.name.len()).max().unwrap_or(0).max("NAME".len());
    let mut text = format!("{:width$}  {:10}  {:10}  {:5}  REASON\n", "NAME", "KUBERNETES", "STATE", "READY");
    for cluster in clusters {
        let ready = cluster.children.iter().filter(|child| child.state == ChildState::Ready).count();
        let ready = format!("{ready}/{}", cluster.children.len());
        let state = words::of(cluster).1;
        let since = cluster.paused.as_ref().map(|since| format!("since {since}"));
        let reason = terminal::harmless(cluster.reason.as_deref().or(since.as_deref()).unwrap_or_default());
        let kubernetes = stack::distribution_of(cluster);
        let line = format!("{:width$}  {kubernetes:10}  {state:10}  {ready:5}  {reason}", cluster.name);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fixture::ready;
    use berth_actors::status::ChainState;

    #[test]
    fn the_table_is_as_wide_as_its_longest_name_and_says_why() {
        let cluster = |name: &str, state, reason: Option<&str>| ChainStatus {
            name: name.to_owned(),
            state,
            reason: reason.map(str::to_owned),
            paused: None,
            children: Vec::new(),
        };
        let on_k3s = ChainStatus {
            children: vec![ready("k3s", 7, None, 0)],
            ..cluster("on-k3s", ChainState::Ready, None)
        };
        let clusters = [
            cluster("demo", ChainState::Ready, None),
            on_k3s,
            ChainStatus {
                paused: Some("2026-01-02T03:04:05Z".to_owned()),
                ..cluster("quiet", ChainState::Down, None)
            },
            cluster("warehouse", ChainState::Degraded, Some("kine gave up")),
        ];
        assert_eq!(
            table(&clusters),
            "NAME       KUBERNETES  STATE       READY  REASON\n\
             demo       kubernetes  ready       0/0\n\
             on-k3s     k3s         ready       1/1\n\
             quiet      kubernetes  paused      0/0    since 2026-01-02T03:04:05Z\n\
             warehouse  kubernetes  degraded    0/0    kine gave up\n"
        );
    }
}
