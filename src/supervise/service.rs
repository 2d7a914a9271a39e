//! One service as the tree sees it: a chain of one step, from what its file says.

use super::defaults;
use super::readiness::Readiness;
use super::spec::{Service, When};
use async_trait::async_trait;
use berth_actors::host::{Blueprint, Context, GateError, Listens, PrepareError, Running, WaitNote};
use berth_actors::policy::{Restart, RestartPolicy};
use berth_actors::spec::{ProcessSpec, Role, Seam, Signal, Step, StopPlan, User};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The one step of a service's chain.
const MAIN: &str = "main";
/// Where programs are looked for when Berth itself has no PATH.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// What the services of one file share, once for all of them.
pub(super) struct Surroundings {
    /// Where relative paths begin.
    pub(super) dir: Arc<Path>,
    /// Where logs lie that are not given.
    pub(super) logs: Arc<Path>,
    pub(super) path: Arc<str>,
    pub(super) passwd: String,
    pub(super) is_root: bool,
}

impl Surroundings {
    pub(super) fn new(file: &Path, logs: PathBuf) -> Self {
        Self {
            dir: file.parent().unwrap_or(Path::new("/")).into(),
            logs: logs.into(),
            path: std::env::var("PATH").map_or_else(|_| PATH.into(), Into::into),
            passwd: crate::files::trusted::text("/etc/passwd").unwrap_or_default(),
            is_root: rustix::process::geteuid().is_root(),
        }
    }

    /// From the directory of the logs.
    pub(super) fn log(&self, service: &Service) -> PathBuf {
        match &service.log {
            Some(log) => self.dir.join(log),
            None => format!("{}.log", service.name).into(),
        }
    }

    /// The step, or why there cannot be one.
    pub(super) fn step(&self, service: &Service) -> Result<Step, String> {
        Ok(Step {
            component: MAIN.to_owned(),
            role: Role::Plain,
            seam: Seam::Open,
            blueprint: Arc::new(self.plain(service)?),
            restart: restart(service),
            stop: StopPlan {
                signal: service.stop_signal.map_or(Signal::Term, Into::into),
                deadline: or(service.stop_within, defaults::STOP_WITHIN),
                repeat_after: None,
            },
            start_deadline: or(service.start_within, defaults::START_WITHIN),
            reactions: BTreeMap::new(),
            stand_in: None,
        })
    }

    fn plain(&self, service: &Service) -> Result<Plain, String> {
        let called = service.argv.first().ok_or("argv is empty")?;
        let user = match &service.user {
            None => None,
            Some(account) => {
                let user = account.resolve(&self.passwd).map_err(|error| error.to_string())?;
                if !self.is_root {
                    return Err("user: only root can run a service as another".to_owned());
                }
                Some(user)
            }
        };
        let path = service.env.get("PATH").map_or(&*self.path, String::as_str);
        let program = find(called, &self.dir, path).ok_or_else(|| format!("{called} is not on {path}"))?;
        let dir = service.dir.as_ref().map_or_else(|| Arc::clone(&self.dir), |dir| self.dir.join(dir).into());
        Ok(Plain {
            program: (program != Path::new(called)).then_some(program),
            argv: service.argv.as_slice().into(),
            env: service.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
            path: Arc::clone(&self.path),
            dir,
            logs: Arc::clone(&self.logs),
            log: self.log(service),
            user,
            readiness: match (service.ready_fd, &service.ready_file) {
                (Some(number), _) => Readiness::pipe(number),
                (None, Some(file)) => Readiness::File(self.dir.join(file)),
                (None, None) => Readiness::Running,
            },
        })
    }
}

fn or(given: Option<crate::config::Span>, default: Duration) -> Duration {
    given.map_or(default, |span| span.0)
}

fn restart(service: &Service) -> RestartPolicy {
    let default = defaults::restart();
    let (intensity, window) = match service.give_up {
        Some(limit) => (limit.restarts, limit.within.0),
        None => (default.intensity, default.window),
    };
    RestartPolicy {
        restart: match service.restart {
            None | Some(When::Always) => default.restart,
            Some(When::OnFailure) => Restart::Transient(vec![0]),
            Some(When::Never) => Restart::Temporary,
        },
        base_delay: or(service.restart_delay, default.base_delay),
        max_delay: or(service.restart_delay_max, default.max_delay),
        healthy_after: or(service.healthy_after, default.healthy_after),
        intensity,
        window,
    }
}

/// As execvp(3) looks for a program, with relative paths from `dir`.
fn find(program: &str, dir: &Path, path: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(dir.join(program));
    }
    let candidates = std::env::split_paths(path).map(|place| dir.join(place).join(program));
    candidates.into_iter().find(|candidate| {
        fs::metadata(candidate).is_ok_and(|meta| meta.is_file())
            && rustix::fs::access(candidate, rustix::fs::Access::EXEC_OK).is_ok()
    })
}

/// Kept small: there may be thousands.
#[derive(Debug)]
struct Plain {
    /// Where it is not `argv[0]` itself.
    program: Option<PathBuf>,
    argv: Box<[String]>,
    env: Box<[(String, String)]>,
    path: Arc<str>,
    dir: Arc<Path>,
    logs: Arc<Path>,
    log: PathBuf,
    user: Option<User>,
    readiness: Readiness,
}

#[async_trait]
impl Blueprint for Plain {
    fn spec(&self, _: &Context) -> Result<ProcessSpec, PrepareError> {
        let (called, args) =
            self.argv.split_first().ok_or_else(|| PrepareError::Fatal("argv is empty".to_owned()))?;
        let mut env: BTreeMap<String, String> = self.env.iter().cloned().collect();
        env.entry("PATH".to_owned()).or_insert_with(|| self.path.as_ref().to_owned());
        Ok(ProcessSpec {
            program: self.program.clone().unwrap_or_else(|| called.into()),
            arg0: Some(called.clone()),
            args: args.to_vec(),
            env,
            start_env: BTreeMap::new(),
            dir: self.dir.to_path_buf(),
            output: self.logs.join(&self.log),
            user: self.user,
            ready: None,
        })
    }

    async fn prepare(&self, context: &Context, _: &WaitNote) -> Result<ProcessSpec, PrepareError> {
        Ok(ProcessSpec { ready: self.readiness.prepare()?, ..self.spec(context)? })
    }

    fn listens(&self) -> Listens {
        Listens::No
    }

    async fn ready(&self, _: &Running, note: &WaitNote) -> Result<(), GateError> {
        self.readiness.wait(note).await
    }
}
