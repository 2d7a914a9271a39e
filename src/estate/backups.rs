//! A backup on its way out holds its cluster still; one on its way in is unpacked beside the clusters, and checked against what
//! this daemon can run.

use super::HostEstate;
use super::rotation::{Turn, Turns, UPKEEP_ENDS_WITHIN};
use crate::backup::staging::Staged;
use crate::backup::upload::{self, Pieces};
use crate::process::tool::{self, Tool};
use crate::tenant::postgres::tool_environment;
use actix::Recipient;
use berth_actors::host::Distribution;
use berth_actors::message::{Command, Refusal};
use std::time::Duration;

/// `postgres --version` prints a line.
const VERSION_DEADLINE: Duration = Duration::from_secs(10);

/// For as long as a backup is taken: no credential is made new, so keys and what they seal are of one moment, and the tree
/// stops nothing.
#[derive(Debug)]
pub(super) struct Held {
    tree: Recipient<Command>,
    name: String,
    _turn: Turn,
}

impl Held {
    /// The turn comes first: during a rotation nothing is marked, or the tree would refuse the restart that is part of it.
    pub(super) async fn begin(turns: &Turns, name: &str, tree: Recipient<Command>) -> Result<Self, Refusal> {
        let turn = turns.take(name, UPKEEP_ENDS_WITHIN).await?;
        let name = name.to_owned();
        let gone =
            |_| Refusal::Failed("the supervision tree does not answer: the daemon is ending".to_owned());
        tree.send(Command::BeginBackup { name: name.clone() }).await.map_err(gone)??;
        Ok(Self { tree, name, _turn: turn })
    }
}

impl Drop for Held {
    /// The turn goes after it: whoever has that next is refused nothing any more.
    fn drop(&mut self) {
        self.tree.do_send(Command::EndBackup { name: std::mem::take(&mut self.name) });
    }
}

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
    use actix::{Actor, Context, Handler, MessageResult};
    use berth_actors::message::Reply;
    use std::sync::{Arc, Mutex};

    /// Says yes to all, and keeps what it was asked.
    struct Obedient(Arc<Mutex<Vec<Command>>>);

    impl Actor for Obedient {
        type Context = Context<Self>;
    }

    impl Handler<Command> for Obedient {
        type Result = MessageResult<Command>;

        fn handle(&mut self, command: Command, _: &mut Self::Context) -> Self::Result {
            self.0.lock().unwrap().push(command);
            MessageResult(Ok(Reply::Done))
        }
    }

    #[actix::test]
    async fn a_backup_during_a_rotation_marks_nothing_and_one_that_ends_takes_its_mark_along() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let tree = Obedient(Arc::clone(&asked)).start();
        let turns = Turns::default();
        let rotation = turns.take("demo", UPKEEP_ENDS_WITHIN).await.unwrap();
        let refused = Held::begin(&turns, "demo", tree.clone().recipient()).await.unwrap_err();
        assert!(matches!(refused, Refusal::Conflict(_)), "{refused:?}");
        assert_eq!(*asked.lock().unwrap(), []);
        drop(rotation);
        let held = Held::begin(&turns, "demo", tree.clone().recipient()).await.unwrap();
        let refused = turns.take("demo", UPKEEP_ENDS_WITHIN).await;
        assert!(refused.is_err(), "no rotation during a backup");
        drop(held);
        turns.take("demo", UPKEEP_ENDS_WITHIN).await.unwrap();
        while asked.lock().unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
        let name = || "demo".to_owned();
        let both = [Command::BeginBackup { name: name() }, Command::EndBackup { name: name() }];
        assert_eq!(*asked.lock().unwrap(), both);
    }

    #[test]
    fn the_first_number_of_a_version_is_the_one_that_counts() {
        assert_eq!(
            [major("18.6"), major("18beta1"), major("9.6"), major("")],
            [Some(18), Some(18), Some(9), None]
        );
        assert_eq!(major("(PostgreSQL)"), None);
    }
}
