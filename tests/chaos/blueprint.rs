//! A stand-in component as the tree sees it: how it is started, and that it does its job.

use super::component;
use super::line::{Place, ask};
use async_trait::async_trait;
use berth::files;
use berth_actors::host::{Blueprint, Context, GateError, Listens, PrepareError, Running, WaitNote};
use berth_actors::policy::{Restart, RestartPolicy};
use berth_actors::spec::{ProcessSpec, Reaction, Role, Seam, Signal, Step, StopPlan};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Short, so that a storm can wait for them to pass; a busy machine that misses one only sees another start.
pub const START_WITHIN: Duration = Duration::from_secs(4);
pub const STOP_WITHIN: Duration = Duration::from_millis(300);
pub const RECHECK_WITHIN: Duration = Duration::from_secs(1);
/// Between two looks at whether it serves.
const LOOK: Duration = Duration::from_millis(10);

#[derive(Debug, Clone)]
pub enum Listen {
    Socket(PathBuf),
    /// A free port, and the same one ever after.
    Same,
    Leased(u16),
}

#[derive(Debug, Clone)]
pub enum Upstream {
    /// It keeps what it is told itself.
    Itself,
    Socket(PathBuf),
    /// The address of an earlier step of its chain.
    Step(&'static str),
}

#[derive(Debug, Clone)]
pub struct StandIn {
    pub chain: String,
    pub name: &'static str,
    /// Working directory.
    pub data: PathBuf,
    pub sockets: PathBuf,
    pub listen: Listen,
    pub upstream: Upstream,
    /// Where it says under which name it campaigns.
    pub leads: Option<PathBuf>,
}

impl StandIn {
    pub fn step(self, rides: &[&str]) -> Step {
        let ride = |name: &&str| ((*name).to_owned(), Reaction::RideThrough(RECHECK_WITHIN));
        Step {
            component: self.name.to_owned(),
            role: Role::Plain,
            seam: Seam::Open,
            restart: RestartPolicy {
                restart: Restart::Permanent,
                base_delay: Duration::from_millis(10),
                max_delay: Duration::from_millis(200),
                healthy_after: Duration::from_millis(200),
                intensity: u32::MAX,
                window: Duration::ZERO,
            },
            stop: StopPlan { signal: Signal::Term, deadline: STOP_WITHIN, repeat_after: None },
            start_deadline: START_WITHIN,
            reactions: rides.iter().map(ride).collect(),
            stand_in: Some("chaos".to_owned()),
            blueprint: Arc::new(self),
        }
    }
}

#[async_trait]
impl Blueprint for StandIn {
    fn spec(&self, context: &Context) -> Result<ProcessSpec, PrepareError> {
        let listen = match &self.listen {
            Listen::Socket(path) => Place::Socket(path.clone()),
            Listen::Same => {
                let port = context.previous_address.map_or(0, |address| address.port());
                Place::Port(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
            }
            Listen::Leased(port) => Place::Port(SocketAddr::from((Ipv4Addr::LOCALHOST, *port))),
        };
        let mut args = vec![component::ROLE.to_owned(), "--name".to_owned(), self.name.to_owned()];
        args.extend(["--listen".to_owned(), listen.to_string()]);
        args.extend(match &self.upstream {
            Upstream::Itself => ["--keep".to_owned(), self.data.join("kept").display().to_string()],
            Upstream::Socket(path) => ["--onto".to_owned(), Place::Socket(path.clone()).to_string()],
            Upstream::Step(name) => {
                let address = context
                    .address_of(name)
                    .ok_or_else(|| PrepareError::Retry(format!("{name} listens nowhere")))?;
                ["--onto".to_owned(), Place::Port(address).to_string()]
            }
        });
        if let Some(leads) = &self.leads {
            args.extend(["--leads".to_owned(), leads.display().to_string()]);
        }
        Ok(ProcessSpec {
            program: std::env::current_exe().map_err(|error| PrepareError::Fatal(error.to_string()))?,
            arg0: None,
            args,
            env: BTreeMap::new(),
            start_env: BTreeMap::new(),
            dir: self.data.clone(),
            output: self.data.join(format!("{}.log", self.name)),
            user: None,
            ready: None,
        })
    }

    async fn prepare(&self, context: &Context, _: &WaitNote) -> Result<ProcessSpec, PrepareError> {
        for dir in [&self.data, &self.sockets] {
            files::private_dir(dir, None).map_err(|error| PrepareError::Retry(error.to_string()))?;
        }
        self.spec(context)
    }

    fn listens(&self) -> Listens {
        match self.listen {
            Listen::Socket(_) => Listens::No,
            Listen::Same | Listen::Leased(_) => Listens::OneTcp,
        }
    }

    /// A write goes through it, by itself: a port that somebody else has taken over answers for another.
    async fn ready(&self, running: &Running, note: &WaitNote) -> Result<(), GateError> {
        let place = match (&self.listen, running.address) {
            (Listen::Socket(path), _) => Place::Socket(path.clone()),
            (_, Some(address)) => Place::Port(address),
            (_, None) => return Err(GateError::Hopeless("it listens nowhere".to_owned())),
        };
        let own = running.identity.pid.to_string();
        loop {
            match ask(&place, "whoami").await {
                Ok(pid) if pid == own => {
                    match ask(&place, &format!("put gate/{}/{} 1", self.chain, self.name)).await {
                        Ok(_) => return Ok(()),
                        Err(reason) => note.say(reason),
                    }
                }
                Ok(pid) => note.say(format!("pid {pid} answers in its place")),
                Err(reason) => note.say(reason),
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}
