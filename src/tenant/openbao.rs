//! OpenBao: the tenant's vault, sealed by a static key, initialised by itself on its first start.
//!
//! A crash at the wrong moment of that first start leaves a vault that looks healthy and lets nobody in, for ever. So the
//! gate is a login, and a mark on disk says that one ever worked; until then every start begins with an empty database.

mod config;
pub(crate) mod files;
pub(super) mod login;
pub(crate) mod seal;
pub(crate) mod sealing;

use super::defaults;
use super::dsn::Database;
use super::pki::Pki;
use super::postgres::databases;
use super::seat::Seat;
use crate::components::Program;
use crate::fault;
use crate::https::Https;
use crate::log_line::NewLines;
use crate::off_thread::off_thread;
use async_trait::async_trait;
use berth_actors::host::{Blueprint, Context, GateError, Listens, PrepareError, Running, WaitNote};
use berth_actors::spec::ProcessSpec;
use files::{Files, Vault};
use login::Answer;
use std::path::{Path, PathBuf};

/// The component's name in a chain.
pub const NAME: &str = "openbao";

/// The seal key and the operator's password of the vault of the tenant in `data_dir`.
pub(crate) fn secrets(data_dir: &Path) -> [PathBuf; 2] {
    let files = Files::of(data_dir, None);
    [files.seal_key().path, files.password()]
}

/// Whether that vault has ever let its operator in. Blocking.
pub(crate) fn is_initialised(data_dir: &Path) -> bool {
    Files::of(data_dir, None).is_initialised()
}

/// A vault in a database of its own.
#[derive(Debug, Clone)]
pub struct OpenBao {
    pub seat: Seat,
    pub program: Program,
    pub pki: Pki,
    /// The socket directory of its postgres.
    pub store: PathBuf,
    pub database: Database,
}

#[async_trait]
impl Blueprint for OpenBao {
    async fn prepare(&self, context: &Context, note: &WaitNote) -> Result<ProcessSpec, PrepareError> {
        let seat = &self.seat;
        seat.claim().await?;
        let pki = self.pki.clone();
        seat.blocking(move || pki.ensure()).await?;
        let (files, pki) = (self.files(), self.pki.clone());
        let vault = seat.blocking(move || files.prepare(&config::text(&files, &pki))).await?;
        let mut spec = self.spec(context)?;
        match vault {
            Vault::Initialised => {}
            Vault::Fresh { password } => {
                note.say("an empty database for the vault");
                databases::empty(&self.store, &self.database).await.map_err(|error| seat.retry(error))?;
                fault::point("vault-emptied");
                spec.start_env.insert(config::PASSWORD_VARIABLE.to_owned(), password);
            }
            Vault::Lost(path) => {
                let path = path.display();
                return Err(seat.fatal(format!(
                    "{path} is missing or torn, and the vault needs it: restore it from a backup"
                )));
            }
        }
        Ok(spec)
    }

    fn spec(&self, _context: &Context) -> Result<ProcessSpec, PrepareError> {
        Ok(self.process())
    }

    fn listens(&self) -> Listens {
        Listens::OneTcp
    }

    async fn ready(&self, running: &Running, note: &WaitNote) -> Result<(), GateError> {
        let hopeless = |reason: String| GateError::Hopeless(format!("{}: {reason}", self.seat.chain));
        let Some(address) = running.address else {
            return Err(hopeless("OpenBao listens on no port".to_owned()));
        };
        let files = self.files();
        let (ca, password) = files.to_log_in(&self.pki.certificate("server-ca")).await.map_err(hopeless)?;
        let https = Https::new(&ca, None).map_err(|e| hopeless(e.to_string()))?;
        let mut log = NewLines::after(&running.log, running.log_offset);
        loop {
            let answer = login::try_once(&https, address, &password).await;
            // Read after the probe: what it says about this configuration was written before it served, and among its first
            // lines. One chunk a probe is enough.
            let (rest, lines) = log.read().await.map_err(|e| hopeless(e.to_string()))?;
            log = rest;
            if let Some(reason) = lines.iter().flatten().find_map(|line| login::fatal_line(line)) {
                return Err(GateError::Fatal(format!("{}: {reason}", self.seat.chain)));
            }
            match answer {
                Answer::In => break,
                Answer::NotYet(reason) => note.say(reason),
                Answer::Refused if files.is_initialised() => {
                    let path = files.password();
                    return Err(GateError::Fatal(format!(
                        "{}: OpenBao refuses the ops login: put its current password into {}",
                        self.seat.chain,
                        path.display()
                    )));
                }
                Answer::Refused => {
                    return Err(hopeless(
                        "OpenBao did not finish its initialisation: starting anew".to_owned(),
                    ));
                }
            }
            tokio::time::sleep(defaults::OPENBAO_PROBE).await;
        }
        fault::point("vault-opened");
        // Dropped before the mark is durable: the next start empties a vault that nobody was told of yet.
        off_thread(move || files.mark_initialised()).await.map_err(|e| hopeless(e.to_string()))
    }
}

impl OpenBao {
    fn files(&self) -> Files {
        Files::of(&self.seat.data, self.seat.owner)
    }

    fn process(&self) -> ProcessSpec {
        let config = format!("-config={}", self.files().config().display());
        let mut spec = self.seat.spec(NAME, &self.program, vec!["server".to_owned(), config]);
        spec.env.insert("BAO_PG_CONNECTION_URL".to_owned(), self.database.url(&self.store));
        spec
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_command_line_names_a_file_and_no_secret() {
        let seat = Seat::of_demo();
        let bao = OpenBao {
            pki: Pki { cluster: "demo".into(), dir: "/s/demo/pki".into(), owner: None },
            store: seat.sockets.clone(),
            seat,
            program: Program::real("/bin/bao"),
            database: Database::named("bao"),
        };
        let spec = bao.process();
        assert_eq!(spec.args, ["server", "-config=/s/demo/bao/bao.hcl"]);
        assert_eq!(spec.env["BAO_PG_CONNECTION_URL"], "postgres://bao@/bao?host=/r/demo");
        assert_eq!(spec.env.get(config::PASSWORD_VARIABLE), None);
    }
}
