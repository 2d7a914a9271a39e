//! The shared memory of a postmaster that was killed: only its next start gives it back, so one that will have no next start is
//! started once more, alone and for nobody.
//!
//! Called before a data directory is removed. A postmaster that ended in order left no lock file, and nothing is done.

use super::super::defaults;
use super::super::seat::PATH;
use super::leftovers::{self, Lock};
use super::{Postgres, SOCKET_LOCK, past};
use crate::process::tool::{self, Tool};
use berth_actors::host::PrepareError;

impl Postgres {
    /// Nothing of the chain runs. A segment in /dev/shm and one of System V are all that is known to outlive a data directory.
    pub async fn give_back_memory(&self) -> Result<(), PrepareError> {
        if !self.data.join("postmaster.pid").exists() {
            return Ok(());
        }
        let lock = leftovers::clear(&self.seat, &self.data, &self.seat.sockets.join(SOCKET_LOCK)).await?;
        if lock == Lock::None {
            return Ok(());
        }
        let mut env = past(lock);
        env.extend([("PATH", PATH), ("TZ", "UTC")].map(|(name, value)| (name.to_owned(), value.to_owned())));
        let alone = Tool {
            program: self.bin.join("postgres"),
            args: arguments(&self.data.to_string_lossy()),
            env,
            dir: self.seat.data.clone(),
            user: self.seat.owner,
        };
        tool::run(alone, defaults::LAST_START_DEADLINE)
            .await
            .map(drop)
            .map_err(|error| self.seat.retry(error))
    }
}

/// A single-user postgres recovers, reads the end of its input, and ends. What it writes is removed next: no sync.
fn arguments(data: &str) -> Vec<String> {
    ["--single", "-D", data, "-c", "fsync=off", "-c", "io_method=sync", "postgres"].map(str::to_owned).into()
}
