//! A tenant's postgres as its owner sees it: rows in a table of a database that is nobody else's.

use berth::tenant::postgres::databases::connect;
use std::collections::BTreeSet;
use std::path::Path;

const SUPERUSER: &str = "postgres";
const DATABASE: &str = "chaos";

/// An acknowledged insert is on disk: the setting that could make it less is the server's default.
pub async fn insert(sockets: &Path, name: &str) -> Result<(), String> {
    match insert_into_what_is_there(sockets, name).await {
        Err(_) => {
            make_room(sockets).await;
            insert_into_what_is_there(sockets, name).await
        }
        inserted => inserted,
    }
}

async fn insert_into_what_is_there(sockets: &Path, name: &str) -> Result<(), String> {
    let client = connect(sockets, SUPERUSER, DATABASE).await.map_err(text)?;
    let insert = "INSERT INTO written VALUES ($1)";
    client.execute(insert, &[&name]).await.map(drop).map_err(text)
}

/// What fails here is there already, or fails again in the insert that follows.
async fn make_room(sockets: &Path) {
    for (database, statement) in [
        (SUPERUSER, "CREATE DATABASE chaos"),
        (DATABASE, "CREATE TABLE IF NOT EXISTS written (name text PRIMARY KEY)"),
    ] {
        if let Ok(client) = connect(sockets, SUPERUSER, database).await {
            let _ = client.batch_execute(statement).await;
        }
    }
}

pub async fn names(sockets: &Path) -> Result<BTreeSet<String>, String> {
    let client = connect(sockets, SUPERUSER, DATABASE).await.map_err(text)?;
    let rows = client.query("SELECT name FROM written", &[]).await.map_err(text)?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
