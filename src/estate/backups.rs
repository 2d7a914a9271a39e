//! A backup on its way in: unpacked beside the clusters, and checked against what this daemon can run.

use super::HostEstate;
use crate::backup::staging::Staged;
use crate::backup::upload::{self, Pieces};
use crate::process::tool::{self, Tool};
use crate::tenant::postgres::tool_environment;
use berth_actors::host::Distribution;
use berth_actors::message::Refusal;
use std::time::Duration;

/// `postgres --version` prints a line.
const VERSION_DEADLINE: Duration = Duration::from_secs(10);

impl HostEstate {
    pub(super) async fn staged(&self, cluster: &str, pieces: Pieces) -> Result<Staged, Refusal> {
        let inner = &self.0;
        let staged = upload::stage(pieces, inner.layout.clusters(), inner.accounts.owner).await;
        let staged = staged.map_err(|error| Refusal::BadRequest(error.to_string()))?;
        let manifest = &staged.manifest;
        let refused = |text: String| Err(Refusal::Conflict(format!("{cluster} was not restored: {text}")));
        if manifest.distribution == Distribution::K3s && inner.components.k3s.is_none() {
            return refused("the backup is of a cluster on k3s, and this daemon has no k3s".to_owned());
        }
        let ours = self.postgres().await?;
        match (major(&manifest.postgres), major(&ours)) {
            (Some(theirs), Some(ours)) if theirs == ours => Ok(staged),
            _ => refused(format!(
                "WrongPostgres: the backup is of postgres {}, this daemon runs {ours}: restore it with the same major version",
                manifest.postgres
            )),
        }
    }

    async fn postgres(&self) -> Result<String, Refusal> {
        let bin = &self.0.components.postgres_bin;
        let asked = Tool {
            program: bin.join("postgres"),
            args: vec!["--version".to_owned()],
            env: tool_environment(),
            dir: bin.clone(),
            user: self.0.accounts.owner,
        };
        let said = tool::run(asked, VERSION_DEADLINE).await.map_err(|e| Refusal::Failed(e.to_string()))?;
        let version = said.stdout.split_whitespace().find(|word| major(word).is_some());
        Ok(version.unwrap_or("of no known version").to_owned())
    }
}

/// Since postgres 10 the first number decides what a data directory means.
fn major(version: &str) -> Option<u32> {
    version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_of_a_version_is_the_one_that_counts() {
        assert_eq!(
            [major("18.6"), major("18beta1"), major("9.6"), major("")],
            [Some(18), Some(18), Some(9), None]
        );
        assert_eq!(major("(PostgreSQL)"), None);
    }
}
