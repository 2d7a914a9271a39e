//! Limits under a kernel that enforces them, where its controllers are delegated to whoever runs the tests.

use super::*;
use crate::logs;
use crate::process::{ComponentLimits, Limits};

/// More than a shell needs, and far less than it is made to take.
const LITTLE: Limits = Limits { memory: Some(32 << 20), ..NONE };
const FEW: Limits = Limits { processes: Some(4), ..NONE };
const NONE: Limits =
    Limits { memory: None, processes: None, cpu_percent: None, open_files: None, core_size: None };

fn limited(layout: &Layout, limits: Limits) -> Result<ProcessHost, crate::files::FileError> {
    let limits = ComponentLimits::new([("kine".to_owned(), limits)]);
    ProcessHost::limited(layout, logs::Limits::default(), limits, false)
}

/// Whether they are in force.
fn are_in_force(host: &ProcessHost, what: &str) -> bool {
    let remarks = host.remarks();
    if let [remark] = &remarks[..] {
        not_exercised(&format!("{what}: {remark}"));
    }
    remarks.is_empty()
}

#[tokio::test]
async fn what_runs_out_of_memory_ends_whole_and_says_so() {
    let mut bench = Bench::with(|layout| limited(layout, LITTLE));
    let glutton = "echo $$ > gate; read go < never; x=$(head -c 200000000 /dev/zero | tr '\\0' x)";
    let leader = bench.start(glutton).await;
    bench.announced().await;
    if are_in_force(&bench.host, "a component that runs out of memory") {
        let mut never = std::fs::File::options().read(true).write(true).open(bench.path("never")).unwrap();
        never.write_all(b"go\n").unwrap();
        assert_eq!(soon(bench.host.exited(&leader)).await, ExitStatus::OutOfMemory);
    }
    bench.end(&leader).await;
    let next = bench.start("exit 7").await;
    assert_eq!(soon(bench.host.exited(&next)).await, ExitStatus::Code(7), "its successor is not blamed");
    bench.end(&next).await;
}

#[tokio::test]
async fn who_forks_without_end_stays_within_its_processes() {
    let bench = Bench::with(|layout| limited(layout, FEW));
    let leader = bench.start("for i in 1 2 3 4 5 6 7 8; do sleep 600 & done").await;
    soon(bench.host.exited(&leader)).await;
    if are_in_force(&bench.host, "a component with too many processes") {
        assert!(bench.log().contains("fork"), "the shell was refused one: {}", bench.log());
    }
    bench.end(&leader).await;
}

#[tokio::test]
async fn a_child_has_the_limits_of_open_files_and_core_dumps_from_its_birth() {
    let few = Limits { open_files: Some(64), core_size: Some(0), ..NONE };
    let bench = Bench::with(|layout| limited(layout, few));
    let leader = bench.start("ulimit -Sn; ulimit -Hn; ulimit -Sc; ulimit -Hc").await;
    soon(bench.host.exited(&leader)).await;
    assert_eq!(bench.log(), "64\n64\n0\n0\n");
    bench.end(&leader).await;
}

/// Where a hierarchy of the first kind has the memory controller, the kernel's log alone says whom it killed.
#[tokio::test]
async fn who_is_killed_for_memory_that_no_cgroup_of_ours_counts_is_known_from_the_kernels_log() {
    let what = "a kill that only the kernel's log tells of";
    let cgroup = std::path::PathBuf::from(format!("/sys/fs/cgroup/memory/berth-test-{}", std::process::id()));
    let readable = std::fs::File::open("/dev/kmsg").is_ok();
    if !readable || std::fs::create_dir(&cgroup).is_err() {
        return not_exercised(&format!(
            "{what}: no memory controller of cgroup v1, or no kernel log to read"
        ));
    }
    let limit = std::fs::File::options().write(true).open(cgroup.join("memory.limit_in_bytes"));
    limit.unwrap().write_all(b"33554432").unwrap();
    let mut bench = Bench::new();
    let procs = cgroup.join("cgroup.procs");
    let glutton = format!(
        "echo $$ > {}; echo $$ > gate; read go < never; x=$(head -c 200000000 /dev/zero | tr '\\0' x)",
        procs.display()
    );
    let leader = bench.start(&glutton).await;
    bench.announced().await;
    let mut never = std::fs::File::options().read(true).write(true).open(bench.path("never")).unwrap();
    never.write_all(b"go\n").unwrap();
    assert_eq!(soon(bench.host.exited(&leader)).await, ExitStatus::OutOfMemory);
    bench.end(&leader).await;
    std::fs::remove_dir(&cgroup).unwrap();
}
