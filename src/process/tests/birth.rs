//! What a child is born with, and what a birth that fails says.

use super::*;
use crate::files::FileError;
use crate::logs;
use crate::process::ComponentLimits;

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
    crate::process::raw::seal_inherited_descriptors().unwrap();
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
    assert_eq!(bench.host.log_tail(&bench.path("log"), 0, 2).await, ["two", "three"]);
    assert_eq!(bench.host.log_tail(&bench.path("log"), 8, 2).await, ["three"], "its own words only");
    assert_eq!(bench.host.log_tail(&bench.path("no such log"), 0, 2).await, [""; 0]);
}

type Make = fn(&Layout) -> Result<ProcessHost, FileError>;

/// Of threads that bear some of root's children too, and of those that bear none.
const HOSTS: [Make; 2] = [ProcessHost::new, bound];

fn bound(layout: &Layout) -> Result<ProcessHost, FileError> {
    ProcessHost::limited(layout, logs::Limits::default(), ComponentLimits::default(), true)
}

#[tokio::test]
async fn a_child_runs_as_the_user_it_is_given_with_no_capability_and_no_way_to_one() {
    for host in HOSTS {
        let bench = Bench::with(host);
        let nobody = User { uid: 65534, gid: 65534 };
        let script = bench.sh("id -u; id -G; grep ^Cap /proc/$$/status | cut -f2 | sort -u");
        let spec = ProcessSpec { user: Some(nobody), dir: "/".into(), ..script };
        let spawned = bench.host.spawn(&id(), &spec).await;
        if !rustix::process::geteuid().is_root() {
            assert!(spawned.is_err(), "only root may switch");
            return not_exercised("a child of another user: only root may switch");
        }
        let identity = spawned.unwrap().identity;
        soon(bench.host.exited(&identity)).await;
        assert_eq!(bench.log(), "65534\n65534\n0000000000000000\n", "five sets, all empty");
        bench.end(&identity).await;
    }
}

/// A child that has taken its uid is in this memory until its exec: were it to be dumped again, that uid could trace it.
#[tokio::test]
async fn a_daemon_of_roots_memory_is_closed_for_good_and_what_it_reads_of_itself_is_not() {
    use rustix::process::{DumpableBehavior, dumpable_behavior};
    if !rustix::process::geteuid().is_root() {
        let before = dumpable_behavior().unwrap();
        Bench::new().host.spawn(&id(), &Bench::new().sh("true")).await.unwrap();
        assert_eq!(dumpable_behavior().unwrap(), before, "who changes no user stays as it was");
        return not_exercised("memory that a child of another user shares: only root may switch");
    }
    let bench = Bench::new();
    for user in [None, Some(User { uid: 65534, gid: 65534 })] {
        let spec = ProcessSpec { user, dir: "/".into(), ..bench.sh("true") };
        let spawned = bench.host.spawn(&id(), &spec).await.unwrap();
        assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable, "{user:?}");
        soon(bench.host.exited(&spawned.identity)).await;
        bench.end(&spawned.identity).await;
    }
    for own in ["cgroup", "mountinfo", "stat", "status", "maps", "environ"] {
        assert!(!std::fs::read(format!("/proc/self/{own}")).unwrap().is_empty(), "{own}");
    }
    assert!(std::fs::read_dir("/proc/self/fd").unwrap().next().is_some());
}

#[tokio::test]
async fn a_child_of_roots_keeps_what_root_has() {
    if !rustix::process::geteuid().is_root() {
        return not_exercised("a child of root's: this is not root");
    }
    let bench = Bench::new();
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("CapBnd:")).unwrap().trim().to_owned();
    let identity = bench.start("grep ^CapBnd /proc/$$/status | cut -f2").await;
    soon(bench.host.exited(&identity)).await;
    assert_eq!(bench.log().trim(), own);
    bench.end(&identity).await;
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
