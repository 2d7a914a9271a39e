//! kine: the etcd API in front of a postgres database. Serves a tenant's API server over a socket file and each kcp slot
//! over loopback TCP.
//!
//! It retries for minutes what can never work and says so only in its log, so the log is the first half of its gate; a read
//! through it is the second.

mod probe;

use super::defaults;
use super::dsn::Database;
use super::seat::Seat;
use crate::components::Program;
use crate::files;
use crate::log_line;
use crate::logs::Log;
use crate::off_thread::off_thread;
use async_trait::async_trait;
use berth_actors::host::{Blueprint, Context, GateError, Listens, PrepareError, Running, WaitNote};
use berth_actors::spec::ProcessSpec;
use std::fmt::Display;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use tokio::net::{TcpStream, UnixStream};

/// The component's name in a chain.
pub const NAME: &str = "kine";

/// Where a kine is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A socket file in the chain's socket directory.
    Socket(PathBuf),
    /// A port of 127.0.0.1: any free one at first, the same one ever after, for its clients never look again.
    Loopback,
}

#[derive(Debug, Clone)]
pub struct Kine {
    pub seat: Seat,
    pub program: Program,
    /// The socket directory of its postgres.
    pub store: PathBuf,
    pub database: Database,
    pub endpoint: Endpoint,
}

#[async_trait]
impl Blueprint for Kine {
    async fn prepare(&self, context: &Context, _note: &WaitNote) -> Result<ProcessSpec, PrepareError> {
        self.seat.claim().await?;
        if let Endpoint::Socket(path) = &self.endpoint {
            // kine would take the path over even from a living kine; the tree starts one only after the last is gone.
            let path = path.clone();
            self.seat.blocking(move || files::remove(&path)).await?;
        }
        self.spec(context)
    }

    fn spec(&self, context: &Context) -> Result<ProcessSpec, PrepareError> {
        Ok(self.process(context.previous_address))
    }

    /// kine logs the key and the value of a write that fails.
    fn quotes_log(&self) -> bool {
        false
    }

    fn listens(&self) -> Listens {
        match self.endpoint {
            Endpoint::Socket(_) => Listens::No,
            Endpoint::Loopback => Listens::OneTcp,
        }
    }

    /// Its word that it serves, given once in a life, and then a read that reaches the database now: looked at again after
    /// postgres was restarted under it, the old word alone says nothing.
    async fn ready(&self, running: &Running, note: &WaitNote) -> Result<(), GateError> {
        self.available(running, note).await?;
        while let Err(reason) = self.read(running.address).await {
            note.say(reason);
            tokio::time::sleep(defaults::KINE_PROBE).await;
        }
        Ok(())
    }
}

impl Kine {
    fn process(&self, previous: Option<SocketAddr>) -> ProcessSpec {
        let listen = match &self.endpoint {
            Endpoint::Socket(path) => format!("unix://{}", path.display()),
            Endpoint::Loopback => {
                SocketAddr::from((Ipv4Addr::LOCALHOST, previous.map_or(0, |address| address.port())))
                    .to_string()
            }
        };
        let args = vec![
            format!("--listen-address={listen}"),
            "--metrics-bind-address=0".to_owned(),
            "--log-format=json".to_owned(),
            format!("--datastore-poll-interval={}ms", defaults::KINE_POLL.as_millis()),
            format!("--datastore-max-open-connections={}", defaults::KINE_CONNECTIONS),
        ];
        let mut spec = self.seat.spec(NAME, &self.program, args);
        spec.env.insert("KINE_ENDPOINT".to_owned(), self.database.url(&self.store));
        spec
    }

    /// Resolves when its log says that it serves, or does not reach back that far any more.
    async fn available(&self, running: &Running, note: &WaitNote) -> Result<(), GateError> {
        let hopeless =
            |error: &dyn Display| GateError::Hopeless(format!("{}: kine's log: {error}", self.seat.chain));
        let (path, offset) = (running.log.clone(), running.log_offset);
        if !off_thread(move || Log::at(&path).reaches(offset)).await.map_err(|error| hopeless(&error))? {
            return Ok(());
        }
        note.say("kine connects to its database");
        let last_word = log_line::wait_for(&running.log, running.log_offset, |line| match judge(line) {
            Line::Available | Line::Never(_) => true,
            Line::Trouble => {
                note.say("kine cannot reach its database yet");
                false
            }
            Line::Other => false,
        });
        let last_word = last_word.await.map_err(|error| hopeless(&error))?;
        let Line::Never(code) = judge(&last_word) else { return Ok(()) };
        let Database { name, role } = &self.database;
        Err(GateError::Fatal(format!(
            "{}: postgres refuses kine as role {role} on database {name} ({code}): see its log",
            self.seat.chain
        )))
    }

    async fn read(&self, address: Option<SocketAddr>) -> Result<(), String> {
        let refused = |error: io::Error| format!("kine accepts no connection ({error})");
        match (&self.endpoint, address) {
            (Endpoint::Socket(path), _) => {
                probe::read(UnixStream::connect(path).await.map_err(refused)?).await
            }
            (Endpoint::Loopback, Some(address)) => {
                probe::read(TcpStream::connect(address).await.map_err(refused)?).await
            }
            (Endpoint::Loopback, None) => Err("kine's port".to_owned()),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Available,
    /// A refusal by SQLSTATE that no retry changes.
    Never(&'static str),
    Trouble,
    Other,
}

/// Its lines may hold keys and values of its clients: judged here, never quoted.
pub(super) fn judge(line: &str) -> Line {
    // Wrong password, no such role (also by name: 28000), no such database.
    const NEVER: [&str; 3] = ["28P01", "28000", "3D000"];
    if line.contains("Kine available at") {
        return Line::Available;
    }
    if let Some(code) = NEVER.into_iter().find(|code| line.contains(&format!("SQLSTATE {code}"))) {
        return Line::Never(code);
    }
    if line.contains(" error") || line.contains("Failed to") { Line::Trouble } else { Line::Other }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kine(endpoint: Endpoint) -> Kine {
        let seat = Seat::of_demo();
        Kine {
            store: seat.sockets.clone(),
            seat,
            program: Program::real("/bin/kine"),
            database: Database::named("kine"),
            endpoint,
        }
    }

    #[test]
    fn its_command_line_has_no_datastore_url_and_no_metrics_port() {
        let spec = kine(Endpoint::Socket("/r/demo/kine.sock".into())).process(None);
        assert_eq!(
            spec.args,
            [
                "--listen-address=unix:///r/demo/kine.sock",
                "--metrics-bind-address=0",
                "--log-format=json",
                "--datastore-poll-interval=250ms",
                "--datastore-max-open-connections=20",
            ]
        );
        assert_eq!(spec.env["KINE_ENDPOINT"], "postgres://kine@/kine?host=/r/demo");
    }

    #[test]
    fn a_restarted_kine_binds_the_port_its_clients_know() {
        let listen = |previous| kine(Endpoint::Loopback).process(previous).args[0].clone();
        assert_eq!(listen(None), "--listen-address=127.0.0.1:0");
        assert_eq!(listen(Some(([127, 0, 0, 1], 40301).into())), "--listen-address=127.0.0.1:40301");
    }

    #[test]
    fn a_refusal_by_postgres_is_told_from_an_outage() {
        let json = |message: &str| format!(r#"{{"message":"{message}","severity":"info"}}"#);
        assert_eq!(judge(&json("Kine available at unix:///r/demo/kine.sock")), Line::Available);
        assert_eq!(
            judge(&json(
                "Failed to ping database connection: FATAL: database \\\"kine\\\" does not exist (SQLSTATE 3D000)"
            )),
            Line::Never("3D000")
        );
        assert_eq!(
            judge(&json(
                "Failed to ping database connection: FATAL: the database system is starting up (SQLSTATE 57P03)"
            )),
            Line::Trouble
        );
        assert_eq!(judge(&json("Configuring postgres database connection pooling")), Line::Other);
    }
}
