//! What a component writes while its daemon is killed again and again, in the middle of rotations too: every line is in its
//! log files, whole, once and in order, and the component never knows (C8, A1).

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "the files a test writes need not outlive a crash, and nobody planted what it reads; a test that panics has failed"
)]

mod common;

use berth::file_events::FileEvents;
use berth_actors::status::{ChainState, TreeStatus};
use common::{Home, host};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Numbers its lines as fast as it can until it has written enough, and leaves how many there are in a file beside `$0`. When that
/// is gone, a test has failed, and it ends as well.
const WRITER: &str = r#"
trap 'echo yes > "$0.pipe"; exit 1' PIPE
trap 'enough=yes' USR1
n=0
while [ -z "$enough" ] && [ -e "$0" ]; do
    many=$((n + 1000))
    while [ $n -lt $many ]; do n=$((n + 1)); echo "$n of the lines that nobody may lose" || exit 9; done
done
echo $n > "$0.written"
"#;
const LINE: &str = "of the lines that nobody may lose";
const LIVES: usize = 18;
const PATIENCE: Duration = Duration::from_secs(120);

fn writer(status: &TreeStatus) -> Option<u32> {
    let service = status.services.first().filter(|service| service.state == ChainState::Ready)?;
    service.children[0].pid
}

#[tokio::test]
async fn daemons_killed_in_a_row_lose_and_tear_no_line_of_a_component_that_never_stops_writing() {
    let home = Home::new();
    let beside = |name: &str| home.state().with_file_name(name);
    let file = beside("services.json");
    let services = serde_json::json!({
        // All that is ever written is kept.
        "logs": {"max_size": "256KiB", "keep": u16::MAX},
        "services": [{"name": "writer", "argv": ["/bin/sh", "-c", WRITER, file], "restart": "never"}],
    });
    fs::write(&file, services.to_string()).unwrap();
    let start = || home.run(&["supervise", file.to_str().unwrap()], &[]);
    let log = home.state().join("log/writer.log");
    let rotation = log.with_file_name(".writer.log.next");

    let dev = start();
    let status = dev.until("the writer to run", |status| writer(status).is_some()).await;
    let pid = writer(&status).unwrap();
    dev.kill();
    let mut cut_short = 0;
    for life in 0..LIVES {
        let (mut events, before) = (FileEvents::of(&rotation).unwrap(), archives(&log).len());
        let dev = start();
        let moment = async {
            // What the dead ones left is far over the limit: it is the first thing that this one rotates.
            match life % 3 {
                0 => host::created(&home.layout().control_socket()).await,
                1 => events.changed().await.unwrap(),
                // The head has another name now, and may still be in the live file.
                _ => {
                    while archives(&log).len() == before {
                        events.changed().await.unwrap();
                    }
                }
            }
        };
        tokio::time::timeout(PATIENCE, moment).await.expect("the next daemon rotates");
        dev.kill();
        cut_short += usize::from(rotation.exists());
    }
    if cut_short == 0 {
        // Whether a kill comes in time is the scheduler's.
        berth::testing::not_exercised("no daemon was killed in the middle of a rotation");
    }

    let dev = start();
    let status = dev.until("the writer to be adopted", |status| writer(status).is_some()).await;
    assert_eq!(writer(&status), Some(pid), "nobody restarted it");
    host::signal(pid, Signal::USR1);
    // Which an end with anything but exit code 0 is not.
    dev.until("its end", |status| status.services[0].state == ChainState::Done).await;
    assert!(dev.stop().success());
    assert!(!beside("services.json.pipe").exists(), "no SIGPIPE");
    let written: u64 = fs::read_to_string(beside("services.json.written")).unwrap().trim().parse().unwrap();
    let mut next = 0;
    for line in everything(&log).lines() {
        next += 1;
        let (number, rest) = line.split_once(' ').unwrap_or((line, ""));
        assert!(number.parse() == Ok(next) && rest == LINE, "line {next}: {line:?}");
    }
    assert_eq!(next, written);
}

/// Ends of the archives' names, which say where they end in what was written, in order.
fn archives(log: &Path) -> Vec<String> {
    let name = format!("{}.", log.file_name().unwrap().to_str().unwrap());
    let entries = fs::read_dir(log.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut ends: Vec<String> = entries
        .filter_map(|entry| Some(entry.to_str()?.strip_prefix(&name)?.to_owned()))
        .filter(|end| end.bytes().all(|byte| byte.is_ascii_digit()))
        .collect();
    ends.sort_unstable();
    ends
}

/// The archives, and of the live file what is not archived: read as docs/operations.md describes them.
fn everything(log: &Path) -> String {
    let mut bytes = Vec::new();
    for end in archives(log) {
        bytes.extend(fs::read(log.with_extension(format!("log.{end}"))).unwrap());
        assert_eq!(bytes.len(), end.parse::<usize>().unwrap(), "where {end} ends");
    }
    let live = fs::read(log).unwrap();
    let base = header(&live);
    bytes.extend(&live[bytes.len() - base..]);
    String::from_utf8(bytes).unwrap()
}

/// How many bytes were written before the file, as its first line says, if that is Berth's.
fn header(live: &[u8]) -> usize {
    let Some(rest) = live.strip_prefix(b"--- berth: ") else { return 0 };
    std::str::from_utf8(&rest[..16]).unwrap().parse().unwrap()
}
