//! The file of services as it is written (TOML or JSON), read strictly: an unknown key or a bad value is refused by name, and
//! nothing starts.
//!
//! `supervise` loads it once. It looks at no other file.

use crate::config::{Account, LogSize, Span};
use crate::logs::Limits;
use crate::names;
use crate::one_line::one_line;
use berth_actors::spec::Signal;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};

/// Why the file cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    #[error("read {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path}: {reason}")]
    Invalid { path: PathBuf, reason: String },
    #[error("{path}: service {service}: {reason}")]
    Service { path: PathBuf, service: String, reason: String },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    services: Vec<Service>,
    #[serde(default)]
    logs: Logs,
}

/// As in a daemon's configuration, for each service.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Logs {
    max_size: Option<LogSize>,
    keep: Option<NonZeroU16>,
}

impl From<Logs> for Limits {
    fn from(logs: Logs) -> Self {
        Self {
            max_size: logs.max_size.map_or(Self::MAX_SIZE, |size| size.0),
            keep: logs.keep.map_or(Self::KEEP, NonZeroU16::get),
        }
    }
}

/// What a file asks for.
#[derive(Debug)]
pub(super) struct Spec {
    /// Each behind those it comes after, else in the order of the file.
    pub(super) services: Vec<Service>,
    pub(super) logs: Limits,
}

/// One service. What is not given is in [`super::defaults`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Service {
    pub(super) name: String,
    /// The program, looked up on PATH when it has no slash, and its arguments.
    pub(super) argv: Vec<String>,
    /// The whole environment but PATH, which is Berth's own unless it is named here.
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    /// Working directory; without it, the file's own.
    pub(super) dir: Option<PathBuf>,
    /// Only root can give another.
    pub(super) user: Option<Account>,
    /// Output is appended here; without it, `log/<name>.log` in the state directory.
    pub(super) log: Option<PathBuf>,
    #[serde(default)]
    pub(super) after: Vec<String>,
    /// It writes a newline to this descriptor when it is ready.
    pub(super) ready_fd: Option<i32>,
    /// It creates this file when it is ready.
    pub(super) ready_file: Option<PathBuf>,
    pub(super) start_within: Option<Span>,
    pub(super) restart: Option<When>,
    pub(super) restart_delay: Option<Span>,
    pub(super) restart_delay_max: Option<Span>,
    pub(super) healthy_after: Option<Span>,
    pub(super) give_up: Option<GiveUp>,
    pub(super) stop_signal: Option<StopSignal>,
    pub(super) stop_within: Option<Span>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum When {
    Always,
    /// Unless it ended with exit code 0.
    OnFailure,
    Never,
}

/// More than `restarts` within the time: no further one.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GiveUp {
    pub(super) restarts: u32,
    pub(super) within: Span,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum StopSignal {
    Term,
    Int,
    Kill,
}

impl From<StopSignal> for Signal {
    fn from(signal: StopSignal) -> Self {
        match signal {
            StopSignal::Term => Self::Term,
            StopSignal::Int => Self::Int,
            StopSignal::Kill => Self::Kill,
        }
    }
}

/// Reads and checks the file. Blocking.
pub(super) fn load(path: &Path) -> Result<Spec, SpecError> {
    let text = crate::files::trusted::text(path)
        .map_err(|source| SpecError::Read { path: path.to_owned(), source })?;
    parse(&text, path)
}

/// `path` tells JSON from TOML.
pub(super) fn parse(text: &str, path: &Path) -> Result<Spec, SpecError> {
    let invalid = |reason: String| SpecError::Invalid { path: path.to_owned(), reason: one_line(reason) };
    let File { services, logs } = if path.extension().is_some_and(|extension| extension == "json") {
        serde_json::from_str(text).map_err(|error| invalid(error.to_string()))?
    } else {
        toml::from_str(text).map_err(|error| invalid(error.message().replace('\n', ", ")))?
    };
    for service in &services {
        check(service).map_err(|reason| SpecError::Service {
            path: path.to_owned(),
            service: one_line(&service.name),
            reason: one_line(reason),
        })?;
    }
    Ok(Spec { services: in_order(services).map_err(invalid)?, logs: logs.into() })
}

fn check(service: &Service) -> Result<(), String> {
    names::service(&service.name).map_err(|error| error.to_string())?;
    if service.argv.is_empty() {
        return Err("argv is empty: name the program".to_owned());
    }
    match (service.ready_fd, &service.ready_file) {
        (Some(_), Some(_)) => Err("it has both ready_fd and ready_file: keep one of them".to_owned()),
        (Some(number), None) if !(3..256).contains(&number) => {
            Err(format!("ready_fd = {number}: choose a number from 3 to 255"))
        }
        _ => Ok(()),
    }
}

/// A stable order in which each service stands behind all it comes after.
fn in_order(services: Vec<Service>) -> Result<Vec<Service>, String> {
    let mut places = HashMap::new();
    for (place, service) in services.iter().enumerate() {
        if places.insert(service.name.clone(), place).is_some() {
            return Err(format!("there are two services called {}", service.name));
        }
    }
    let mut order = Vec::with_capacity(services.len());
    let mut marks = vec![Mark::New; services.len()];
    for place in 0..services.len() {
        visit(place, &services, &places, &mut marks, &mut order)?;
    }
    let mut services: Vec<Option<Service>> = services.into_iter().map(Some).collect();
    Ok(order.into_iter().filter_map(|place| services[place].take()).collect())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    New,
    Open,
    Done,
}

/// Depth first, with a path of its own: a chain of a thousand services must not need a thousand frames.
fn visit(
    first: usize,
    services: &[Service],
    places: &HashMap<String, usize>,
    marks: &mut [Mark],
    order: &mut Vec<usize>,
) -> Result<(), String> {
    let mut path = vec![(first, 0)];
    while let Some((place, next)) = path.last_mut() {
        let service = &services[*place];
        if marks[*place] == Mark::Done {
            path.pop();
            continue;
        }
        marks[*place] = Mark::Open;
        let Some(after) = service.after.get(*next) else {
            marks[*place] = Mark::Done;
            order.push(*place);
            path.pop();
            continue;
        };
        *next += 1;
        let earlier = *places
            .get(after)
            .ok_or_else(|| format!("{} comes after {after}, which is not there", service.name))?;
        match marks[earlier] {
            Mark::Done => {}
            Mark::New => path.push((earlier, 0)),
            Mark::Open => {
                return Err(format!("{} comes after {after}, and {after} after it", service.name));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Spec, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("services.toml");
        crate::files::write_atomic(&path, text.as_bytes(), None).unwrap();
        load(&path).map_err(|error| error.to_string())
    }

    fn names(text: &str) -> Vec<String> {
        parsed(text).unwrap().services.into_iter().map(|service| service.name).collect()
    }

    const ONE: &str = "[[services]]\nname = \"web\"\nargv = [\"sleep\", \"9\"]\n";

    #[test]
    fn services_keep_their_order_but_come_behind_what_they_come_after() {
        let text = "services = [
            {name = 'a', argv = ['x']}, {name = 'b', argv = ['x'], after = ['d']},
            {name = 'c', argv = ['x']}, {name = 'd', argv = ['x'], after = ['a']}]";
        assert_eq!(names(text), ["a", "d", "b", "c"]);
    }

    #[test]
    fn what_cannot_be_run_is_refused_with_the_service_and_the_reason() {
        for (line, words) in [
            ("restart = 'sometimes'", "unknown variant"),
            ("colour = 'red'", "colour"),
            ("ready_fd = 2", "service web: ready_fd = 2: choose"),
            ("ready_fd = 3\nready_file = '/r'", "keep one"),
            ("after = ['db']", "web comes after db, which is not there"),
            ("after = ['web']", "web comes after web"),
            ("stop_within = '4 s'", "no length of time"),
        ] {
            let error = parsed(&format!("{ONE}{line}\n")).unwrap_err();
            assert!(error.contains(words) && error.contains("services.toml"), "{error}");
        }
        assert!(parsed(&format!("{ONE}{ONE}")).unwrap_err().contains("two services called web"));
        assert!(parsed(&ONE.replace("web", "we.b")).unwrap_err().contains("service \"we.b\" is not a name"));
    }

    #[test]
    fn logs_have_the_limits_of_a_daemon_s_unless_the_file_says_others() {
        let limits = |line: &str| parsed(&format!("{line}\n{ONE}")).map(|spec| spec.logs);
        assert_eq!(limits("").unwrap(), Limits::default());
        let given = limits("logs = {max_size = '256KiB', keep = 9}").unwrap();
        assert_eq!(given, Limits { max_size: 256 << 10, keep: 9 });
        for (line, words) in [("max_size = '1KiB'", "at least 256KiB"), ("keep = 0", "nonzero")] {
            assert!(limits(&format!("logs = {{{line}}}")).unwrap_err().contains(words));
        }
    }

    #[test]
    fn a_ring_is_named() {
        let text = "services = [
            {name = 'a', argv = ['x'], after = ['c']}, {name = 'b', argv = ['x'], after = ['a']},
            {name = 'c', argv = ['x'], after = ['b']}]";
        assert!(parsed(text).unwrap_err().contains("b comes after a, and a after it"));
    }
}
