//! Roles and databases of the components above postgres, made through its socket. Everything here is idempotent.
//!
//! The identity guard and OpenBao's blueprint connect through this module too.

use super::super::defaults;
use super::super::dsn::Database;
use super::socket::{self, SocketError};
use super::{BACKUP, SUPERUSER};
use crate::one_line::one_line;
use std::path::Path;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};

/// Why the databases cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotReady {
    /// Asking again can help: it starts, recovers, shuts down, or is full.
    Yet(String),
    /// This server will never let us in.
    Never(String),
}

/// A database that does not do what it is asked. Holds no statement and no secret.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    #[error("postgres: no answer within {} s", .0.as_secs())]
    Deadline(std::time::Duration),
    #[error("postgres: {}", message(.0))]
    Postgres(#[from] tokio_postgres::Error),
    #[error("postgres: {0}")]
    Socket(#[from] SocketError),
}

/// Connects over the socket in `sockets`. The connection ends with the returned client.
pub async fn connect(sockets: &Path, role: &str, database: &str) -> Result<Client, DatabaseError> {
    let mut config = Config::new();
    config.user(role).dbname(database).application_name("berth");
    let deadline = defaults::POSTGRES_ANSWER;
    let connect = async {
        let stream = socket::open(sockets).await?;
        Ok::<_, DatabaseError>(config.connect_raw(stream, NoTls).await?)
    };
    let (client, connection) =
        tokio::time::timeout(deadline, connect).await.map_err(|_| DatabaseError::Deadline(deadline))??;
    // Its failure shows at the client as a failed query.
    tokio::spawn(async move {
        let _shown_at_the_client = connection.await;
    });
    Ok(client)
}

/// Logs in and makes what is missing.
pub(super) async fn ensure(sockets: &Path, databases: &[Database]) -> Result<(), NotReady> {
    let attempt = async {
        let client = connect(sockets, SUPERUSER, SUPERUSER).await?;
        for database in databases {
            ensure_one(&client, database).await?;
        }
        Ok::<_, DatabaseError>(())
    };
    attempt.await.map_err(|error| {
        let code = match &error {
            DatabaseError::Postgres(error) => error.code().cloned(),
            DatabaseError::Deadline(_) | DatabaseError::Socket(SocketError::Connect { .. }) => None,
            DatabaseError::Socket(SocketError::Stranger { .. }) => return NotReady::Never(error.to_string()),
        };
        verdict(code.as_ref(), error.to_string())
    })
}

/// Makes the role that copies the files for a backup.
pub(crate) async fn ensure_backup_role(client: &Client) -> Result<(), DatabaseError> {
    if client.query_opt("SELECT 1 FROM pg_roles WHERE rolname = $1", &[&BACKUP]).await?.is_none() {
        client.batch_execute(&format!("CREATE ROLE {} LOGIN REPLICATION", quoted(BACKUP))).await?;
    }
    Ok(())
}

/// Makes sure that `database` is there and empty: drops it with all it holds where needed. Only for an OpenBao that never became usable.
pub(crate) async fn empty(sockets: &Path, database: &Database) -> Result<(), DatabaseError> {
    let work = async {
        let client = connect(sockets, SUPERUSER, SUPERUSER).await?;
        ensure_one(&client, database).await?;
        if is_empty(sockets, database).await? {
            return Ok(());
        }
        let drop = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", quoted(&database.name));
        client.batch_execute(&drop).await?;
        ensure_one(&client, database).await
    };
    let deadline = defaults::EMPTY_DEADLINE;
    tokio::time::timeout(deadline, work).await.map_err(|_| DatabaseError::Deadline(deadline))?
}

/// Without a table of its owner.
async fn is_empty(sockets: &Path, database: &Database) -> Result<bool, DatabaseError> {
    let client = connect(sockets, SUPERUSER, &database.name).await?;
    let tables =
        "SELECT 1 FROM pg_class WHERE relowner = (SELECT oid FROM pg_roles WHERE rolname = $1) LIMIT 1";
    Ok(client.query_opt(tables, &[&database.role]).await?.is_none())
}

async fn ensure_one(client: &Client, database: &Database) -> Result<(), DatabaseError> {
    let (name, role) = (quoted(&database.name), quoted(&database.role));
    if client.query_opt("SELECT 1 FROM pg_roles WHERE rolname = $1", &[&database.role]).await?.is_none() {
        client.batch_execute(&format!("CREATE ROLE {role} LOGIN")).await?;
    }
    if client.query_opt("SELECT 1 FROM pg_database WHERE datname = $1", &[&database.name]).await?.is_none() {
        client.batch_execute(&format!("CREATE DATABASE {name} OWNER {role}")).await?;
    }
    Ok(())
}

/// A login that is refused for what it is (class 28) stays refused; everything else passes or has a deadline.
fn verdict(code: Option<&SqlState>, message: String) -> NotReady {
    match code {
        Some(code) if code.code().starts_with("28") => NotReady::Never(message),
        _ => NotReady::Yet(message),
    }
}

/// The server's own words where it answered.
fn message(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(refusal) => format!("{} ({})", one_line(refusal.message()), refusal.code().code()),
        None => std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string),
    }
}

fn quoted(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_starts_is_waited_for_and_one_that_refuses_the_account_is_not() {
        let verdict = |code: Option<&SqlState>| verdict(code, String::new());
        let yet = NotReady::Yet(String::new());
        assert_eq!(verdict(None), yet);
        assert_eq!(verdict(Some(&SqlState::CANNOT_CONNECT_NOW)), yet);
        assert_eq!(verdict(Some(&SqlState::TOO_MANY_CONNECTIONS)), yet);
        assert_eq!(verdict(Some(&SqlState::DUPLICATE_OBJECT)), yet);
        assert_eq!(
            verdict(Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION)),
            NotReady::Never(String::new())
        );
    }

    #[test]
    fn an_identifier_cannot_end_its_quotes() {
        assert_eq!(quoted("a\"; DROP"), "\"a\"\"; DROP\"");
    }
}
