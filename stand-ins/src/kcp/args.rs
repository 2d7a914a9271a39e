//! kcp's command line: what is accepted, and the exact words of every refusal. Pure; touches nothing.

use super::flags::{self, Kind};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug)]
pub(super) enum Command {
    Version,
    Help,
    StartHelp,
    StartOptions,
    Start(Box<Options>),
}

/// What `kcp start` was told.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Options {
    pub root: PathBuf,
    pub etcd_servers: Option<String>,
    pub etcd_prefix: Option<String>,
    pub bind_address: IpAddr,
    pub secure_port: u16,
    pub bind_free_port: bool,
    pub http2: bool,
    pub leader_election: bool,
    pub election_name: String,
    pub election_namespace: String,
    pub base_url: Option<String>,
    pub external_url: Option<String>,
    pub virtual_workspace_url: Option<String>,
    pub shutdown_delay: Duration,
    pub goaway_chance: f64,
    /// `--audit-*` flags as given: the backend has the same ones and writes the same log.
    pub audit: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            root: PathBuf::from(".kcp"),
            etcd_servers: None,
            etcd_prefix: None,
            bind_address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            secure_port: 6443,
            bind_free_port: false,
            http2: true,
            leader_election: false,
            election_name: "kcp-controllers".to_owned(),
            election_namespace: "kube-system".to_owned(),
            base_url: None,
            external_url: None,
            virtual_workspace_url: None,
            shutdown_delay: Duration::ZERO,
            goaway_chance: 0.0,
            audit: Vec::new(),
        }
    }
}

pub(super) fn parse(args: &[String]) -> Result<Command, String> {
    let Some((command, rest)) = args.split_first() else { return Ok(Command::Help) };
    match command.as_str() {
        "--version" => Ok(Command::Version),
        "--help" | "-h" | "help" => Ok(Command::Help),
        "start" => start(rest),
        flag if flag.starts_with('-') => Err(format!("unknown flag: {}", name_only(flag))),
        other => Err(format!("unknown command {other:?} for \"kcp\"")),
    }
}

fn start(args: &[String]) -> Result<Command, String> {
    if args.first().is_some_and(|first| first == "options") {
        return Ok(Command::StartOptions);
    }
    let mut options = Options::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--help" || arg == "-h" {
            return Ok(Command::StartHelp);
        }
        let Some(flag) = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-')) else {
            // A positional argument is accepted silently.
            continue;
        };
        let (name, inline) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (flag, None),
        };
        let kind = flags::kind(name).ok_or_else(|| format!("unknown flag: {}", name_only(arg)))?;
        let value = match (inline, kind) {
            (Some(value), _) => value,
            (None, Kind::Switch) => "true".to_owned(),
            (None, _) => args.next().cloned().ok_or_else(|| format!("flag needs an argument: --{name}"))?,
        };
        set(&mut options, name, kind, &value)
            .map_err(|reason| format!("invalid argument {value:?} for \"--{name}\" flag: {reason}"))?;
    }
    if !(0.0..=0.02).contains(&options.goaway_chance) {
        return Err("--goaway-chance can not be less than 0 or greater than 0.02".to_owned());
    }
    Ok(Command::Start(Box::new(options)))
}

fn name_only(flag: &str) -> &str {
    flag.split_once('=').map_or(flag, |(name, _)| name)
}

fn set(options: &mut Options, name: &str, kind: Kind, value: &str) -> Result<(), String> {
    if kind == Kind::Switch {
        let on = boolean(value)?;
        match name {
            "experimental-bind-free-port" => options.bind_free_port = on,
            "enable-leader-election" => options.leader_election = on,
            "disable-http2-serving" => options.http2 = !on,
            _ => {}
        }
    }
    match name {
        "root-directory" => options.root = PathBuf::from(value),
        "etcd-servers" => options.etcd_servers = Some(value.to_owned()),
        "etcd-prefix" => options.etcd_prefix = Some(value.to_owned()),
        "bind-address" => {
            options.bind_address = value.parse().map_err(|_| format!("failed to parse IP: {value:?}"))?;
        }
        "secure-port" => options.secure_port = port(value)?,
        "leader-election-name" => value.clone_into(&mut options.election_name),
        "leader-election-namespace" => value.clone_into(&mut options.election_namespace),
        "shard-base-url" => options.base_url = Some(value.to_owned()),
        "shard-external-url" => options.external_url = Some(value.to_owned()),
        "shard-virtual-workspace-url" => options.virtual_workspace_url = Some(value.to_owned()),
        "shutdown-delay-duration" => options.shutdown_delay = duration(value)?,
        "shutdown-watch-termination-grace-period" => drop(duration(value)?),
        "feature-gates" => gates(value)?,
        "goaway-chance" => {
            options.goaway_chance = value
                .parse()
                .map_err(|_| format!("strconv.ParseFloat: parsing {value:?}: invalid syntax"))?;
        }
        audit if audit.starts_with("audit-") => options.audit.push(format!("--{audit}={value}")),
        _ => {}
    }
    Ok(())
}

fn boolean(value: &str) -> Result<bool, String> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(format!("strconv.ParseBool: parsing {value:?}: invalid syntax")),
    }
}

fn port(value: &str) -> Result<u16, String> {
    value.parse().map_err(|_| format!("strconv.ParseInt: parsing {value:?}: invalid syntax"))
}

fn gates(value: &str) -> Result<(), String> {
    for gate in value.split(',').filter(|gate| !gate.is_empty()) {
        let (name, on) = gate.split_once('=').ok_or_else(|| format!("missing bool value for {gate}"))?;
        if !flags::GATES.contains(&name) {
            return Err(format!("unrecognized feature gate: {name}"));
        }
        boolean(on).map_err(|reason| format!("invalid value of {name}={on}, err: {reason}"))?;
    }
    Ok(())
}

/// Go's notation: a sequence of decimal numbers with units, such as `300ms` or `1m30s`; a bare `0` needs none.
fn duration(value: &str) -> Result<Duration, String> {
    let invalid = || format!("time: invalid duration {value:?}");
    if value == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = value;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(invalid)?;
        let number: f64 = rest[..digits].parse().map_err(|_| invalid())?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let seconds = match &rest[..unit] {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(invalid()),
        };
        rest = &rest[unit..];
        total += Duration::try_from_secs_f64(number * seconds).map_err(|_| invalid())?;
    }
    if value.is_empty() { Err(invalid()) } else { Ok(total) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn options(line: &str) -> Options {
        match parse(&args(line)).unwrap() {
            Command::Start(options) => *options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_refusal_has_kcps_own_words() {
        for (line, error) in [
            ("version", "unknown command \"version\" for \"kcp\""),
            ("start --no-such-flag", "unknown flag: --no-such-flag"),
            ("start --no-such-flag=7", "unknown flag: --no-such-flag"),
            ("start --advertise-address=127.0.0.1", "unknown flag: --advertise-address"),
            ("start --shard-replica-count=2", "unknown flag: --shard-replica-count"),
            (
                "start --feature-gates=NoSuch=true",
                "invalid argument \"NoSuch=true\" for \"--feature-gates\" flag: unrecognized feature gate: NoSuch",
            ),
            ("start --secure-port", "flag needs an argument: --secure-port"),
            (
                "start --secure-port=no",
                "invalid argument \"no\" for \"--secure-port\" flag: strconv.ParseInt: parsing \"no\": invalid syntax",
            ),
            (
                "start --shutdown-delay-duration=2",
                "invalid argument \"2\" for \"--shutdown-delay-duration\" flag: time: invalid duration \"2\"",
            ),
            ("start --goaway-chance=0.5", "--goaway-chance can not be less than 0 or greater than 0.02"),
        ] {
            assert_eq!(parse(&args(line)).unwrap_err(), error, "{line}");
        }
    }

    #[test]
    fn a_slots_whole_argv_is_understood() {
        let options = options(
            "start --root-directory=/r --etcd-servers=http://127.0.0.1:1 --bind-address=127.0.0.1 --secure-port=0 \
             --experimental-bind-free-port --feature-gates=WorkspaceMounts=true --enable-leader-election \
             --shard-base-url=https://127.0.0.1:6443 --shutdown-delay-duration=2s --audit-log-path=/r/audit.log \
             --goaway-chance=0.02",
        );
        assert_eq!(
            options,
            Options {
                root: PathBuf::from("/r"),
                etcd_servers: Some("http://127.0.0.1:1".to_owned()),
                bind_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
                secure_port: 0,
                bind_free_port: true,
                leader_election: true,
                base_url: Some("https://127.0.0.1:6443".to_owned()),
                shutdown_delay: Duration::from_secs(2),
                goaway_chance: 0.02,
                audit: vec!["--audit-log-path=/r/audit.log".to_owned()],
                ..Options::default()
            }
        );
    }

    #[test]
    fn a_value_may_be_the_next_argument_and_a_positional_one_is_swallowed() {
        let options = options("start bogus --secure-port 7443 --enable-leader-election=false");
        assert_eq!((options.secure_port, options.leader_election), (7443, false));
    }

    #[test]
    fn durations_are_read_as_go_writes_them() {
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        for bad in ["", "s", "5", "5x", "-1s"] {
            assert_eq!(duration(bad), Err(format!("time: invalid duration {bad:?}")));
        }
    }
}
