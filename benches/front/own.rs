//! What this process costs, and in it the front.

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use std::fs;
use std::time::Duration;

/// CPU that the front's threads have used, by the scheduler's own count.
pub(crate) fn cpu() -> Duration {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let of_front = tasks
        .filter(|task| fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("front-")));
    let nanoseconds = of_front.map(|task| {
        let count = fs::read_to_string(task.join("schedstat")).unwrap();
        count.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    });
    Duration::from_nanos(nanoseconds.sum())
}

/// Bytes of this process in memory (PSS).
pub(crate) fn memory() -> u64 {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Every thread of this process on one CPU, as long as it lives.
pub(crate) struct OnOneCpu {
    before: CpuSet,
}

impl OnOneCpu {
    pub(crate) fn pin() -> Self {
        let before = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|cpu| before.is_set(*cpu)).unwrap();
        let mut one = CpuSet::new();
        one.set(first);
        place_threads(&one);
        Self { before }
    }
}

impl Drop for OnOneCpu {
    fn drop(&mut self) {
        place_threads(&self.before);
    }
}

fn place_threads(on: &CpuSet) {
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let id: i32 = task.unwrap().file_name().to_str().unwrap().parse().unwrap();
        // A thread that has just ended needs no place.
        let _ = sched_setaffinity(Pid::from_raw(id), on);
    }
}
