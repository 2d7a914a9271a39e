//! When a kcp truly serves (K3): /readyz is green, and an authenticated read succeeds. The socket accepts connections long
//! before, and the API answers some requests up to 20 s before.
//!
//! Called by the blueprint for a start and for a check after a store outage. It knows the one start that never ends, and
//! gives it up early. It never looks at /livez, which is as red as /readyz during a start.

use crate::files;
use crate::https::Https;
use crate::kcp::election::Election;
use crate::kcp::kubeconfig::Token;
use crate::kcp::material::{CERTIFICATE, Material};
use crate::kcp::readyz::Checks;
use crate::kcp::renewal::Places;
use crate::kcp::shared::{Shared, SharedError};
use crate::kcp::slot::write_if_changed;
use crate::kcp::start_log::StartLog;
use crate::kcp::{defaults, kubeconfig, trust};
use crate::off_thread::off_thread;
use berth_actors::host::{GateError, Running, WaitNote};
use hyper::{Method, StatusCode};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// How often and how patiently the gate asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub interval: Duration,
    pub probe: Duration,
    pub hang_confirmed_after: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            interval: defaults::PROBE_INTERVAL,
            probe: defaults::PROBE_DEADLINE,
            hang_confirmed_after: defaults::HANG_CONFIRMED_AFTER,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Gate {
    pub component: String,
    pub root: PathBuf,
    pub election: PathBuf,
    pub shared: Shared,
    pub places: Places,
    /// Where the consumers' kubeconfig lies.
    pub consumer: PathBuf,
    pub front_port: u16,
    pub pace: Pace,
}

/// Why the gate is still closed.
struct Closed {
    why: String,
    looks: Looks,
}

/// What one probe says of a hang.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looks {
    Hung,
    Alive,
    /// It brought no list of checks: a timeout on a busy machine proves neither.
    Unseen,
}

impl Closed {
    fn because(why: impl Into<String>) -> Self {
        Self { why: why.into(), looks: Looks::Unseen }
    }

    /// /readyz is not green.
    fn red(status: StatusCode, body: &[u8]) -> Self {
        let checks = Checks::parse(&String::from_utf8_lossy(body));
        let why = if checks.red.is_empty() { format!("/readyz (HTTP {status})") } else { checks.to_string() };
        let looks = match &checks {
            Checks { red, .. } if red.is_empty() => Looks::Unseen,
            checks if checks.look_hung() => Looks::Hung,
            _ => Looks::Alive,
        };
        Self { why, looks }
    }
}

impl Gate {
    /// Resolves once kcp serves, its material is captured and the consumers' kubeconfig says so. Cancel-safe: each file
    /// appears whole or not at all.
    pub(crate) async fn open(&self, running: &Running, note: &WaitNote) -> Result<(), GateError> {
        let Some(address) = running.address else {
            return Err(GateError::Hopeless(format!("{}: no port was discovered", self.component)));
        };
        let shared = self.shared.clone();
        let is_first = off_thread(move || matches!(shared.load(), Ok(None))).await;
        let mut log = StartLog::new(&running.log, running.log_offset);
        let mut hung = Hung { since: None, confirmed_after: self.pace.hang_confirmed_after };
        let mut probes = interval(self.pace.interval);
        probes.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            probes.tick().await;
            let probe = self.probe(address).await;
            log = self.listen(log, running).await;
            let closed = match probe {
                Ok(()) => match self.hand_out(is_first).await {
                    Ok(()) => return Ok(()),
                    Err(closed) => closed,
                },
                Err(closed) => closed,
            };
            note.say(&closed.why);
            let looks = if log.lease_complaint { closed.looks } else { Looks::Alive };
            if hung.observe(looks, Instant::now()) {
                let reason = format!(
                    "{}: hung in its start beside the other slot ({}, and it could not delete its old lease): \
                     killed, as it hears nothing else, and its kine with it",
                    self.component, closed.why
                );
                return Err(GateError::Upstream { step: "kine".to_owned(), reason });
            }
        }
    }

    /// One look at the process: /readyz, then a read as shard-admin.
    async fn probe(&self, address: SocketAddr) -> Result<(), Closed> {
        let path = self.root.join(CERTIFICATE);
        let certificate = off_thread(move || files::read_optional(&path)).await;
        let certificate = certificate
            .map_err(|error| Closed::because(error.to_string()))?
            .ok_or_else(|| Closed::because("its certificate"))?;
        // The certificate may be half written: the next probe reads it again.
        let https = Https::new(&certificate, None).map_err(|error| Closed::because(error.to_string()))?;
        let url = format!("https://{address}/readyz");
        let (status, body) = https
            .get(&url, self.pace.probe)
            .await
            .map_err(|error| Closed::because(format!("/readyz ({error})")))?;
        if status != StatusCode::OK {
            return Err(Closed::red(status, &body));
        }
        let read = self.authenticated_read(&https, address).await;
        read.map_err(|closed| Closed { looks: Looks::Alive, ..closed })
    }

    /// With the token of the slot's own root: the set that will be captured, or was staged, is the one that must work.
    async fn authenticated_read(&self, https: &Https, address: SocketAddr) -> Result<(), Closed> {
        let root = self.root.clone();
        let set = off_thread(move || Material::read(&root)).await;
        let bearer = set.map_err(|error| Closed::because(error.to_string()))?.token().bearer();
        let url = format!("https://{address}/clusters/root/api/v1/namespaces?limit=1");
        let headers = [("authorization", bearer.as_str())];
        match https.send(Method::GET, &url, &headers, Vec::new(), self.pace.probe).await {
            Ok((StatusCode::OK, _)) => Ok(()),
            Ok((status, _)) => {
                Err(Closed::because(format!("a read as shard-admin to succeed (HTTP {status})")))
            }
            Err(error) => Err(Closed::because(format!("a read as shard-admin to succeed ({error})"))),
        }
    }

    /// Hears the log out, and remembers the leader identity while the log still holds it.
    async fn listen(&self, mut log: StartLog, running: &Running) -> StartLog {
        let (path, running, component) = (self.election.clone(), running.clone(), self.component.clone());
        off_thread(move || {
            log.read_on();
            if let Err(error) = Election::record(&path, &running, log.identity.as_deref()) {
                tracing::warn!(%component, %error, "the leader identity is not recorded; tried again with the next probe");
            }
            log
        })
        .await
    }

    /// Captures the shared set where there is none, and writes the consumers' kubeconfig where it changed.
    ///
    /// Only the very first slot has to wait for that. Later a full disk, or a set that somebody damaged, is reported: it
    /// is no reason to end a kcp that serves.
    async fn hand_out(&self, is_first: bool) -> Result<(), Closed> {
        let this = self.clone();
        match off_thread(move || this.publish()).await {
            Err(error) if is_first => Err(Closed::because(error.to_string())),
            Err(error) => {
                let component = &self.component;
                tracing::error!(%component, %error, "kcp serves, but its next start or handover will fail");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn publish(&self) -> Result<(), SharedError> {
        let set = self.shared.capture(&self.root)?;
        Ok(publish(&self.places, self.front_port, &self.consumer, set.token())?)
    }
}

/// Writes the consumers' kubeconfig where it changed. Blocking.
pub(super) fn publish(
    places: &Places,
    front_port: u16,
    consumer: &Path,
    token: &Token,
) -> Result<(), files::FileError> {
    let trusted = trust::bundle(places, crate::clock::now())?;
    write_if_changed(consumer, kubeconfig::consumer(front_port, &trusted, token).as_bytes(), None)
}

/// Tells a hung start from a healthy one that passes through the same state: the sign must stand for a while. A probe that
/// saw nothing neither breaks that while nor ends it.
#[derive(Debug)]
struct Hung {
    since: Option<Instant>,
    confirmed_after: Duration,
}

impl Hung {
    fn observe(&mut self, looks: Looks, now: Instant) -> bool {
        match looks {
            Looks::Hung => now - *self.since.get_or_insert(now) >= self.confirmed_after,
            Looks::Alive => {
                self.since = None;
                false
            }
            Looks::Unseen => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kcp::fixture::Fixture;
    use crate::kcp::test_server::{Answer, TestServer};
    use crate::layout::Layout;
    use berth_actors::identity::Identity;
    use std::sync::Mutex;

    const RED: &str =
        "[+]ping ok\n[-]poststarthook/kcp-start-informers failed: reason withheld\nreadyz check failed\n";
    const HANGING: &str = "[+]ping ok\n\
        [-]poststarthook/crd-informer-synced failed: reason withheld\n\
        [-]poststarthook/kcp-start-informers failed: reason withheld\n\
        [-]poststarthook/kcp-start-openapiv3-controller failed: reason withheld\nreadyz check failed\n";
    const LOG: &str = "I1130 1 server.go:847] \"(re-)starting leader election\" identity=\"vm_1\" name=\"kcp-controllers\"\n\
        E1130 1 controller.go:116] \"error deleting old lease\" err=\"context deadline exceeded\"\n";

    struct Slot {
        state: tempfile::TempDir,
        set: Fixture,
    }

    impl Slot {
        fn new(log: &str) -> Self {
            let slot = Self { state: tempfile::tempdir().unwrap(), set: Fixture::new() };
            slot.set.write(&slot.state.path().join("root"));
            files::write_atomic(&slot.state.path().join("kcp.log"), log.as_bytes(), None).unwrap();
            slot
        }

        fn layout(&self) -> Layout {
            Layout::new(self.state.path().to_owned(), None)
        }

        fn gate(&self) -> Gate {
            let at = |name: &str| self.state.path().join(name);
            Gate {
                component: "slot-a/kcp".into(),
                root: at("root"),
                election: at("election.json"),
                shared: Shared::new(self.layout().kcp_shared()),
                places: Places::new(&self.layout()),
                consumer: at("admin.kubeconfig"),
                front_port: 6443,
                pace: Pace {
                    interval: Duration::from_millis(2),
                    probe: Duration::from_secs(5),
                    hang_confirmed_after: Duration::from_millis(20),
                },
            }
        }

        fn running(&self, address: SocketAddr) -> Running {
            Running {
                identity: Identity { boot_id: "boot".into(), pid: 7, start_time: 1 },
                address: Some(address),
                log: self.state.path().join("kcp.log"),
                log_offset: 0,
            }
        }

        /// Answers with `script`, then with 200 for everything; the requests are written to the returned list.
        async fn serve(&self, script: Vec<Answer>) -> (TestServer, std::sync::Arc<Mutex<Vec<String>>>) {
            let seen = std::sync::Arc::new(Mutex::new(Vec::new()));
            let (record, script) = (seen.clone(), Mutex::new(script.into_iter()));
            let server = TestServer::start(&self.set, move |request| {
                let signed = if request.authorization.is_some() { " signed" } else { "" };
                record.lock().unwrap().push(format!("{} {}{signed}", request.method, request.path));
                script.lock().unwrap().next().unwrap_or_else(|| Answer::text(200, "ok"))
            })
            .await;
            (server, seen)
        }
    }

    #[tokio::test]
    async fn the_gate_opens_after_green_checks_and_an_authenticated_read() {
        let slot = Slot::new(LOG);
        let script = vec![
            Answer::text(500, RED),
            Answer::text(500, RED),
            Answer::text(200, "ok"),
            Answer::text(403, ""),
        ];
        let (server, seen) = slot.serve(script).await;
        let note = WaitNote::default();
        slot.gate().open(&slot.running(server.address), &note).await.unwrap();

        let read = "GET /clusters/root/api/v1/namespaces?limit=1 signed";
        assert_eq!(
            *seen.lock().unwrap(),
            ["GET /readyz", "GET /readyz", "GET /readyz", read, "GET /readyz", read]
        );
        assert_eq!(note.get(), "a read as shard-admin to succeed (HTTP 403 Forbidden)");
    }

    #[tokio::test]
    async fn the_first_ready_slot_leaves_the_shared_set_its_name_and_a_kubeconfig_for_consumers() {
        let slot = Slot::new(LOG);
        let (server, _) = slot.serve(Vec::new()).await;
        slot.gate().open(&slot.running(server.address), &WaitNote::default()).await.unwrap();

        let shared = slot.gate().shared.require().unwrap();
        assert_eq!(shared.token().expose(), slot.set.shard_admin);
        assert_eq!(Election::identity(&slot.gate().election).unwrap().as_deref(), Some("vm_1"));
        let consumer = std::fs::read_to_string(slot.gate().consumer).unwrap();
        assert!(consumer.contains(&slot.set.shard_admin) && !consumer.contains(&slot.set.kcp_admin));
    }

    #[tokio::test]
    async fn a_damaged_shared_set_is_no_reason_to_end_a_kcp_that_serves() {
        let slot = Slot::new(LOG);
        slot.set.write(&slot.layout().kcp_shared());
        std::fs::remove_file(slot.layout().kcp_shared().join("sa.key")).unwrap();
        let (server, _) = slot.serve(Vec::new()).await;
        slot.gate().open(&slot.running(server.address), &WaitNote::default()).await.unwrap();
        assert!(slot.gate().shared.load().is_err());
    }

    #[tokio::test]
    async fn the_first_slot_is_not_ready_before_its_consumers_have_a_kubeconfig() {
        let slot = Slot::new(LOG);
        let (server, _) = slot.serve(Vec::new()).await;
        let (mut gate, note, running) = (slot.gate(), WaitNote::default(), slot.running(server.address));
        gate.consumer = slot.state.path().join("absent/admin.kubeconfig");
        let mut open = Box::pin(gate.open(&running, &note));
        while !note.get().contains("absent/admin.kubeconfig") {
            futures::future::select(&mut open, Box::pin(tokio::task::yield_now())).await;
        }
        files::private_dir(&slot.state.path().join("absent"), None).unwrap();
        open.await.unwrap();
        assert!(slot.state.path().join("absent/admin.kubeconfig").exists());
    }

    #[tokio::test]
    async fn a_start_with_the_sign_of_the_hang_is_given_up() {
        let slot = Slot::new(LOG);
        let server = TestServer::start(&slot.set, |_| Answer::text(500, HANGING)).await;
        let error = slot.gate().open(&slot.running(server.address), &WaitNote::default()).await.unwrap_err();
        let GateError::Upstream { step, reason: said } = error else { panic!("{error:?}") };
        assert_eq!(step, "kine");
        assert!(
            said.starts_with("slot-a/kcp: hung in its start") && said.contains("crd-informer-synced"),
            "{said}"
        );
        assert!(slot.gate().shared.load().unwrap().is_none());
    }

    #[test]
    fn the_sign_must_stand_without_a_break() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut hung = Hung { since: None, confirmed_after: Duration::from_secs(2) };
        let seen =
            [(Looks::Hung, 10), (Looks::Hung, 11), (Looks::Alive, 12), (Looks::Hung, 13), (Looks::Hung, 14)];
        for (looks, second) in seen {
            assert!(!hung.observe(looks, at(second)), "{second}");
        }
        assert!(hung.observe(Looks::Hung, at(15)));
    }

    #[test]
    fn a_probe_that_saw_no_checks_is_no_break_and_no_proof() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut hung = Hung { since: None, confirmed_after: Duration::from_secs(2) };
        assert!(!hung.observe(Looks::Unseen, at(9)));
        assert!(!hung.observe(Looks::Hung, at(10)));
        assert!(!hung.observe(Looks::Unseen, at(12)));
        assert!(hung.observe(Looks::Hung, at(13)));
    }

    #[test]
    fn only_an_answer_with_checks_says_whether_a_start_hangs() {
        let looks = |body: &str| Closed::red(StatusCode::INTERNAL_SERVER_ERROR, body.as_bytes()).looks;
        assert_eq!([looks(HANGING), looks(RED), looks("")], [Looks::Hung, Looks::Alive, Looks::Unseen]);
        assert_eq!(Closed::because("/readyz (timed out)").looks, Looks::Unseen);
    }

    /// Each second probe is answered with nothing to read, as by a machine too busy to.
    #[tokio::test]
    async fn a_hang_is_known_through_probes_that_fail_in_between() {
        let slot = Slot::new(LOG);
        let count = std::sync::atomic::AtomicU32::new(0);
        let server = TestServer::start(&slot.set, move |_| {
            let odd = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 2 == 1;
            Answer::text(if odd { 503 } else { 500 }, if odd { "" } else { HANGING })
        })
        .await;
        let error = slot.gate().open(&slot.running(server.address), &WaitNote::default()).await.unwrap_err();
        assert!(matches!(error, GateError::Upstream { .. }), "{error:?}");
    }

    #[test]
    fn a_hang_is_given_up_within_fifteen_seconds_of_its_start() {
        let complaint_after = Duration::from_secs(10);
        let pace = Pace::default();
        let worst = complaint_after + pace.interval + pace.hang_confirmed_after + pace.interval + pace.probe;
        assert!(worst < Duration::from_secs(15), "{worst:?}");
    }

    #[tokio::test]
    async fn a_slot_that_has_not_written_its_certificate_is_waited_for_and_a_stop_may_drop_the_wait() {
        let slot = Slot::new("");
        std::fs::remove_file(slot.state.path().join("root/apiserver.crt")).unwrap();
        let (server, seen) = slot.serve(Vec::new()).await;
        let (note, gate, running) = (WaitNote::default(), slot.gate(), slot.running(server.address));
        {
            let mut open = Box::pin(gate.open(&running, &note));
            while note.get() != "its certificate" {
                futures::future::select(&mut open, Box::pin(tokio::task::yield_now())).await;
            }
        }
        assert!(seen.lock().unwrap().is_empty());
        slot.set.write(&slot.state.path().join("root"));
        gate.open(&running, &note).await.unwrap();
    }
}
