//! How soon a started `berth supervise` has adopted what a killed one ran: the whole program, from its start to the line
//! that says so.
//!
//! Its children are shells that wait at a gate each (a pipe with a name) for the exit code they are to end with.

use crate::common::{Dev, Home, host};
use crate::{median, shown};
use berth_actors::status::{ChainState, ChildStatus, TreeStatus};
use rustix::fs::{CWD, Mode, mkfifoat};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::net::UnixDatagram;

/// A bring-up on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
/// A gate that is opened to be closed again has said nothing.
const CHILD: &str = "until read code < \"$0\"; do :; done; exit $code";

/// Services beside the state directory, and the socket that their supervisor says "ready" to.
struct Estate {
    home: Home,
    file: PathBuf,
    gates: PathBuf,
    notified: UnixDatagram,
}

impl Estate {
    fn new(count: usize) -> Self {
        let home = Home::new();
        let [file, gates, notify] =
            ["services.json", "gates", "notify"].map(|name| home.state().with_file_name(name));
        fs::create_dir(&gates).unwrap();
        let service = |number: usize| {
            let (name, gate) = (format!("s{number:04}"), gate(&gates, number));
            mkfifoat(CWD, &gate, Mode::RUSR | Mode::WUSR).unwrap();
            serde_json::json!({ "name": name, "argv": ["/bin/sh", "-c", CHILD, gate] })
        };
        let services: Vec<_> = (0..count).map(service).collect();
        fs::write(&file, serde_json::json!({ "services": services }).to_string()).unwrap();
        let notified = UnixDatagram::bind(notify).unwrap();
        Self { home, file, gates, notified }
    }

    fn start(&self) -> Dev<'_> {
        let socket = self.home.state().with_file_name("notify");
        let environment = [("NOTIFY_SOCKET", socket.to_str().unwrap())];
        self.home.run(&["supervise", self.file.to_str().unwrap()], &environment)
    }

    /// What it says of itself next.
    async fn said(&self) -> String {
        let mut message = [0; 4096];
        let listen = async {
            loop {
                let length = self.notified.recv(&mut message).await.unwrap();
                let message = String::from_utf8_lossy(&message[..length]);
                if let Some(line) = message.lines().find_map(|line| line.strip_prefix("STATUS=")) {
                    return line.to_owned();
                }
            }
        };
        tokio::time::timeout(PATIENCE, listen).await.expect("it says that all are ready")
    }

    /// Each service's process, as the supervisor knows it; and on the whole host there is no other.
    async fn census(&self) -> BTreeMap<String, u32> {
        let status = self.home.client().status().await.unwrap();
        let known: BTreeMap<_, _> = status
            .services
            .iter()
            .map(|service| (service.name.clone(), only(service).pid.unwrap()))
            .collect();
        let mut live: Vec<u32> =
            host::processes_below(&self.gates).iter().map(|(pid, _)| pid.cast_unsigned()).collect();
        let mut of_services: Vec<u32> = known.values().copied().collect();
        live.sort_unstable();
        of_services.sort_unstable();
        assert_eq!(live, of_services, "one process a service");
        known
    }

    /// Ends one with `code`. Its supervisor, which is not its parent, has to see that, and start it again.
    async fn end(&self, dev: &Dev<'_>, number: usize, code: u8) {
        let gate = gate(&self.gates, number);
        let told = tokio::task::spawn_blocking(move || {
            fs::File::options().write(true).open(gate).unwrap().write_all(format!("{code}\n").as_bytes())
        });
        told.await.unwrap().unwrap();
        let wanted = Some(format!("exit code {code}"));
        let is_back = |status: &TreeStatus| {
            let service = &status.services[number];
            service.state == ChainState::Ready && only(service).last_failure == wanted
        };
        dev.until("the exit code of one, and its successor", is_back).await;
    }
}

fn gate(gates: &Path, number: usize) -> PathBuf {
    gates.join(number.to_string())
}

fn only(service: &berth_actors::status::ChainStatus) -> &ChildStatus {
    &service.children[0]
}

/// Kills the supervisor of `count` children `rounds` times.
pub(crate) async fn of_a_started_program(count: usize, rounds: usize) {
    let estate = Estate::new(count);
    let mut dev = estate.start();
    assert_eq!(estate.said().await, format!("ready, 0 of {count} adopted from an earlier daemon"));
    let mut took = Vec::new();
    for round in 0..rounds {
        let before = estate.census().await;
        dev.kill();
        let from = Instant::now();
        dev = estate.start();
        let said = estate.said().await;
        took.push(from.elapsed());
        assert_eq!(said, format!("ready, {count} of {count} adopted from an earlier daemon"));
        assert_eq!(estate.census().await, before, "round {round}");

        let number = round * 7919 % count;
        estate.end(&dev, number, u8::try_from(round % 200 + 3).unwrap()).await;
        let mut after = estate.census().await;
        let name = format!("s{number:04}");
        assert_ne!(after.insert(name.clone(), before[&name]), Some(before[&name]));
        assert_eq!(after, before, "round {round}: nobody else was restarted");
    }
    assert!(dev.stop().success());
    let longest = took.iter().max().copied().unwrap_or_default();
    println!(
        "{:<44}{:>12}{:>12}{:>9}  500 ms",
        format!("adoption of {count} by a started program, p50 / max"),
        shown(median(&mut took)),
        shown(longest),
        ""
    );
}
