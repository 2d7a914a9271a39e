//! The host against real processes. A child tells through a named pipe how far it is; nobody waits for time to pass.

mod adoption;
mod postgres;

use super::ledger::Ledger;
use super::survivors::Survivor;
use super::tool::{Tool, ToolError};
use super::{ProcessHost, identity_of, is_alive, orphans, survivors, tool};
use crate::layout::Layout;
use berth_actors::host::{ExitStatus, Processes, SpawnError};
use berth_actors::identity::{ComponentId, Identity};
use berth_actors::spec::{ProcessSpec, Signal, User};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::unix::pipe;

/// A failing test shall fail, not hang.
const PATIENCE: Duration = Duration::from_secs(20);

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("not within the test's patience")
}

struct Bench {
    /// Removed with the bench.
    dir: tempfile::TempDir,
    layout: Layout,
    host: ProcessHost,
    gate: Lines<BufReader<pipe::Receiver>>,
}

impl Bench {
    fn new() -> Self {
        Self::with(ProcessHost::new)
    }

    fn with(host: impl Fn(&Layout) -> Result<ProcessHost, crate::files::FileError>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path().join("state"), Some(dir.path().join("run")));
        let host = host(&layout).unwrap();
        let gate = layout.state().join("gate");
        for pipe in [&gate, &layout.state().join("never")] {
            mknodat(CWD, pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        }
        // Also opened for writing: no end of file between two writers.
        let gate = pipe::OpenOptions::new().read_write(true).open_receiver(gate).unwrap();
        Self { dir, layout, host, gate: BufReader::new(gate).lines() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.layout.state().join(name)
    }

    fn spec(&self, program: &str, args: &[&str]) -> ProcessSpec {
        ProcessSpec {
            start_env: BTreeMap::new(),
            program: program.into(),
            arg0: None,
            args: args.iter().map(ToString::to_string).collect(),
            env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
            dir: self.layout.state().to_owned(),
            output: self.path("log"),
            user: None,
            ready: None,
        }
    }

    /// A script, run in the state directory, that may write lines to `gate`, and that waits for ever in `: < never`.
    fn sh(&self, script: &str) -> ProcessSpec {
        self.spec("/bin/sh", &["-c", script])
    }

    async fn start(&self, script: &str) -> Identity {
        self.host.spawn(&id(), &self.sh(script)).await.unwrap().identity
    }

    async fn line(&mut self) -> String {
        soon(self.gate.next_line()).await.unwrap().unwrap()
    }

    /// The process whose pid the script writes to `gate`.
    async fn announced(&mut self) -> Identity {
        let pid = self.line().await.parse().unwrap();
        identity_of(pid).expect("it is alive or at least a zombie")
    }

    async fn end(&self, identity: &Identity) {
        self.host.reap(&id(), identity).await.unwrap();
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap()
    }
}

impl Drop for Bench {
    /// A failed test leaves nobody behind either.
    fn drop(&mut self) {
        let _ = survivors::reap_all_blocking(&self.layout);
    }
}

fn id() -> ComponentId {
    ComponentId::new("demo", "kine")
}

#[tokio::test]
async fn exit_codes_and_signals_are_told_to_everyone_who_asks() {
    let bench = Bench::new();
    for (script, status) in [
        ("exit 0", ExitStatus::Code(0)),
        ("exit 7", ExitStatus::Code(7)),
        ("kill -SEGV $$", ExitStatus::Signal(11)),
    ] {
        let identity = bench.start(script).await;
        let (one, other) =
            soon(async { tokio::join!(bench.host.exited(&identity), bench.host.exited(&identity)) }).await;
        assert_eq!((one, other), (status, status));
        bench.end(&identity).await;
        assert_eq!(soon(bench.host.exited(&identity)).await, status, "asked again after the reap");
    }
}

#[tokio::test]
async fn a_child_gets_its_own_environment_and_nothing_else() {
    let bench = Bench::new();
    let mut spec = bench.spec("/usr/bin/env", &[]);
    spec.env = BTreeMap::from([("SECRET".into(), "in env only".into())]);
    let identity = bench.host.spawn(&id(), &spec).await.unwrap().identity;
    soon(bench.host.exited(&identity)).await;
    let log = bench.log();
    let mut names: Vec<&str> = log.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.sort_unstable();
    assert_eq!(names, ["BERTH_COMPONENT", "BERTH_RUN_TOKEN", "SECRET"]);
    assert!(log.contains("/demo/kine\n"));
    bench.end(&identity).await;
}

#[tokio::test]
async fn a_child_has_its_own_session_umask_and_no_more_than_three_open_files() {
    let bench = Bench::new();
    // As a careless parent leaves it: not close-on-exec.
    let _leak = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::empty()).unwrap();
    super::raw::seal_inherited_descriptors().unwrap();
    let script = "cut -d' ' -f1,5,6 /proc/$$/stat; umask; grep NoNewPrivs /proc/$$/status; ls /proc/$$/fd";
    let identity = bench.start(script).await;
    soon(bench.host.exited(&identity)).await;
    let pid = identity.pid;
    assert_eq!(bench.log(), format!("{pid} {pid} {pid}\n0077\nNoNewPrivs:\t1\n0\n1\n2\n"));
    bench.end(&identity).await;
}

#[tokio::test]
async fn output_is_appended_to_a_private_file_from_the_offset_reported() {
    let bench = Bench::new();
    for (script, offset, all) in
        [("echo one; echo two >&2", 0, "one\ntwo\n"), ("echo three", 8, "one\ntwo\nthree\n")]
    {
        let spawned = bench.host.spawn(&id(), &bench.sh(script)).await.unwrap();
        assert_eq!(spawned.log_offset, offset);
        soon(bench.host.exited(&spawned.identity)).await;
        bench.end(&spawned.identity).await;
        assert_eq!(bench.log(), all);
    }
    assert_eq!(std::fs::metadata(bench.path("log")).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(bench.host.log_tail(&bench.path("log"), 2).await, ["two", "three"]);
    assert_eq!(bench.host.log_tail(&bench.path("no such log"), 2).await, [""; 0]);
}

#[tokio::test]
async fn a_child_runs_as_the_user_it_is_given() {
    let bench = Bench::new();
    let nobody = User { uid: 65534, gid: 65534 };
    let script = bench.sh("id -u; id -G; echo $(grep CapEff /proc/$$/status)");
    let spec = ProcessSpec { user: Some(nobody), dir: "/".into(), ..script };
    let spawned = bench.host.spawn(&id(), &spec).await;
    if !rustix::process::geteuid().is_root() {
        assert!(spawned.is_err(), "only root may switch");
        return;
    }
    let identity = spawned.unwrap().identity;
    soon(bench.host.exited(&identity)).await;
    assert_eq!(bench.log(), "65534\n65534\nCapEff: 0000000000000000\n");
    bench.end(&identity).await;
}

#[tokio::test]
async fn an_ignored_term_is_followed_by_a_kill_that_is_not() {
    let mut bench = Bench::new();
    let identity = bench.start("trap '' TERM; echo armed > gate; : < never").await;
    assert_eq!(bench.line().await, "armed");
    bench.host.signal(&identity, Signal::Term).await.unwrap();
    bench.host.signal(&identity, Signal::Kill).await.unwrap();
    assert_eq!(soon(bench.host.exited(&identity)).await, ExitStatus::Signal(9));
    bench.host.signal(&identity, Signal::Term).await.expect("gone is not an error");
    bench.end(&identity).await;
}

/// Children that try to get away, each in its own way, while the leader exits or lives.
async fn escape(mut bench: Bench, escapes: &str, announced: usize) {
    orphans::become_subreaper().unwrap();
    for leader in ["exit 0", ": < never"] {
        let identity = bench.start(&format!("{escapes}\n{leader}")).await;
        let mut escaped = Vec::new();
        for _ in 0..announced {
            escaped.push(bench.announced().await);
        }
        if leader == "exit 0" {
            assert_eq!(soon(bench.host.exited(&identity)).await, ExitStatus::Code(0));
        }
        assert!(escaped.iter().all(is_alive));
        bench.end(&identity).await;
        assert_eq!(escaped.iter().filter(|process| is_alive(process)).count(), 0, "after: {leader}");
        assert!(!is_alive(&identity));
    }
}

const IN_THE_GROUP: &str = "sh -c 'echo $$ > gate; : < never' &";
const IN_AN_OWN_SESSION: &str = "setsid sh -c 'echo $$ > gate; : < never' &";
/// As a postgres backend: own session, no environment, the leader's executable and directory.
const WITHOUT_ENVIRONMENT: &str = "setsid env -i /bin/sh -c 'echo $$ > gate; : < never' &";

#[tokio::test]
async fn nobody_escapes_a_cgroup_reap() {
    escape(Bench::new(), &[IN_THE_GROUP, IN_AN_OWN_SESSION, WITHOUT_ENVIRONMENT].join("\n"), 3).await;
}

#[tokio::test]
async fn a_group_that_outlives_its_leader_is_reaped_without_a_cgroup() {
    escape(Bench::with(ProcessHost::without_cgroups), IN_THE_GROUP, 1).await;
}

#[tokio::test]
async fn a_setsid_grandchild_is_reaped_without_a_cgroup() {
    escape(Bench::with(ProcessHost::without_cgroups), IN_AN_OWN_SESSION, 1).await;
}

#[tokio::test]
async fn an_orphan_without_environment_is_reaped_without_a_cgroup() {
    escape(Bench::with(ProcessHost::without_cgroups), WITHOUT_ENVIRONMENT, 1).await;
}

#[tokio::test]
async fn a_reap_leaves_other_components_alone() {
    let bench = Bench::with(ProcessHost::without_cgroups);
    let other = ComponentId::new("demo", "other");
    let mine = bench.start(": < never").await;
    let theirs = bench.host.spawn(&other, &bench.sh("sh -c ': < never'; exit 1")).await.unwrap().identity;
    bench.end(&mine).await;
    assert!(is_alive(&theirs) && !is_alive(&mine));
    bench.host.reap(&other, &theirs).await.unwrap();
}

#[tokio::test]
async fn an_identity_of_the_past_reaches_nobody() {
    let bench = Bench::new();
    let now = bench.start(": < never").await;
    let past = Identity { start_time: now.start_time - 1, ..now.clone() };
    assert_eq!(soon(bench.host.exited(&past)).await, ExitStatus::Unknown);
    bench.host.signal(&past, Signal::Kill).await.unwrap();
    bench.end(&past).await;
    assert!(is_alive(&now));
    bench.end(&now).await;
}

#[tokio::test]
async fn another_daemons_process_is_watched_and_signalled_after_its_identity_was_checked() {
    let bench = Bench::new();
    let identity = bench.start(": < never").await;
    let successor = ProcessHost::new(&bench.layout).unwrap();
    successor.signal(&identity, Signal::Term).await.unwrap();
    soon(successor.exited(&identity)).await;
    successor.reap(&id(), &identity).await.unwrap();
    assert_eq!(Ledger::open(bench.layout.ledger()).unwrap().all().unwrap(), []);
}

#[tokio::test]
async fn a_program_that_cannot_run_is_fatal_and_a_busy_one_worth_another_try() {
    let bench = Bench::new();
    let spawn = async |program: &Path, dir: &Path| {
        let spec = ProcessSpec { dir: dir.to_owned(), ..bench.spec(program.to_str().unwrap(), &[]) };
        bench.host.spawn(&id(), &spec).await.unwrap_err()
    };
    let here = bench.layout.state();
    let file = bench.path("program");
    std::fs::copy("/bin/sh", &file).unwrap();
    let fatal = |error: SpawnError, name: &str| {
        assert!(matches!(&error, SpawnError::Fatal(why) if why.contains(name)), "{error:?}");
    };
    fatal(spawn(&bench.path("missing"), here).await, "missing");
    fatal(spawn(&file, &bench.path("no dir")).await, "no dir");

    let open_for_writing = std::fs::OpenOptions::new().append(true).open(&file).unwrap();
    let busy = spawn(&file, here).await;
    assert!(matches!(busy, SpawnError::Retry(_)), "{busy:?}");
    drop(open_for_writing);

    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    fatal(spawn(&file, here).await, "program");
    assert_eq!(
        Ledger::open(bench.layout.ledger()).unwrap().all().unwrap(),
        [],
        "no record of what never was"
    );
}

#[tokio::test]
async fn a_component_starts_again_only_after_its_reap() {
    let bench = Bench::new();
    let first = bench.start("exit 0").await;
    soon(bench.host.exited(&first)).await;
    let refusal = bench.host.spawn(&id(), &bench.sh("exit 0")).await.unwrap_err();
    assert!(refusal.to_string().contains("not been reaped"), "{refusal}");

    let record = Ledger::open(bench.layout.ledger()).unwrap().read(&id()).unwrap();
    assert_eq!(record.identity(), Some(&first));
    bench.end(&first).await;
    bench.end(&first).await;
    let second = bench.start(": < never").await;
    bench.end(&first).await;
    assert!(is_alive(&second), "reaping the past is no reap of the present");
    bench.end(&second).await;
}

#[tokio::test]
async fn orphaned_zombies_are_collected_and_no_status_is_stolen() {
    let mut bench = Bench::new();
    orphans::adopt().unwrap();
    let leader = bench.start("setsid sh -c 'echo $$ > gate; : < never' & exit 3").await;
    let orphan = bench.announced().await;
    let _writer = std::fs::File::options().read(true).write(true).open(bench.path("never")).unwrap();
    soon(async {
        while identity_of(orphan.pid).is_some_and(|now| now == orphan) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(soon(bench.host.exited(&leader)).await, ExitStatus::Code(3));
    let tool = tool::run(tool_in(bench.layout.state(), "exit 4"), PATIENCE).await.unwrap_err().to_string();
    assert!(tool.contains("exit code 4"), "{tool}");
    bench.end(&leader).await;
}

#[tokio::test]
async fn a_new_daemon_ends_what_the_last_one_left_and_asks_postgres_first() {
    for host in [ProcessHost::new, ProcessHost::without_cgroups] {
        let mut bench = Bench::with(host);
        let postgres = ComponentId::new("demo", "postgres");
        let polite = bench.sh("trap 'echo bye; exit 0' INT; sleep 600 & echo $$ > gate; wait");
        bench.host.spawn(&postgres, &polite).await.unwrap();
        let asked = bench.announced().await;
        bench.start("setsid sh -c 'echo $$ > gate; : < never' & exit 0").await;
        let killed = bench.announced().await;

        let elsewhere = Bench::new();
        let spared = elsewhere.start(": < never").await;

        let mut reaped = survivors::reap_all(&bench.layout).await.unwrap();
        assert!(!is_alive(&asked) && !is_alive(&killed) && is_alive(&spared));
        assert_eq!(bench.log(), "bye\n");
        reaped.retain(|survivor| survivor.pid == killed.pid);
        assert_eq!(reaped, [Survivor { component: id(), pid: killed.pid, name: "sh".into() }]);
        assert_eq!(Ledger::open(bench.layout.ledger()).unwrap().all().unwrap(), []);
        assert_eq!(survivors::reap_all(&bench.layout).await.unwrap(), []);
        elsewhere.end(&spared).await;
    }
}

#[tokio::test]
async fn a_survivor_whose_record_is_lost_is_found_by_its_mark() {
    for host in [ProcessHost::new, ProcessHost::without_cgroups] {
        let mut bench = Bench::with(host);
        let leader = bench.start(&format!("{IN_AN_OWN_SESSION} : < never")).await;
        let grandchild = bench.announced().await;
        Ledger::open(bench.layout.ledger()).unwrap().remove(&id()).unwrap();
        let reaped = survivors::reap_all(&bench.layout).await.unwrap();
        let pids: BTreeSet<u32> = reaped.iter().map(|survivor| survivor.pid).collect();
        assert_eq!(pids, BTreeSet::from([leader.pid, grandchild.pid]));
        assert!(!is_alive(&leader) && !is_alive(&grandchild));
    }
}

fn tool_in(dir: &Path, script: &str) -> Tool {
    Tool {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
        dir: dir.to_owned(),
        user: None,
    }
}

#[tokio::test]
async fn a_tool_hands_back_its_output_or_its_last_words() {
    let dir = tempfile::tempdir().unwrap();
    let run = async |script| tool::run(tool_in(dir.path(), script), PATIENCE).await;
    let output = run("echo out; echo err >&2").await.unwrap();
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("out\n", "err\n"));
    let error = run("seq 9 >&2; exit 3").await.unwrap_err().to_string();
    assert_eq!(error, "/bin/sh: exit code 3; its last words: 5 | 6 | 7 | 8 | 9");
    let missing = tool::run(Tool { program: "/missing".into(), ..tool_in(dir.path(), "") }, PATIENCE).await;
    assert!(matches!(missing, Err(ToolError::Start { .. })));
}

#[tokio::test]
async fn a_tool_nobody_waits_for_any_more_is_killed() {
    let mut bench = Bench::new();
    let tool = tokio::spawn(tool::run(tool_in(bench.layout.state(), "echo $$ > gate; : < never"), PATIENCE));
    let tool_of = identity_of(bench.line().await.parse().unwrap()).unwrap();
    tool.abort();
    soon(async {
        while is_alive(&tool_of) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_tool_that_is_late_is_killed_with_its_children() {
    let mut bench = Bench::new();
    let script = "sh -c 'echo $$ > gate; : < never' & echo stuck; : < never";
    let error =
        tool::run(tool_in(bench.layout.state(), script), Duration::from_millis(300)).await.unwrap_err();
    assert_eq!(error.to_string(), "/bin/sh: not done after 0s, killed; its last words: stuck");
    let child = bench.line().await.parse().unwrap();
    // Killed with the group; at most a zombie that nobody has collected.
    assert!(identity_of(child).is_none_or(|child| !is_alive(&child)));
}

/// The next life takes up the record and the cgroup of the one before; once nobody comes, nothing of it is left.
#[tokio::test]
async fn what_the_dead_leave_in_files_is_taken_up_or_cleared() {
    for host in [ProcessHost::new, ProcessHost::without_cgroups] {
        let bench = Bench::with(host);
        orphans::become_subreaper().unwrap();
        for code in 0..3 {
            let identity = bench.start(&format!("exit {code}")).await;
            assert_eq!(soon(bench.host.exited(&identity)).await, ExitStatus::Code(code));
            bench.end(&identity).await;
            assert!(identity_of(identity.pid).is_none_or(|now| now != identity), "it was waited for");
        }
        bench.host.tidy().await;
        assert_eq!(Ledger::open(bench.layout.ledger()).unwrap().all().unwrap(), []);
        let last = bench.start(": < never").await;
        assert!(is_alive(&last));
        bench.end(&last).await;
    }
}
