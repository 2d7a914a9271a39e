//! Plain services under `berth supervise`: order, readiness, and a supervisor that dies.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "the files a test writes need not outlive a crash; a test that panics has failed"
)]

mod common;

use berth::control::api::{EventQuery, StampedEvent};
use berth_actors::message::TreeEvent;
use berth_actors::status::{ChainState, ChainStatus, TreeStatus};
use common::{Dev, Home, host};
use futures::StreamExt;
use rustix::fs::{CWD, Mode, mkfifoat};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// A file of services beside the state directory, and a gate that one of them waits at.
struct Services {
    home: Home,
    file: PathBuf,
    gate: PathBuf,
}

impl Services {
    fn new(text: &str) -> Self {
        let home = Home::new();
        let [file, gate] = ["services.toml", "gate"].map(|name| home.state().with_file_name(name));
        fs::write(&file, text.replace("GATE", gate.to_str().unwrap())).unwrap();
        mkfifoat(CWD, &gate, Mode::RUSR | Mode::WUSR).unwrap();
        Self { home, file, gate }
    }

    fn start(&self) -> Dev<'_> {
        self.home.run(&["supervise", self.file.to_str().unwrap()], &[])
    }

    /// Reads the event stream until it says this.
    async fn hear(&self, subject: &str, what: &str) {
        let mut events = Box::pin(self.home.client().events(EventQuery { follow: true }).await.unwrap());
        let wanted = TreeEvent { subject: subject.to_owned(), what: what.to_owned() };
        let mut text = Vec::new();
        let listen = async {
            while let Some(Ok(chunk)) = events.next().await {
                text.extend_from_slice(&chunk);
                let lines = text.split(|byte| *byte == b'\n');
                let mut said = lines.filter_map(|line| serde_json::from_slice::<StampedEvent>(line).ok());
                if said.any(|said| said.event == wanted) {
                    return true;
                }
            }
            false
        };
        let heard = tokio::time::timeout(Duration::from_secs(60), listen).await;
        assert!(heard.expect("it says so in time"), "the stream ended before {what}");
    }

    /// Lets through whoever waits at the gate.
    fn open_gate(&self) -> fs::File {
        fs::File::options().read(true).write(true).open(&self.gate).unwrap()
    }
}

fn service<'a>(status: &'a TreeStatus, name: &str) -> &'a ChainStatus {
    status.services.iter().find(|service| service.name == name).expect("the service is in the tree")
}

fn all_ready(status: &TreeStatus) -> bool {
    !status.services.is_empty() && status.services.iter().all(|service| service.state == ChainState::Ready)
}

fn pid(status: &TreeStatus, name: &str) -> u32 {
    service(status, name).children[0].pid.expect("it runs")
}

const GATED: &str = r#"
services = [
    {name = "web", argv = ["sleep", "10000"], after = ["db"]},
    {name = "db", argv = ["sh", "-c", ": < GATE; echo >&3; exec sleep 10000"], ready_fd = 3},
    {name = "lone", argv = ["sleep", "10000"]},
]"#;

#[tokio::test]
async fn a_service_waits_for_those_it_comes_after_and_everything_stops_in_reverse() {
    let services = Services::new(GATED);
    let dev = services.start();
    let waiting = |status: &TreeStatus| {
        status.services.len() == 3 && service(status, "lone").state == ChainState::Ready
    };
    let status = dev.until("the lone one to be ready, while db waits at its gate", waiting).await;
    assert_eq!(service(&status, "web").state, ChainState::Down, "it comes after db");
    let _gate = services.open_gate();
    dev.until("all to be ready", all_ready).await;

    let order = services.home.downs().await;
    assert!(dev.stop().success());
    assert_eq!(order.await.unwrap(), ["lone/main", "web/main", "db/main"]);
}

#[tokio::test]
async fn a_service_that_an_operator_stopped_stays_down_until_started() {
    let services = Services::new(r#"services = [{name = "web", argv = ["sleep", "10000"]}]"#);
    let dev = services.start();
    let first = pid(&dev.until("web to be ready", all_ready).await, "web");
    services.home.ok(&["service", "stop", "web"]);
    assert!(!host::is_alive(first));
    services.home.ok(&["service", "start", "web"]);
    let again = services.home.client().status().await.unwrap();
    assert_ne!(pid(&again, "web"), first);
    let unknown = services.home.berth(&["service", "stop", "nobody"]);
    assert_eq!(unknown.status.code(), Some(4));
    assert!(dev.stop().success());
}

#[tokio::test]
async fn a_killed_supervisor_is_succeeded_by_one_that_adopts_and_sees_every_end() {
    let services = Services::new(
        r#"services = [{name = "a", argv = ["sleep", "10000"]}, {name = "b", argv = ["sleep", "10001"]}]"#,
    );
    let first = services.start();
    let before = first.until("both to be ready", all_ready).await;
    first.kill();

    let second = services.start();
    let after = second.until("both to be ready again", all_ready).await;
    for name in ["a", "b"] {
        assert_eq!(pid(&after, name), pid(&before, name), "{name} was adopted");
    }
    services.hear("all services", "ready, 2 of 2 adopted from an earlier daemon").await;
    host::signal(pid(&after, "a"), rustix::process::Signal::KILL);
    let restarted = |status: &TreeStatus| all_ready(status) && pid(status, "a") != pid(&before, "a");
    let status = second.until("a to be restarted", restarted).await;
    assert_eq!(service(&status, "a").children[0].last_failure.as_deref(), Some("killed by signal 9"));
    assert_eq!(pid(&status, "b"), pid(&before, "b"));
    assert!(second.stop().success());
    assert!(!host::is_alive(pid(&before, "b")));
}

const AS_IT_WAS: &str = r#"
services = [
    {name = "kept", argv = ["sleep", "10000"]},
    {name = "argument", argv = ["sleep", "10001"]},
    {name = "variable", argv = ["sleep", "10002"], env = {COLOUR = "red"}},
    {name = "behind", argv = ["sleep", "10003"], after = ["argument", "variable"]},
    {name = "gone", argv = ["sleep", "10004"]},
]"#;

#[tokio::test]
async fn of_a_file_that_changed_only_what_is_started_differently_is_restarted() {
    let services = Services::new(AS_IT_WAS);
    let first = services.start();
    let before = first.until("all to be ready", all_ready).await;
    first.kill();
    let without_the_last: String = AS_IT_WAS.lines().filter(|line| !line.contains("gone")).collect();
    let changed = without_the_last.replace("10001", "20001").replace("red", "blue");
    fs::write(&services.file, changed).unwrap();

    let second = services.start();
    second.until("the control API", |_| true).await;
    services.hear("all services", "ready, 2 of 4 adopted from an earlier daemon").await;
    let after = services.home.client().status().await.unwrap();
    for name in ["kept", "behind"] {
        assert_eq!(pid(&after, name), pid(&before, name), "{name}");
    }
    for name in ["argument", "variable"] {
        assert_ne!(pid(&after, name), pid(&before, name), "{name}");
        assert!(!host::is_alive(pid(&before, name)), "{name}: its process of before is gone");
    }
    assert!(!host::is_alive(pid(&before, "gone")));
    assert!(second.stop().success());
}
