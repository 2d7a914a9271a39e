//! The guard's one connection to the tenant database: it holds the lock on the cluster's uid for as long as it lives.
//!
//! Used by the guard only. It writes nothing but its own schema `berth`, and reads kine's table without locking it.

use super::identity::Record;
use crate::one_line::one_line;
use crate::tenant::postgres::socket;
use sha2::{Digest, Sha256};
use std::path::Path;
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};
use tokio_util::sync::CancellationToken;

const DATABASE: &str = "kine";
const ROLE: &str = "postgres";
/// A lock of a daemon that was just killed goes within milliseconds: the server sees its socket close. One that is held
/// longer has a living owner.
const LOCK_WAIT: Duration = Duration::from_secs(3);
/// A fresh kine leaves these two rows in its table before any Kubernetes was there (kine 0.17).
const KINES_OWN_KEYS: [&str; 2] = ["compact_rev_key", "/registry/health"];

#[derive(Debug, thiserror::Error)]
pub(super) enum DatabaseError {
    #[error("the tenant database in {socket_dir} cannot be {action}: {reason}")]
    Failed { action: &'static str, socket_dir: String, reason: String },
    #[error("the row berth.identity is not a record of the identity guard: {0}")]
    NotARecord(String),
    /// Another guard runs this tenant right now.
    #[error("{0}")]
    Held(String),
}

/// What the database contributes to the evidence.
#[derive(Debug)]
pub(super) struct InDatabase {
    pub(super) row: Option<Record>,
    pub(super) has_keys: bool,
    pub(super) system_identifier: String,
}

/// Dropping it closes the connection, and the server gives the lock up.
pub(super) struct Session {
    client: Client,
    connection: AbortHandle,
    ended: CancellationToken,
    socket_dir: String,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Session {
    /// Connects and takes the lock. `holder` is what others are told while it is held.
    pub(super) async fn open(socket_dir: &Path, uid: &str, holder: &str) -> Result<Self, DatabaseError> {
        let socket_dir_text = socket_dir.display().to_string();
        let mut config = Config::new();
        config.user(ROLE).dbname(DATABASE).application_name(holder);
        let stream = socket::open(socket_dir).await.map_err(|error| DatabaseError::Failed {
            action: "reached",
            socket_dir: socket_dir_text.clone(),
            reason: one_line(error),
        })?;
        let (client, connection) = config
            .connect_raw(stream, NoTls)
            .await
            .map_err(|error| failed("reached", &socket_dir_text, &error))?;
        let ended = CancellationToken::new();
        let tell = ended.clone().drop_guard();
        let connection = async move {
            let _tells_however_it_ends = tell;
            connection.await
        };
        let connection = tokio::spawn(connection).abort_handle();
        let session = Self { client, connection, ended, socket_dir: socket_dir_text };
        session.lock(uid).await?;
        Ok(session)
    }

    /// False once the connection was lost, and the lock with it.
    pub(super) fn is_open(&self) -> bool {
        !self.client.is_closed()
    }

    /// Cancelled once the connection was lost.
    pub(super) fn ended(&self) -> CancellationToken {
        self.ended.clone()
    }

    async fn lock(&self, uid: &str) -> Result<(), DatabaseError> {
        let key = lock_key(uid);
        let wait = format!("SET lock_timeout = {}", LOCK_WAIT.as_millis());
        self.client.batch_execute(&wait).await.map_err(|e| self.failed("locked", &e))?;
        match self.client.execute("SELECT pg_advisory_lock($1)", &[&key]).await {
            Ok(_) => Ok(()),
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                Err(DatabaseError::Held(self.holder(key).await))
            }
            Err(error) => Err(self.failed("locked", &error)),
        }
    }

    /// Who holds the lock, in the words that holder gave itself.
    async fn holder(&self, key: i64) -> String {
        // A bigint key is split over classid and objid, with objsubid 1 (pg_locks).
        let query = "SELECT a.application_name, a.pid FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
                     WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 \
                     AND (l.classid::bigint << 32 | l.objid::bigint) = $1";
        match self.client.query_opt(query, &[&key]).await {
            Ok(Some(row)) => {
                format!("held by \"{}\" (postgres backend {})", row.get::<_, String>(0), row.get::<_, i32>(1))
            }
            _ => "held by a session that just ended".to_owned(),
        }
    }

    pub(super) async fn gather(&self) -> Result<InDatabase, DatabaseError> {
        let failed = |error| self.failed("read", &error);
        let presence = self
            .client
            .query_one(
                "SELECT to_regclass('berth.identity') IS NOT NULL, to_regclass('public.kine') IS NOT NULL, \
                 (SELECT system_identifier::text FROM pg_control_system())",
                &[],
            )
            .await
            .map_err(failed)?;
        let (has_table, has_kine, system_identifier): (bool, bool, String) =
            (presence.get(0), presence.get(1), presence.get(2));
        let row = if has_table {
            let row = self.client.query_opt("SELECT record::text FROM berth.identity", &[]).await;
            row.map_err(failed)?.map(|row| parse(row.get(0))).transpose()?
        } else {
            None
        };
        let has_keys = has_kine && {
            let own = KINES_OWN_KEYS.as_slice();
            let query = "SELECT EXISTS (SELECT FROM public.kine WHERE name <> ALL ($1))";
            self.client.query_one(query, &[&own]).await.map_err(failed)?.get(0)
        };
        Ok(InDatabase { row, has_keys, system_identifier })
    }

    /// Inserts the row unless there is one; the next look tells whose it is.
    pub(super) async fn claim(&self, record: &Record) -> Result<(), DatabaseError> {
        self.make_place().await?;
        let insert = "INSERT INTO berth.identity (record) VALUES ($1::text::jsonb) ON CONFLICT DO NOTHING";
        self.write(insert, record).await
    }

    /// The row, whether there is one or not. Nobody changes it meanwhile: this session has the lock.
    pub(super) async fn adopt(&self, record: &Record) -> Result<(), DatabaseError> {
        self.make_place().await?;
        let replace = "INSERT INTO berth.identity (record) VALUES ($1::text::jsonb) \
                       ON CONFLICT (only_row) DO UPDATE SET record = excluded.record";
        self.write(replace, record).await
    }

    async fn make_place(&self) -> Result<(), DatabaseError> {
        let create = "CREATE SCHEMA IF NOT EXISTS berth; \
                      CREATE TABLE IF NOT EXISTS berth.identity ( \
                          only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row), record jsonb NOT NULL)";
        self.client.batch_execute(create).await.map_err(|e| self.failed("prepared", &e))
    }

    pub(super) async fn settle(&self, record: &Record) -> Result<(), DatabaseError> {
        self.write("UPDATE berth.identity SET record = $1::text::jsonb", record).await
    }

    async fn write(&self, statement: &str, record: &Record) -> Result<(), DatabaseError> {
        let text = serde_json::to_string(record).map_err(|e| DatabaseError::NotARecord(e.to_string()))?;
        self.client.execute(statement, &[&text]).await.map(drop).map_err(|e| self.failed("written", &e))
    }

    fn failed(&self, action: &'static str, error: &tokio_postgres::Error) -> DatabaseError {
        failed(action, &self.socket_dir, error)
    }
}

fn failed(action: &'static str, socket_dir: &str, error: &tokio_postgres::Error) -> DatabaseError {
    // The outer text is only "db error" or "error connecting to server".
    let reason = match error.as_db_error() {
        Some(db) => format!("{} ({})", db.message(), db.code().code()),
        None => std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string),
    };
    DatabaseError::Failed { action, socket_dir: socket_dir.to_owned(), reason: one_line(reason) }
}

pub(super) fn parse(text: &str) -> Result<Record, DatabaseError> {
    Record::parse(text.as_bytes()).map_err(DatabaseError::NotARecord)
}

/// Advisory locks are 64-bit numbers; the uid is hashed into one. They are local to the database.
fn lock_key(uid: &str) -> i64 {
    let digest = Sha256::digest(uid.as_bytes());
    digest.iter().take(8).fold(0, |key, byte| key << 8 | i64::from(*byte))
}
