//! k3s's command line, as far as a control plane goes: what is accepted, and the words of every refusal. Pure.

use std::path::PathBuf;

#[derive(Debug)]
pub(super) enum Command {
    Version,
    Server(Box<Options>),
}

/// What `k3s server` was told.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Options {
    pub data_dir: PathBuf,
    pub datastore: String,
    pub token_file: PathBuf,
    pub port: u16,
    pub bind_address: String,
    pub advertise_address: String,
    pub service_cidr: String,
    pub kubeconfig: Option<PathBuf>,
    pub secrets_encryption: bool,
    /// `--kube-<component>-arg` values, each `name=value`, in their order: later ones win.
    pub apiserver_args: Vec<String>,
    pub controller_args: Vec<String>,
    pub scheduler_args: Vec<String>,
}

/// Flags that take no value.
const SWITCHES: [&str; 10] = [
    "debug",
    "disable-agent",
    "disable-cloud-controller",
    "disable-helm-controller",
    "disable-kube-proxy",
    "disable-network-policy",
    "disable-scheduler",
    "rootless",
    "secrets-encryption",
    "tls-san-security",
];

/// Flags that take one. k3s has more; those of agents and of etcd are refused here as unknown.
const VALUES: [&str; 24] = [
    "config",
    "bind-address",
    "https-listen-port",
    "advertise-address",
    "advertise-port",
    "tls-san",
    "data-dir",
    "cluster-cidr",
    "service-cidr",
    "service-node-port-range",
    "cluster-dns",
    "cluster-domain",
    "flannel-backend",
    "egress-selector-mode",
    "write-kubeconfig",
    "write-kubeconfig-mode",
    "token-file",
    "kube-apiserver-arg",
    "kube-controller-manager-arg",
    "kube-scheduler-arg",
    "datastore-endpoint",
    "disable",
    "node-ip",
    "node-name",
];

pub(super) fn parse(args: &[String]) -> Result<Command, String> {
    match args.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        Some(("--version" | "-v", _)) => Ok(Command::Version),
        Some(("server", rest)) => server(rest).map(|options| Command::Server(Box::new(options))),
        Some((other, _)) => Err(format!("No help topic for '{other}'")),
        None => Err("the stand-in has no help: it knows `server` and `--version`".to_owned()),
    }
}

fn server(args: &[String]) -> Result<Options, String> {
    let mut options = Options {
        port: 6443,
        service_cidr: "10.43.0.0/16".to_owned(),
        bind_address: "0.0.0.0".to_owned(),
        ..Options::default()
    };
    let mut is_agentless = false;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let Some(flag) = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-')) else { continue };
        let (name, inline) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (flag, None),
        };
        if SWITCHES.contains(&name) {
            let on = inline.as_deref() != Some("false");
            match name {
                "disable-agent" => is_agentless = on,
                "secrets-encryption" => options.secrets_encryption = on,
                _ => {}
            }
        } else if VALUES.contains(&name) {
            let value = inline
                .or_else(|| args.next().cloned())
                .ok_or_else(|| format!("flag needs an argument: -{name}"))?;
            set(&mut options, name, value)?;
        } else {
            return Err(format!("flag provided but not defined: -{name}"));
        }
    }
    check(options, is_agentless)
}

fn set(options: &mut Options, name: &str, value: String) -> Result<(), String> {
    match name {
        "https-listen-port" => {
            options.port = value
                .parse()
                .map_err(|_| format!("invalid value {value:?} for flag -https-listen-port: parse error"))?;
        }
        "data-dir" => options.data_dir = value.into(),
        "datastore-endpoint" => options.datastore = value,
        "token-file" => options.token_file = value.into(),
        "bind-address" => options.bind_address = value,
        "advertise-address" => options.advertise_address = value,
        "service-cidr" => options.service_cidr = value,
        "write-kubeconfig" => options.kubeconfig = Some(value.into()),
        "kube-apiserver-arg" => options.apiserver_args.push(value),
        "kube-controller-manager-arg" => options.controller_args.push(value),
        "kube-scheduler-arg" => options.scheduler_args.push(value),
        _ => {}
    }
    Ok(())
}

/// What k3s could do without, and this cannot.
fn check(options: Options, is_agentless: bool) -> Result<Options, String> {
    let needed =
        |what: &str| Err(format!("the stand-in is a control plane on a kine of yours: {what} is required"));
    if !is_agentless {
        return needed("--disable-agent");
    }
    if options.data_dir.as_os_str().is_empty() {
        return needed("--data-dir");
    }
    if options.token_file.as_os_str().is_empty() {
        return needed("--token-file");
    }
    if !["unix://", "http://"].iter().any(|scheme| options.datastore.starts_with(scheme)) {
        return needed("--datastore-endpoint with unix:// or http://");
    }
    if options.port == 0 || options.port == u16::MAX {
        return Err(format!("--https-listen-port={}: k3s needs this port and the next", options.port));
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    const NEEDED: &str =
        "server --disable-agent --data-dir=/d --token-file=/t --datastore-endpoint=unix:///k";

    #[test]
    fn a_flag_k3s_does_not_know_is_refused_in_its_words() {
        for (line, error) in [
            ("--no-such-flag", "flag provided but not defined: -no-such-flag"),
            ("--no-such-flag=7", "flag provided but not defined: -no-such-flag"),
            ("--https-listen-port", "flag needs an argument: -https-listen-port"),
            ("--https-listen-port=x", "invalid value \"x\" for flag -https-listen-port: parse error"),
        ] {
            assert_eq!(parse(&args(&format!("{NEEDED} {line}"))).unwrap_err(), error);
        }
    }

    #[test]
    fn what_would_need_a_kubelet_or_a_database_of_its_own_is_refused() {
        for missing in
            ["--disable-agent", "--data-dir=/d", "--token-file=/t", "--datastore-endpoint=unix:///k"]
        {
            let error = parse(&args(&NEEDED.replace(missing, ""))).unwrap_err();
            assert!(error.contains(missing.split('=').next().unwrap()), "{error}");
        }
    }

    #[test]
    fn values_come_inline_or_as_the_next_argument_and_lists_grow() {
        let line = format!(
            "{NEEDED} --https-listen-port 7443 --kube-scheduler-arg=secure-port=1 --kube-scheduler-arg=leader-elect=false"
        );
        let Command::Server(options) = parse(&args(&line)).unwrap() else { panic!("a server") };
        assert_eq!(options.port, 7443);
        assert_eq!(options.scheduler_args, ["secure-port=1", "leader-elect=false"]);
        assert!(!options.secrets_encryption);
    }
}
