//! The configuration file: what is taken, what is refused and how it says so, and that the sample tells the truth.

use super::*;
use crate::policy::{Policies, Supervised};
use crate::process::Limits;
use berth_actors::identity::ComponentId;
use berth_actors::policy::Restart;
use berth_actors::spec::Reaction;
use std::time::Duration;

const SAMPLE: &str = include_str!("../../deploy/berth.toml");

fn surroundings() -> Surroundings {
    Surroundings { root: true, cpus: 4, ..Surroundings::default() }
}

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("/etc/berth.toml"), &Overrides::default(), &surroundings())
}

#[test]
fn a_mistake_is_named_with_its_file_and_line() {
    let table = [
        ("stat_dir = \"/x\"", 1, "unknown field `stat_dir`"),
        ("\n[front]\nlisten = \"127.0.0.1:6443\"\nport = 1", 4, "unknown field `port`"),
        ("[kpc]\nenabled = true", 1, "unknown field `kpc`"),
        ("[front]\nlisten = \"localhost\"", 2, "invalid socket address"),
        ("[front]\ndrain_limit = \"4\"", 2, "no length of time"),
        ("[front]\ndrain_limit = 4", 2, "expected a string"),
        ("[front]\nmax_connections = 0", 2, "must be from 1 to 1048576"),
        ("[front]\nmax_connections = 2000000", 2, "must be from 1 to 1048576"),
        ("[front]\nmax_connections_per_peer = 10001", 2, "is more than max_connections 10000"),
        ("[front]\nmax_connections = 8\n\nmax_parked = 9", 4, "max_parked 9 is more than max_connections 8"),
        ("[metrics]\nlisten = \"9100\"", 2, "invalid socket address"),
        ("[ports]\nrange = \"20-10\"", 2, "empty range"),
        ("[ports]\nrange = \"0-10\"", 2, "no range of ports"),
        ("[ports]\nrange = \"1-70000\"", 2, "no range of ports"),
        ("state_dir = \"relative\"", 1, "absolute path"),
        ("user = \"0:0\"", 1, "root"),
        ("start_concurrency = 0", 1, "at least 1"),
        ("start_concurrency = -1", 1, "-1"),
        ("[kcp]\nenabled = \"yes\"", 2, "expected a boolean"),
        ("[kcp]\nenabled = true\nenabled = false", 3, "duplicate key"),
        ("[components]\nopenbao = \"bao\"", 2, "absolute path"),
        ("[logs]\nmax_size = \"16\"", 2, "no size"),
        ("[logs]\nmax_size = \"16MB\"", 2, "no size"),
        ("[logs]\nmax_size = \"99999999999GiB\"", 2, "no size"),
        ("[logs]\nmax_size = \"100KiB\"", 2, "at least 256KiB"),
        ("[logs]\nkeep = 0", 2, "at least 1"),
        ("state_dir = ", 1, ""),
    ];
    for (text, line, reason) in table {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("/etc/berth.toml:{line}: ")), "{text:?}: {error}");
        assert!(error.contains(reason), "{text:?}: {error}");
        assert!(!error.contains('\n'), "{text:?}: {error}");
    }
}

#[test]
fn terms_that_mean_nothing_or_never_end_are_refused_with_the_way_out() {
    let kine = |keys: &str| format!("[supervision.cluster.kine]\n{keys}");
    let table = [
        (
            "[supervision.cluster.kin]\nintensity = 3".to_owned(),
            1,
            "unknown component `kin`, expected one of `postgres`",
        ),
        (
            "\n[supervision.clusters.kine]".to_owned(),
            2,
            "unknown chain `clusters`, expected one of `cluster`, `kcp-store`, `slot`",
        ),
        ("[supervision.slot.postgres]".to_owned(), 1, "expected one of `kine`, `kcp`"),
        ("[kcp]\nports = [16440, 16440]".to_owned(), 2, "need two different ports"),
        ("[kcp]\nports = [0, 16440]".to_owned(), 2, "0 is no port"),
        ("[kcp]\nports = [16440]".to_owned(), 2, "length 1"),
        ("[kcp]\ncanary_deadline = \"0s\"".to_owned(), 2, "met by nobody"),
        (kine("intensitty = 3"), 2, "unknown field `intensitty`"),
        (kine("restart = \"always\""), 2, "unknown variant `always`"),
        (kine("base_delay = \"1s\"\nintensity = 0"), 3, "restart = \"temporary\""),
        (kine("intensity = -1"), 2, "-1"),
        (kine("clean_exits = [0]"), 2, "restart = \"transient\""),
        (kine("restart = \"temporary\"\nclean_exits = [0]"), 3, "restart = \"transient\""),
        (kine("start_deadline = \"0s\""), 2, "met by no start"),
        (kine("stop_deadline = \"0s\""), 2, "SIGKILL without asking"),
        (kine("base_delay = \"2m\""), 2, "longer than max_delay 30s"),
        (kine("max_delay = \"100ms\""), 2, "base_delay 500ms is longer"),
        (kine("window = \"60s\""), 2, "with their delays, take 426s"),
        (kine("intensity = 20"), 2, "lower intensity"),
        (kine("\nstart_deadline = \"10m\""), 3, "too short for intensity 6"),
        (kine("ride_through = { postgres = \"soon\" }"), 2, "no reaction"),
        (kine("ride_through = { postgres = \"0s\" }"), 2, "write \"restart\""),
        (
            kine("ride_through = { kube-apiserver = \"15s\" }"),
            2,
            "does not come before cluster.kine, which reacts to `postgres`, `openbao` only",
        ),
        (kine("ride_through.kine = \"restart\""), 2, "does not come before"),
        (
            "[supervision.slot.kine]\nride_through.postgres = \"1s\"".to_owned(),
            2,
            "nothing comes before slot.kine",
        ),
    ];
    for (text, line, reason) in table {
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("/etc/berth.toml:{line}: ")), "{text:?}: {error}");
        assert!(error.contains(reason), "{text:?}: {error}");
        assert!(!error.contains('\n'), "{text:?}: {error}");
    }
}

#[test]
fn terms_are_set_for_one_component_and_leave_the_others_alone() {
    let text = "[supervision.slot.kine]\nintensity = 4\n[supervision.cluster.kine]\nrestart = \"transient\"\nclean_exits = [0, 3]\n\
                stop_deadline = \"7s\"\nride_through = { postgres = \"restart\" }\n";
    let config = parse(text).unwrap();
    let (policies, defaults) = (config.supervision.policies(), Policies::default());
    let life = policies.life(Supervised::Kine);
    assert_eq!(life.restart.restart, Restart::Transient(vec![0, 3]));
    assert_eq!(life.restart.intensity, 6);
    assert_eq!(life.stop.deadline, Duration::from_secs(7));
    assert_eq!(life.stop.repeat_after, defaults.life(Supervised::Kine).stop.repeat_after);
    assert_eq!(life.reactions["postgres"], Reaction::Restart);
    assert_eq!(life.reactions["openbao"], Reaction::RideThrough(Duration::from_secs(15)));
    assert_eq!(policies.life(Supervised::SlotKine).restart.intensity, 4);
    assert_eq!(policies.life(Supervised::Postgres), defaults.life(Supervised::Postgres));

    let again = parse(&config.to_string()).unwrap();
    assert_eq!(again.supervision.policies(), policies);
    let shown = config.to_string();
    let line = |start: &str| shown.lines().find(|line| line.starts_with(start)).unwrap().to_owned();
    assert!(line("intensity = 4").ends_with("# /etc/berth.toml:2"), "{shown}");
    let restarts = line("ride_through.kube-apiserver = \"restart\"");
    assert!(restarts.contains("# default: a settled one needs"), "{restarts}");
}

#[test]
fn the_parts_of_a_cap_follow_it_until_they_are_set_themselves() {
    let front = |keys: &str| parse(&format!("[front]\n{keys}")).unwrap().front;
    let caps =
        |front: FrontConfig| (*front.max_connections, *front.max_connections_per_peer, *front.max_parked);
    assert_eq!(caps(front("")), (10_000, 7500, 5000));
    assert_eq!(caps(front("max_connections = 100")), (100, 75, 50));
    assert_eq!(caps(front("max_connections = 1")), (1, 1, 1));
    assert_eq!(caps(front("max_connections_per_peer = 64\nmax_parked = 9")), (10_000, 64, 9));
    let started = front("max_connections = 100\nmax_parked = 9").caps();
    assert_eq!((started.max_connections, started.max_per_peer, started.max_parked), (100, 75, 9));
}

#[test]
fn a_value_knows_where_it_came_from() {
    let text = "user = \"7:8\"\n\n[kcp]\nshutdown_delay = \"1500ms\"\n";
    let overrides = Overrides { run_dir: Some("/run/x".into()), ..Overrides::default() };
    let config = Config::parse(text, Path::new("/c"), &overrides, &surroundings()).unwrap();
    assert_eq!(config.kcp.shutdown_delay.0, Duration::from_millis(1500));
    assert_eq!(config.kcp.shutdown_delay.source, Source::File { path: "/c".into(), line: 4 });
    assert_eq!(config.run_dir.source, Source::CommandLine("--run-dir"));
    assert!(matches!(config.state_dir.source, Source::Default(_)));
    assert_eq!(*config.state_dir, Path::new("/var/lib/berth"));
}

#[test]
fn the_command_line_wins_over_the_file_and_must_be_absolute_too() {
    let load = |state: &str| {
        let overrides = Overrides { state_dir: Some(state.into()), ..Overrides::default() };
        Config::parse("state_dir = \"/file\"", Path::new("/c"), &overrides, &surroundings())
    };
    assert_eq!(*load("/flag").unwrap().state_dir, Path::new("/flag"));
    assert!(load("flag").unwrap_err().to_string().contains("--state must be an absolute path"));
}

#[test]
fn limits_are_shown_with_their_source_and_the_narrowest_decides() {
    let text = "[limits.default]\nmemory = \"2GiB\"\ncpu = \"50%\"\n[limits.kine]\nprocesses = 64\n\
                [limits.\"demo/kine\"]\nmemory = \"512MiB\"\n";
    let config = parse(text).unwrap();
    let shown = config.to_string();
    assert!(
        shown.contains("\n[limits.\"demo/kine\"]\nmemory = \"512MiB\"  # /etc/berth.toml:7\n"),
        "{shown}"
    );
    assert_eq!(parse(&shown).unwrap().limits.of_components(), config.limits.of_components());
    let of = |chain, component| config.limits.of_components().of(&ComponentId::new(chain, component));
    let limits = |memory, processes| Limits {
        memory: Some(memory),
        processes,
        cpu_percent: Some(50),
        open_files: None,
        core_size: Some(0),
    };
    assert_eq!(of("demo", "kine"), limits(512 << 20, Some(64)));
    assert_eq!(of("other", "kine"), limits(2 << 30, Some(64)));
    assert_eq!(of("demo", "postgres"), limits(2 << 30, None));
    assert!(parse("").unwrap().limits.of_components().of(&ComponentId::new("demo", "kine")).is_none());
}

#[test]
fn limits_that_cannot_be_are_refused_with_the_way_out() {
    let table = [
        ("[limits.kin]\nmemory = \"1GiB\"", 1, "unknown limits `kin`: write [limits.default]"),
        ("\n[limits.\"de mo/kine\"]", 2, "unknown limits `de mo/kine`"),
        ("[limits.\"demo/kin\"]", 1, "unknown limits `demo/kin`"),
        ("[limits.kine]\nmemory = \"1GB\"", 2, "is no size: write it like"),
        ("[limits.kine]\nmemory = \"1MiB\"", 2, "too little to start in: at least 16MiB"),
        ("[limits.kine]\nmemory = \"99999999999GiB\"", 2, "is no size"),
        ("[limits.kine]\nprocesses = 0", 2, "nonzero"),
        ("[limits.kine]\ncpu = \"2\"", 2, "is no share of a CPU"),
        ("[limits.kine]\ncpu = \"0%\"", 2, "is no share of a CPU"),
        ("[limits.kine]\nswap = \"1GiB\"", 2, "unknown field `swap`"),
    ];
    for (text, line, reason) in table {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("/etc/berth.toml:{line}: ")), "{text:?}: {error}");
        assert!(error.contains(reason), "{text:?}: {error}");
    }
}

#[test]
fn a_user_without_a_home_must_name_the_state_directory() {
    let nowhere = Surroundings { cpus: 1, ..Surroundings::default() };
    let parse = |text| Config::parse(text, Path::new("/c"), &Overrides::default(), &nowhere);
    assert!(parse("").unwrap_err().to_string().contains("--state"));
    assert!(parse("state_dir = \"/x\"").is_ok());
    let home = Surroundings { state_home: Some("/h/.local/state".into()), ..nowhere };
    let config = Config::parse("", Path::new("/c"), &Overrides::default(), &home).unwrap();
    assert_eq!(*config.state_dir, Path::new("/h/.local/state/berth"));
}

#[test]
fn what_show_prints_can_be_read_again_and_means_the_same() {
    let text = "run_dir = \"/run/\\\"b\\\"\"\n[components]\nkcp = \"/opt/kcp\"\n[kcp]\nenabled = false\ngoaway_chance = 0.015\n";
    let config = parse(text).unwrap();
    let again = parse(&config.to_string()).unwrap();
    assert_eq!(again.run_dir.value, config.run_dir.value);
    assert_eq!(again.components.kcp.value, Some("/opt/kcp".into()));
    assert_eq!(again.ports.range.value, config.ports.range.value);
    assert_eq!(again.front.drain_limit.value, config.front.drain_limit.value);
    assert!(!*again.kcp.enabled);
    assert_eq!(again.kcp.goaway_chance.to_string(), "0.015");
    assert!(config.to_string().contains("# /etc/berth.toml:3"), "{config}");
}

/// The sample with its commented-out keys in force.
fn sample_in_force() -> String {
    let key = |line: &str| {
        line.strip_prefix('#')
            .filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()))
            .map(str::to_owned)
    };
    SAMPLE.lines().map(|line| key(line).unwrap_or_else(|| line.to_owned()) + "\n").collect()
}

#[test]
fn the_sample_file_shows_every_key_and_the_true_defaults() {
    let defaults = parse("").unwrap();
    assert_eq!(parse(SAMPLE).unwrap().to_string(), defaults.to_string(), "all keys are commented out");
    let shown = parse(&sample_in_force()).unwrap();
    // One component stands for all: they have the same keys.
    let (all, example) = (shown.to_string(), "[supervision.cluster.kine]");
    let mut skipped = false;
    for line in all.lines() {
        skipped =
            if line.starts_with('[') { line.starts_with("[supervision") && line != example } else { skipped };
        let has_source = line.contains('#') && !line.starts_with("#clean_exits");
        if has_source && !skipped {
            assert!(line.contains("# /etc/berth.toml:"), "not in the sample: {line}");
        }
    }
    assert_eq!(shown.supervision.policies(), defaults.supervision.policies());
    assert_eq!(*shown.state_dir, *defaults.state_dir);
    assert_eq!(*shown.front.listen, *defaults.front.listen);
    assert_eq!(*shown.front.drain_limit, *defaults.front.drain_limit);
    assert_eq!(shown.front.caps(), defaults.front.caps());
    assert_eq!(*shown.ports.range, *defaults.ports.range);
    assert_eq!(*shown.kcp.enabled, *defaults.kcp.enabled);
    assert_eq!(*shown.kcp.shutdown_delay, *defaults.kcp.shutdown_delay);
    assert_eq!(*shown.kcp.canary_interval, *defaults.kcp.canary_interval);
    assert_eq!(*shown.kcp.canary_deadline, *defaults.kcp.canary_deadline);
    assert_eq!(*shown.kcp.goaway_chance, *defaults.kcp.goaway_chance);
    assert_eq!(*shown.start_concurrency, *defaults.start_concurrency);
}
