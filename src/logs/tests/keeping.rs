//! The keeper is told by the kernel, and needs nobody to have been there before.

use super::super::{LogKeeper, rotate};
use super::*;
use crate::file_events::FileEvents;
use std::time::Duration;

const PACE: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_millis(50);

/// Resolves once every log that was named has been looked at.
async fn idle(keeper: &LogKeeper) {
    let looked_at = async {
        while !keeper.is_idle() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), looked_at).await.expect("each is looked at");
}

/// Resolves once the log has an archive that ends after `after`.
async fn archived_after(bench: &Bench, after: u64) -> u64 {
    let newest = || bench.archives().last().copied().filter(|end| *end > after);
    let wait = async {
        loop {
            // Watches the name of an archive that nobody knows yet: any change of the directory will do.
            let mut events = FileEvents::of(&archive::unfinished(&bench.log())).unwrap();
            if let Some(newest) = newest() {
                return newest;
            }
            events.changed().await.unwrap();
            while archive::unfinished(&bench.log()).exists() {
                tokio::task::yield_now().await;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.expect("it was rotated")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_rotated_while_its_component_writes_and_again_later() {
    let bench = Bench::new();
    let mut writer = bench.writer();
    let keeper = LogKeeper::paced(SMALL, PACE, PATIENCE);
    assert_eq!(keeper.begin(&bench.log()).unwrap(), 0);
    let mut archived = 0;
    for round in 0..3 {
        writer.write_all(&lines(round * 3000, 3000)).unwrap();
        archived = archived_after(&bench, archived).await;
    }
    let (first, rest) = bench.read_all();
    assert_eq!(rest, lines(0, 9000)[usize::try_from(first).unwrap()..]);
    assert_eq!(
        keeper.begin(&bench.log()).unwrap(),
        lines(0, 9000).len() as u64,
        "the next life begins there"
    );
}

/// As a daemon does that is killed soon after: its runtime is gone with its keeper.
fn keep_until_death(log: &Path) {
    let log = log.to_owned();
    let daemon = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async { LogKeeper::paced(ALL, PACE, PATIENCE).begin(&log) })
    });
    assert_eq!(daemon.join().unwrap().unwrap(), 0);
}

/// The writer has the file; who watches it is no matter to it.
#[tokio::test(flavor = "multi_thread")]
async fn a_component_outlives_its_daemon_and_the_next_one_rotates_on() {
    let bench = Bench::new();
    let mut child = tokio::process::Command::new("/bin/sh");
    child.args([
        "-c",
        "i=0; while [ $i -lt 20000 ]; do echo \"$i some output of a component\"; i=$((i+1)); done",
    ]);
    keep_until_death(&bench.log());
    let log = bench.writer();
    let mut child = child.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
    let next = LogKeeper::paced(ALL, PACE, PATIENCE);
    next.keep(&bench.log());
    assert!(child.wait().await.unwrap().success(), "no SIGPIPE");
    next.keep(&bench.log());
    idle(&next).await;
    assert!(!bench.archives().is_empty());
    let written = String::from_utf8(bench.read_all().1).unwrap();
    assert_eq!(written.lines().count(), 20_000);
    for (number, line) in written.lines().enumerate() {
        assert_eq!(line, format!("{number} some output of a component"));
    }
}

/// A dead disk under one log: whoever starts a component waits for none of it, and the other logs are rotated on.
#[tokio::test(flavor = "multi_thread")]
async fn a_look_that_hangs_holds_up_no_spawn_and_no_other_log() {
    let [stuck, other] = [Bench::new(), Bench::new()];
    stuck.append(&lines(0, 3000));
    let keeper = LogKeeper::paced(SMALL, PACE, PATIENCE);
    let gate = keeper.hang_at(&stuck.log());
    keeper.keep(&stuck.log());
    let mut writer = other.writer();
    assert_eq!(keeper.begin(&other.log()).unwrap(), 0);
    keeper.keep(&stuck.log());
    let mut archived = 0;
    for round in 0..3 {
        writer.write_all(&lines(round * 3000, 3000)).unwrap();
        archived = archived_after(&other, archived).await;
    }
    assert_eq!(stuck.archives(), [0; 0], "it still hangs");
    assert!(!keeper.is_idle());
    drop(gate);
    archived_after(&stuck, 0).await;
    idle(&keeper).await;
    stuck.append(&lines(3000, 3000));
    archived_after(&stuck, lines(0, 3000).len() as u64).await;
}

#[tokio::test]
async fn a_log_that_is_gone_is_forgotten() {
    let bench = Bench::new();
    bench.append(b"x\n");
    let keeper = LogKeeper::paced(SMALL, PACE, PATIENCE);
    keeper.keep(&bench.log());
    idle(&keeper).await;
    assert_eq!(keeper.count(), 1);
    std::fs::remove_file(bench.log()).unwrap();
    let forgotten = async {
        while keeper.count() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), forgotten).await.expect("the kernel told");
}

#[tokio::test(start_paused = true)]
async fn a_log_without_a_watch_is_looked_at_every_minute() {
    let bench = Bench::new();
    let keeper = LogKeeper::unwatching(SMALL);
    bench.append(b"x\n");
    keeper.keep(&bench.log());
    idle(&keeper).await;
    bench.append(&lines(0, 3000));
    let rotated = async {
        while bench.archives().is_empty() {
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(600), rotated).await.expect("a look within the minute");
}

/// For docs/decisions/0010: `cargo test -p berth --lib -- --ignored --nocapture what_it_costs`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "prints figures, decides nothing"]
#[allow(clippy::print_stdout)] // the same
async fn what_it_costs() {
    let bench = Bench::new();
    bench.append(b"");
    let path = bench.log();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let done = std::sync::Arc::clone(&stop);
    let mut writer = bench.writer();
    let writing = std::thread::spawn(move || {
        let (mut longest, mut written, line) = (Duration::ZERO, 0, [&[b'x'; 150][..], b"\n"].concat());
        while !done.load(std::sync::atomic::Ordering::Relaxed) {
            let at = std::time::Instant::now();
            writer.write_all(&line).unwrap();
            longest = longest.max(at.elapsed());
            written += line.len();
        }
        (longest, written)
    });
    let mut longest = Duration::ZERO;
    for _ in 0..10 {
        while bench.live_size() <= Limits::MAX_SIZE {
            tokio::task::yield_now().await;
        }
        let at = std::time::Instant::now();
        rotate::make_room(&path, Limits::default()).unwrap();
        longest = longest.max(at.elapsed());
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let (write, written) = writing.join().unwrap();
    println!("{} MiB written, longest write {write:?}, longest look {longest:?}", written >> 20);

    let (keeper, dir) = (LogKeeper::new(SMALL), tempfile::tempdir().unwrap());
    let logs: Vec<_> = (0..1000).map(|number| dir.path().join(format!("{number}.log"))).collect();
    for log in &logs {
        File::create(log).unwrap();
    }
    let memory = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        status.lines().find(|line| line.starts_with("VmRSS")).unwrap().to_owned()
    };
    let before = memory();
    for log in &logs {
        keeper.keep(log);
    }
    idle(&keeper).await;
    println!("1000 logs kept: {before} before, {} after", memory());
    let before = switches();
    tokio::time::sleep(Duration::from_secs(20)).await;
    println!("20 s of silence: all threads were woken {} times, once to print this", switches() - before);
}

fn switches() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let counts = tasks.map(|task| {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse::<u64>().unwrap()
    });
    counts.sum()
}
