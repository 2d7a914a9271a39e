//! The flags kcp knows, and the help texts. [`super::args`] gives them meaning; this is only the list.

use std::fmt::Write;

/// What a flag takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Switch,
    Text,
    Duration,
    Port,
    Gates,
    Number,
}

/// Every flag that is accepted. Those the stand-in has no use for are swallowed as the real one would take them.
const FLAGS: &[(&str, Kind)] = &[
    ("audit-log-batch-buffer-size", Kind::Text),
    ("audit-log-batch-max-size", Kind::Text),
    ("audit-log-batch-max-wait", Kind::Text),
    ("audit-log-compress", Kind::Switch),
    ("audit-log-format", Kind::Text),
    ("audit-log-maxage", Kind::Text),
    ("audit-log-maxbackup", Kind::Text),
    ("audit-log-maxsize", Kind::Text),
    ("audit-log-mode", Kind::Text),
    ("audit-log-path", Kind::Text),
    ("audit-log-truncate-enabled", Kind::Switch),
    ("audit-log-version", Kind::Text),
    ("audit-policy-file", Kind::Text),
    ("audit-webhook-config-file", Kind::Text),
    ("audit-webhook-mode", Kind::Text),
    ("bind-address", Kind::Text),
    ("cert-dir", Kind::Text),
    ("client-ca-file", Kind::Text),
    ("disable-http2-serving", Kind::Switch),
    ("enable-leader-election", Kind::Switch),
    ("etcd-cafile", Kind::Text),
    ("etcd-certfile", Kind::Text),
    ("etcd-keyfile", Kind::Text),
    ("etcd-prefix", Kind::Text),
    ("etcd-servers", Kind::Text),
    ("experimental-bind-free-port", Kind::Switch),
    ("external-hostname", Kind::Text),
    ("feature-gates", Kind::Gates),
    ("goaway-chance", Kind::Number),
    ("leader-election-name", Kind::Text),
    ("leader-election-namespace", Kind::Text),
    ("permit-port-sharing", Kind::Switch),
    ("profiling", Kind::Switch),
    ("root-directory", Kind::Text),
    ("secure-port", Kind::Port),
    ("service-account-key-file", Kind::Text),
    ("shard-base-url", Kind::Text),
    ("shard-external-url", Kind::Text),
    ("shard-name", Kind::Text),
    ("shard-virtual-workspace-url", Kind::Text),
    ("shutdown-delay-duration", Kind::Duration),
    ("shutdown-send-retry-after", Kind::Switch),
    ("shutdown-watch-termination-grace-period", Kind::Duration),
    ("tls-cert-file", Kind::Text),
    ("tls-private-key-file", Kind::Text),
    ("token-auth-file", Kind::Text),
    ("unsupported-run-individual-controllers", Kind::Text),
    ("v", Kind::Text),
];

/// Accepted, but not shown by `start options`.
const HIDDEN: &[&str] =
    &["experimental-bind-free-port", "external-hostname", "unsupported-run-individual-controllers"];

/// Feature gates; any other name is an error.
pub(super) const GATES: &[&str] =
    &["AllAlpha", "AllBeta", "CacheAPIs", "WorkspaceAuthentication", "WorkspaceMounts"];

pub(super) fn kind(name: &str) -> Option<Kind> {
    FLAGS.iter().find(|(flag, _)| *flag == name).map(|(_, kind)| *kind)
}

pub(super) fn options() -> String {
    let mut text = String::from("Flags of kcp start (a stand-in):\n\n");
    for (name, kind) in FLAGS.iter().filter(|(name, _)| !HIDDEN.contains(name)) {
        let value = match kind {
            Kind::Switch => "",
            Kind::Text | Kind::Gates => " string",
            Kind::Duration => " duration",
            Kind::Port => " int",
            Kind::Number => " float",
        };
        let _ = writeln!(text, "      --{name}{value}");
    }
    text
}

pub(super) const HELP: &str = "\
kcp (a stand-in for development and tests)

Usage:
  kcp [command]

Available Commands:
  start       Start the control plane process

Flags:
  -h, --help      help for kcp
      --version   version for kcp
";

pub(super) const START_HELP: &str = "\
Start the control plane process (a stand-in for development and tests)

Usage:
  kcp start [flags]
  kcp start [command]

Available Commands:
  options     Show all start command options

Flags:
      --etcd-servers strings    List of etcd servers to connect with (scheme://ip:port), comma separated.
      --root-directory string   Root directory. (default \".kcp\")
      --secure-port int         The port on which to serve HTTPS. (default 6443)
  -h, --help                    help for start

Use \"kcp start options\" for a list of all options available.
";
