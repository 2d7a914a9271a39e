//! `berth node ...`

use super::exit::{CliError, Exit};
use super::terminal;
use crate::control::Client;
use crate::names;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub enum NodeVerb {
    /// Add nodes to a cluster
    Add {
        #[arg(value_parser = names::cluster)]
        cluster: String,
        #[arg(value_parser = names::node, required = true)]
        nodes: Vec<String>,
    },
    /// Remove nodes from a cluster
    Remove {
        #[arg(value_parser = names::cluster)]
        cluster: String,
        #[arg(value_parser = names::node, required = true)]
        nodes: Vec<String>,
    },
    /// List the nodes of a cluster, one a line
    List {
        #[arg(value_parser = names::cluster)]
        cluster: String,
    },
}

pub(super) async fn run(client: &Client, verb: NodeVerb) -> Result<Exit, CliError> {
    match verb {
        NodeVerb::Add { cluster, nodes } => {
            for node in &nodes {
                client.add_node(&cluster, node).await?;
                terminal::say(&format!("added {node} to {cluster}"))?;
            }
        }
        NodeVerb::Remove { cluster, nodes } => {
            for node in &nodes {
                client.remove_node(&cluster, node).await?;
                terminal::say(&format!("removed {node} from {cluster}"))?;
            }
        }
        NodeVerb::List { cluster } => {
            for node in client.nodes(&cluster).await? {
                terminal::say(&node)?;
            }
        }
    }
    Ok(Exit::Ok)
}
