//! The guard before each start of a tenant's Kubernetes: looks, takes one durable step, and looks again until nothing is left
//! to do or the answer is no.
//!
//! The tree calls [`Guard::check`]. Between checks the guard only holds its session, whose lock keeps every other daemon,
//! host or copied directory from running the same tenant.

use super::database::{DatabaseError, InDatabase, Session};
use super::evidence::{Evidence, Facts, OnDisk, identity_file, on_disk};
use super::identity::{Owner, Record};
use super::verdict::{Verdict, verdict};
use crate::fault;
use crate::files::write_atomic;
use crate::off_thread::off_thread;
use async_trait::async_trait;
use berth_actors::host::{Guard, PrepareError, WaitNote};
use berth_actors::spec::User;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;

/// One check, lock wait included. A postgres that serves answers in milliseconds; one in recovery refuses at once.
pub(super) const CHECK_DEADLINE: Duration = Duration::from_secs(15);
/// A first boot takes three steps; one more would mean that a step did not hold.
const MOST_STEPS: usize = 4;

/// Whose datastore is guarded, and where it is.
#[derive(Debug, Clone)]
pub struct GuardConfig {
    pub owner: Owner,
    /// `<state>/clusters/<name>`: identity.json and pki/ lie here.
    pub data_dir: PathBuf,
    /// Directory of the tenant's postgres socket.
    pub socket_dir: PathBuf,
    /// Who owns the files when the daemon is root.
    pub user: Option<User>,
    /// Where this machine's id is: [`MACHINE_ID`].
    pub machine_id: PathBuf,
}

/// systemd's machine-id(5): one installation, one id; a copied disk image keeps it, hence the inode beside it.
pub const MACHINE_ID: &str = "/etc/machine-id";

/// Lives as long as its group: dropping it gives the lock up.
pub struct IdentityGuard {
    config: GuardConfig,
    /// Tells this guard's own sessions from those of others, in this daemon too.
    number: u64,
    session: Mutex<Option<Session>>,
}

impl std::fmt::Debug for IdentityGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdentityGuard").field("config", &self.config).finish_non_exhaustive()
    }
}

#[async_trait]
impl Guard for IdentityGuard {
    /// Cancel-safe: each step is durable by itself, and the next check goes on from what it finds.
    async fn check(&self, note: &WaitNote) -> Result<(), PrepareError> {
        tokio::time::timeout(CHECK_DEADLINE, self.check_within_deadline(note))
            .await
            .unwrap_or_else(|_| Err(self.retry(self.no_answer())))
    }

    /// The lock goes with its session: when the database ends, or that one connection.
    async fn lost(&self) {
        let ended = self.session.lock().await.as_ref().map(Session::ended);
        if let Some(ended) = ended {
            ended.cancelled().await;
        }
    }
}

impl IdentityGuard {
    pub fn new(config: GuardConfig) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Self { config, number, session: Mutex::new(None) }
    }

    async fn check_within_deadline(&self, note: &WaitNote) -> Result<(), PrepareError> {
        note.say("the identity guard's lock on the tenant database");
        // Taken out while in use: a check that is dropped midway closes the connection instead of leaving it half-read.
        let mut held = self.session.lock().await;
        let session = match held.take().filter(Session::is_open) {
            Some(session) => session,
            None => self.open().await.map_err(|error| self.database(error))?,
        };
        note.say("the identity guard's verdict");
        self.finish(&session).await?;
        *held = Some(session);
        Ok(())
    }

    /// One durable step after the other, until the records agree.
    pub(super) async fn finish(&self, session: &Session) -> Result<(), PrepareError> {
        for _ in 0..=MOST_STEPS {
            match verdict(&self.evidence(session).await?) {
                Verdict::Pass => return Ok(()),
                Verdict::Claim(record) => {
                    session.claim(&record).await.map_err(|e| self.database(e))?;
                    fault::point("identity-claimed");
                }
                Verdict::WriteFile(record) => self.write_file(record).await?,
                Verdict::Settle(record) => {
                    session.settle(&record).await.map_err(|e| self.database(e))?;
                    fault::point("identity-settled");
                    self.write_file(record).await?;
                }
                Verdict::Refuse(refusal) => {
                    let shows = format!("berth cluster adopt {} shows all that differs", self.cluster());
                    return Err(self.refused(format_args!("{refusal}; {shows}")));
                }
            }
        }
        Err(self.retry("the identity records change while they are being written"))
    }

    /// With the lock.
    pub(super) async fn open(&self) -> Result<Session, DatabaseError> {
        Session::open(&self.config.socket_dir, &self.config.owner.uid, &self.holder()).await
    }

    /// What others are told while the lock is held. postgres keeps 63 bytes of an application name; the pid comes first for that.
    fn holder(&self) -> String {
        let data_dir = self.config.data_dir.display();
        let holder = format!("berth pid {} guard {} {data_dir}", std::process::id(), self.number);
        holder.chars().filter(char::is_ascii).take(63).collect()
    }

    pub(super) async fn evidence(&self, session: &Session) -> Result<Evidence, PrepareError> {
        let (data_dir, machine_id) = (self.config.data_dir.clone(), self.config.machine_id.clone());
        let OnDisk { file, authorities, data_dir, data_dir_inode, machine_id } =
            self.blocking(move || on_disk(&data_dir, &machine_id)).await?;
        let InDatabase { row, has_keys, system_identifier } =
            session.gather().await.map_err(|e| self.database(e))?;
        let facts = Facts { system_identifier, authorities, data_dir, data_dir_inode, machine_id };
        Ok(Evidence { expected: self.config.owner.clone(), file, row, has_keys, facts })
    }

    async fn write_file(&self, record: Record) -> Result<(), PrepareError> {
        let path = identity_file(&self.config.data_dir);
        let user = self.config.user;
        let bytes = serde_json::to_vec_pretty(&record).map_err(|e| self.retry(e))?;
        self.blocking(move || write_atomic(&path, &bytes, user)).await
    }

    /// File work off the arbiter.
    async fn blocking<T: Send + 'static, E: std::fmt::Display + Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T, PrepareError> {
        off_thread(work).await.map_err(|error| self.retry(error))
    }

    fn database(&self, error: DatabaseError) -> PrepareError {
        match error {
            // Given up in a stall, and not yet ended by the server.
            DatabaseError::Held(by) if by.contains(&self.holder()) => {
                self.retry(format_args!("the last session of this guard still holds its lock ({by})"))
            }
            DatabaseError::Held(by) => {
                let owner = &self.config.owner;
                let way_out = format!("stop that one, then berth cluster retry {}", owner.cluster);
                self.refused(format_args!("DatabaseInUse: another guard runs {owner}, {by}; {way_out}"))
            }
            other => self.retry(other),
        }
    }

    pub(super) fn cluster(&self) -> &str {
        &self.config.owner.cluster
    }

    pub(super) fn no_answer(&self) -> String {
        let (socket_dir, within) = (self.config.socket_dir.display(), CHECK_DEADLINE.as_secs());
        format!("the tenant database in {socket_dir} gave no answer within {within} s")
    }

    fn refused(&self, refusal: impl std::fmt::Display) -> PrepareError {
        PrepareError::Refused(format!(
            "cluster {}: identity guard refused the start in {}: {refusal}; see docs/operations.md, identity guard",
            self.cluster(),
            self.config.data_dir.display()
        ))
    }

    fn retry(&self, reason: impl std::fmt::Display) -> PrepareError {
        PrepareError::Retry(format!("cluster {}: identity guard: {reason}", self.cluster()))
    }
}
