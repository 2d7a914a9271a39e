//! How the daemon starts the cloud controller manager of one tenant, and when it is ready.
//!
//! The tree calls it after the API server is ready. It never holds the credential longer than it takes to write it.

use super::access::{self, AccessError};
use super::config::{CLUSTER, INSTANCES_FILE, TENANT_KUBECONFIG};
use super::credential::renew;
use super::program::{LOST_LINE, READY_LINE, REFUSED};
use super::snapshot::Snapshot;
use crate::components::Program;
use crate::files::{FileError, read_optional};
use crate::https::Https;
use crate::log_line;
use crate::off_thread::off_thread;
use crate::one_line::one_line;
use crate::tenant::credentials::Credentials;
use async_trait::async_trait;
use berth_actors::host::{Blueprint, Context, GateError, Listens, PrepareError, Running, WaitNote};
use berth_actors::spec::{ProcessSpec, User};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The tenant's instances, written by `berth node`.
pub fn snapshot_file(data_dir: &Path) -> PathBuf {
    data_dir.join("nodes.json")
}

/// The controller's own kubeconfig.
pub fn credential_file(data_dir: &Path) -> PathBuf {
    data_dir.join("cloud-controller-manager.kubeconfig")
}

#[derive(Debug, Clone)]
pub struct CloudControllerManager {
    pub cluster: String,
    /// `<state>/clusters/<name>`.
    pub data_dir: PathBuf,
    /// The tenant's API server, `https://127.0.0.1:<port>`: leased, so known before it runs.
    pub server: String,
    pub credentials: Credentials,
    pub program: Program,
    /// Who runs it and owns its files when the daemon is root.
    pub user: Option<User>,
    /// Its log.
    pub output: PathBuf,
}

#[async_trait]
impl Blueprint for CloudControllerManager {
    async fn prepare(&self, context: &Context, note: &WaitNote) -> Result<ProcessSpec, PrepareError> {
        note.say("the snapshot of its nodes");
        let (path, user) = (snapshot_file(&self.data_dir), self.user);
        self.blocking(move || Snapshot::ensure(&path, user)).await?;

        note.say("its rights in the tenant");
        let credentials = self.credentials.clone();
        let admin = self.blocking(move || Admin::read(&credentials)).await?;
        let admin = Https::new(&admin.server_ca, Some((&admin.certificate, &admin.key))).map_err(|e| {
            let path = self.credentials.admin.display();
            self.fatal(format_args!("the admin credential {path} is not usable: {e}"))
        })?;
        access::apply(&admin, &self.server).await.map_err(|e: AccessError| self.retry(e))?;

        note.say("its credential");
        let Self { data_dir, credentials, server, .. } = self.clone();
        self.blocking(move || renew(&data_dir, &credentials, &server, user, crate::clock::now())).await?;

        self.spec(context)
    }

    fn spec(&self, _context: &Context) -> Result<ProcessSpec, PrepareError> {
        let path = |path: PathBuf| path.display().to_string();
        Ok(ProcessSpec {
            program: self.program.path.clone(),
            arg0: self.program.arg0.clone(),
            args: Vec::new(),
            env: BTreeMap::from([
                (CLUSTER.to_owned(), self.cluster.clone()),
                (TENANT_KUBECONFIG.to_owned(), path(credential_file(&self.data_dir))),
                (INSTANCES_FILE.to_owned(), path(snapshot_file(&self.data_dir))),
            ]),
            start_env: BTreeMap::new(),
            dir: self.data_dir.clone(),
            output: self.output.clone(),
            user: self.user,
            ready: None,
        })
    }

    fn listens(&self) -> Listens {
        Listens::No
    }

    /// Its own latest word: given after a list with its own credential, taken back when its watch breaks; or its refusal,
    /// which no restart changes.
    async fn ready(&self, running: &Running, note: &WaitNote) -> Result<(), GateError> {
        note.say("a list of its nodes");
        let word = log_line::wait_for_latest(
            &running.log,
            running.log_offset,
            |line| line == READY_LINE || line == LOST_LINE || line.starts_with(REFUSED),
            |line| line != LOST_LINE,
        )
        .await
        .map_err(|e| GateError::Hopeless(format!("cluster {}: {e}", self.cluster)))?;
        match word.strip_prefix(REFUSED) {
            Some(refusal) => Err(GateError::Fatal(format!("cluster {}:{}", self.cluster, one_line(refusal)))),
            None => Ok(()),
        }
    }
}

impl CloudControllerManager {
    /// File work off the arbiter. What fails here may be a full disk: worth another try.
    async fn blocking<T: Send + 'static, E: std::fmt::Display + Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T, PrepareError> {
        off_thread(work).await.map_err(|error| self.retry(error))
    }

    fn retry(&self, reason: impl std::fmt::Display) -> PrepareError {
        PrepareError::Retry(format!(
            "cluster {}: prepare the cloud controller manager: {reason}",
            self.cluster
        ))
    }

    fn fatal(&self, reason: impl std::fmt::Display) -> PrepareError {
        PrepareError::Fatal(format!(
            "cluster {}: prepare the cloud controller manager: {reason}",
            self.cluster
        ))
    }
}

/// The tenant's admin certificate: used once per start to apply the rights, never handed to the program.
struct Admin {
    server_ca: Vec<u8>,
    certificate: Vec<u8>,
    key: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
enum AdminError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{0} does not exist")]
    Missing(PathBuf),
}

impl Admin {
    /// Blocking.
    fn read(credentials: &Credentials) -> Result<Self, AdminError> {
        let read = |path: &Path| read_optional(path)?.ok_or_else(|| AdminError::Missing(path.to_owned()));
        Ok(Self {
            server_ca: read(&credentials.server_ca)?,
            certificate: read(&credentials.admin)?,
            key: read(&credentials.admin_key)?,
        })
    }
}
