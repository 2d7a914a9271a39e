//! postgres: the first step of every tenant and of the kcp store. Ready means: its dependants' databases can be used.
//!
//! No TCP, no password: its only socket lies in a private directory, and the kernel says who connects.

mod access;
pub mod databases;
mod initdb;
pub(super) mod leftovers;
mod shared_memory;
pub(crate) mod socket;

pub use access::Access;
pub(crate) use initdb::outside;

use super::dsn::Database;
use super::seat::{PATH, Seat};
use super::{config_file, defaults};
use crate::components::Program;
use crate::files;
use async_trait::async_trait;
use berth_actors::host::{Blueprint, Context, GateError, Listens, PrepareError, Running, WaitNote};
use berth_actors::spec::ProcessSpec;
use databases::NotReady;
use leftovers::Lock;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The component's name in a chain.
pub const NAME: &str = "postgres";
/// The role that owns the cluster; roles and databases are made through it.
pub const SUPERUSER: &str = "postgres";
/// May copy the files, and connect to no database. A cluster with a uid of its own has it from its first backup on.
pub(crate) const BACKUP: &str = "berth_backup";
/// postgres makes its socket file by this name in the socket directory.
const SOCKET_LOCK: &str = ".s.PGSQL.5432.lock";

/// A postgres with databases for the components above it.
#[derive(Debug, Clone)]
pub struct Postgres {
    pub seat: Seat,
    /// `bin/` of the installation.
    pub bin: PathBuf,
    /// PGDATA.
    pub data: PathBuf,
    pub access: Access,
    /// Exist once the gate is open.
    pub databases: Vec<Database>,
}

#[async_trait]
impl Blueprint for Postgres {
    async fn prepare(&self, context: &Context, note: &WaitNote) -> Result<ProcessSpec, PrepareError> {
        self.seat.claim().await?;
        if !self.data.exists() {
            note.say("initdb");
            initdb::create(&self.seat, &self.bin, &self.data, self.access.maker()).await?;
        }
        let (seat, this) = (&self.seat, self.clone());
        seat.blocking(move || this.write_access()).await?;
        note.say("what an earlier postmaster left");
        let lock = leftovers::clear(seat, &self.data, &seat.sockets.join(SOCKET_LOCK)).await?;
        Ok(ProcessSpec { start_env: past(lock), ..self.spec(context)? })
    }

    fn spec(&self, _context: &Context) -> Result<ProcessSpec, PrepareError> {
        let program = Program::real(self.bin.join("postgres"));
        Ok(self.seat.spec(NAME, &program, arguments(&self.seat, &self.data)))
    }

    fn listens(&self) -> Listens {
        Listens::No
    }

    async fn ready(&self, _running: &Running, note: &WaitNote) -> Result<(), GateError> {
        loop {
            match databases::ensure(&self.seat.sockets, &self.databases).await {
                Ok(()) => return Ok(()),
                Err(NotReady::Yet(reason)) => note.say(reason),
                Err(NotReady::Never(reason)) => {
                    return Err(GateError::Hopeless(format!("{}: {reason}", self.seat.chain)));
                }
            }
            tokio::time::sleep(defaults::POSTGRES_PROBE).await;
        }
    }
}

impl Postgres {
    /// The access files, and the mode postgres insists on.
    fn write_access(&self) -> Result<(), files::FileError> {
        files::make_private(&self.data)?;
        let roles = || {
            let owners = self.databases.iter().map(|database| database.role.as_str());
            std::iter::once(SUPERUSER).chain(owners)
        };
        for (name, text) in
            [("pg_hba.conf", self.access.hba(&self.databases)), ("pg_ident.conf", self.access.ident(roles))]
        {
            config_file::keep(&self.data.join(name), text.as_bytes(), self.seat.owner)?;
        }
        Ok(())
    }
}

/// The pid in a stale lock file may belong to a stranger by now; no postmaster of ours lives, so it is to be ignored.
fn past(lock: Lock) -> BTreeMap<String, String> {
    match lock {
        Lock::None => BTreeMap::new(),
        Lock::Stale(pid) => BTreeMap::from([("PG_GRANDPARENT_PID".to_owned(), pid.to_string())]),
    }
}

/// What its short-lived programs are run with.
pub(crate) fn tool_environment() -> BTreeMap<String, String> {
    let env = [("PATH", PATH), ("TZ", "UTC")];
    env.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// Sized for one tenant: 22 MiB idle.
fn arguments(seat: &Seat, data: &Path) -> Vec<String> {
    let settings = [
        ("listen_addresses", String::new()),
        ("unix_socket_directories", seat.sockets.to_string_lossy().into_owned()),
        ("unix_socket_permissions", "0700".to_owned()),
        // A crash of one backend ends it as a whole: whoever depends on it learns of that, and starts anew as well.
        ("restart_after_crash", "off".to_owned()),
        ("cluster_name", seat.chain.clone()),
        ("shared_buffers", "32MB".to_owned()),
        ("io_method", "sync".to_owned()),
        ("max_connections", "60".to_owned()),
        // What a copy of a running database needs (`berth cluster backup`): its log, and a sender.
        // `minimal` would save log only where a table is made and filled at once, which no component does.
        ("wal_level", "replica".to_owned()),
        ("max_wal_senders", "2".to_owned()),
        ("max_logical_replication_workers", "0".to_owned()),
        ("recovery_init_sync_method", "syncfs".to_owned()),
    ];
    let mut args = vec!["-D".to_owned(), data.to_string_lossy().into_owned()];
    for (name, value) in settings {
        args.extend(["-c".to_owned(), format!("{name}={value}")]);
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    fn postgres() -> Postgres {
        let seat = Seat::of_demo();
        Postgres {
            seat,
            bin: "/pg/bin".into(),
            data: "/s/demo/pg".into(),
            access: Access::Named(vec!["nobody".into()]),
            databases: vec![Database::named("kine")],
        }
    }

    #[test]
    fn it_listens_on_its_private_socket_only() {
        let args = arguments(&postgres().seat, &postgres().data).join(" ");
        assert!(
            args.starts_with("-D /s/demo/pg -c listen_addresses= -c unix_socket_directories=/r/demo "),
            "{args}"
        );
        assert!(args.contains("-c unix_socket_permissions=0700"), "{args}");
    }

    #[test]
    fn the_pid_of_a_stale_lock_is_passed_on_as_a_relative() {
        assert_eq!(past(Lock::None), BTreeMap::new());
        assert_eq!(past(Lock::Stale(4711)), BTreeMap::from([("PG_GRANDPARENT_PID".into(), "4711".into())]));
    }
}
