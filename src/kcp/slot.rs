//! The kcp process of one slot: what must lie on disk before it starts, its exact command line, and its gate.

use crate::discover::occupant;
use crate::files;
use crate::kcp::paths::SlotPaths;
use crate::kcp::ready::{Gate, Pace};
use crate::kcp::renewal::Places;
use crate::kcp::shared::SharedError;
use crate::kcp::{KcpConfig, defaults, stand_in, version};
use crate::off_thread::off_thread;
use async_trait::async_trait;
use berth_actors::host::{Blueprint, Context, GateError, Listens, PrepareError, Running, WaitNote};
use berth_actors::identity::SlotName;
use berth_actors::spec::{ProcessSpec, User};
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What is written to the audit log of both slots.
const AUDIT_POLICY: &str = include_str!("audit-policy.yaml");

/// The blueprint of `slot-a/kcp` or `slot-b/kcp`.
#[derive(Debug, Clone)]
pub struct Kcp {
    config: KcpConfig,
    slot: SlotName,
    paths: SlotPaths,
    other_root: PathBuf,
    places: Places,
}

impl Kcp {
    pub fn new(config: KcpConfig, slot: SlotName) -> Self {
        let paths = SlotPaths::new(&config.layout, slot);
        let other_root = SlotPaths::new(&config.layout, slot.other()).root;
        let places = Places::new(&config.layout);
        Self { config, slot, paths, other_root, places }
    }

    /// The command line after `argv[0]`. The `--shard-*` flags depend on nothing of the slot: every process, leader or not,
    /// writes them into the one Shard object.
    fn args(&self, kine: SocketAddr) -> Vec<String> {
        let KcpConfig { front_port, shutdown_delay, goaway_chance, .. } = &self.config;
        let SlotPaths { root, audit_log, audit_policy, .. } = &self.paths;
        let mut args =
            vec!["start".into(), format!("--etcd-servers=http://{kine}"), "--bind-address=127.0.0.1".into()];
        // With the second flag kcp refuses every port but 0, and without it 0 is no port to it.
        args.extend(match self.address() {
            Some(address) => vec![format!("--secure-port={}", address.port())],
            None => vec!["--secure-port=0".into(), "--experimental-bind-free-port".into()],
        });
        args.extend([
            "--feature-gates=WorkspaceMounts=true".into(),
            "--enable-leader-election".into(),
            format!("--shard-base-url=https://127.0.0.1:{front_port}"),
            format!("--shutdown-delay-duration={}", go_duration(*shutdown_delay)),
            format!("--root-directory={}", root.display()),
            format!("--audit-log-path={}", audit_log.display()),
            format!("--audit-policy-file={}", audit_policy.display()),
            format!("--audit-log-maxsize={}", defaults::AUDIT_MEGABYTES),
            format!("--audit-log-maxbackup={}", defaults::AUDIT_BACKUPS),
        ]);
        if !goaway_chance.is_never() {
            args.push(format!("--goaway-chance={goaway_chance}"));
        }
        args
    }

    /// Whether this kcp may have the store, which from then on has been bootstrapped by it (K8).
    async fn admit(&self) -> Result<(), PrepareError> {
        let (chain, program) = (self.slot.chain(), self.config.program_of(self.slot));
        let said = version::of(&program, self.config.owner).await;
        let releases = self.config.releases.clone();
        let Some(said) = said else {
            return match releases.newest() {
                None => Ok(()),
                Some(newest) => Err(PrepareError::Retry(format!(
                    "{chain}/kcp: {} does not say its version, and {newest} has bootstrapped this store",
                    program.path.display()
                ))),
            };
        };
        releases.may_start(&said).map_err(|error| {
            PrepareError::Fatal(format!(
                "{chain}/kcp: {error}: name a newer one in [components] kcp, or run the newer one and go back with \
                 `berth kcp upgrade --allow-downgrade`"
            ))
        })?;
        let slot = self.slot;
        off_thread(move || releases.bootstraps(slot, &said))
            .await
            .map_err(|error| PrepareError::Retry(format!("{chain}/kcp: {error}")))
    }

    /// The port it was given; `None`: it takes any free one.
    fn address(&self) -> Option<SocketAddr> {
        self.config.ports.map(|ports| ports.address(self.slot))
    }

    /// kcp says the same, but not whose it is. Blocking.
    fn port_is_free(&self) -> Result<(), PrepareError> {
        let Some(address) = self.address() else { return Ok(()) };
        let Some(occupant) = occupant(address) else { return Ok(()) };
        Err(PrepareError::Retry(format!(
            "{}/kcp: its port {address} is taken by {occupant}: stop that one, or choose another in [kcp] ports",
            self.slot.chain()
        )))
    }

    fn env(&self) -> BTreeMap<String, String> {
        // A home of its own: client libraries look for a kubeconfig and a cache there, and must not find the daemon's.
        let mut env = BTreeMap::from([("HOME".to_owned(), self.paths.dir.display().to_string())]);
        if self.config.program_of(self.slot).stand_in.is_some() {
            let KcpConfig { stand_in_knobs, kube_apiserver, .. } = &self.config;
            env.extend(stand_in::env(self.slot, stand_in_knobs, kube_apiserver));
        }
        env
    }

    /// Directories, the audit policy, and the material both slots share. Blocking.
    fn furnish(&self) -> Result<(), SharedError> {
        let owner = self.config.owner;
        files::private_dir(&self.config.layout.kcp(), None)?;
        if owner.is_some() {
            // The slot's account passes through to its own directory, and can list nothing.
            passable(&self.config.layout.kcp())?;
        }
        for dir in [&self.paths.dir, &self.paths.log_dir, &self.paths.audit_dir] {
            files::private_dir(dir, owner)?;
        }
        write_if_changed(&self.paths.audit_policy, AUDIT_POLICY.as_bytes(), owner)?;
        self.places.set_of(self.slot).prepare(
            &self.paths.root,
            &self.paths.interrupted_root,
            &self.other_root,
            owner,
        )
    }
}

#[async_trait]
impl Blueprint for Kcp {
    async fn prepare(&self, context: &Context, note: &WaitNote) -> Result<ProcessSpec, PrepareError> {
        let (spec, chain) = (self.spec(context)?, self.slot.chain());
        note.say("its root directory");
        let this = self.clone();
        off_thread(move || {
            this.furnish().map_err(|error| {
                let said = format!("{chain}/kcp: {error}");
                if error.is_passing() { PrepareError::Retry(said) } else { PrepareError::Fatal(said) }
            })?;
            this.port_is_free()
        })
        .await?;
        note.say("its version");
        self.admit().await?;
        Ok(spec)
    }

    fn spec(&self, context: &Context) -> Result<ProcessSpec, PrepareError> {
        let Some(kine) = context.address_of("kine") else {
            let chain = self.slot.chain();
            return Err(PrepareError::Retry(format!("{chain}/kcp: its kine has no address yet")));
        };
        let program = self.config.program_of(self.slot);
        Ok(ProcessSpec {
            program: program.path,
            arg0: program.arg0,
            args: self.args(kine),
            env: self.env(),
            start_env: BTreeMap::new(),
            dir: self.paths.dir.clone(),
            output: self.paths.log.clone(),
            user: self.config.owner,
            ready: None,
        })
    }

    fn listens(&self) -> Listens {
        self.address().map_or(Listens::OneTcp, Listens::Fixed)
    }

    async fn ready(&self, running: &Running, note: &WaitNote) -> Result<(), GateError> {
        let (places, slot) = (self.places.clone(), self.slot);
        let shared = off_thread(move || places.set_of(slot)).await;
        Gate {
            component: format!("{}/kcp", self.slot.chain()),
            root: self.paths.root.clone(),
            election: self.paths.election.clone(),
            shared,
            places: self.places.clone(),
            consumer: self.config.consumer_kubeconfig(),
            front_port: self.config.front_port,
            pace: Pace::default(),
        }
        .open(running, note)
        .await
    }
}

/// As Go's `time.ParseDuration` reads it.
fn go_duration(duration: Duration) -> String {
    if duration.subsec_nanos() == 0 {
        format!("{}s", duration.as_secs())
    } else {
        format!("{}ms", duration.as_millis())
    }
}

fn passable(dir: &Path) -> Result<(), files::FileError> {
    std::fs::set_permissions(dir, Permissions::from_mode(0o711)).map_err(|source| files::FileError {
        action: "change the mode of",
        path: dir.to_owned(),
        source,
    })
}

/// Leaves a file alone that already says this: a start is no reason to touch a disk that may be full.
pub(super) fn write_if_changed(
    path: &Path,
    bytes: &[u8],
    owner: Option<User>,
) -> Result<(), files::FileError> {
    if files::read_optional(path)?.as_deref() == Some(bytes) {
        return Ok(());
    }
    files::write_atomic(path, bytes, owner)
}

/// A slot's configuration below `state`, for tests.
#[cfg(test)]
pub(super) fn test_config(state: &Path) -> KcpConfig {
    let layout = crate::layout::Layout::new(state.to_owned(), None);
    KcpConfig {
        stand_in_knobs: BTreeMap::new(),
        releases: crate::kcp::Releases::open(&layout).unwrap(),
        layout,
        program: crate::components::Program::real("/opt/kcp"),
        kube_apiserver: "/opt/kube-apiserver".into(),
        front_port: 6443,
        shutdown_delay: defaults::SHUTDOWN_DELAY,
        ports: None,
        goaway_chance: defaults::GOAWAY_CHANCE,
        owner: None,
    }
}

#[cfg(test)]
mod tests {
    use super::test_config as config;
    use super::*;
    use crate::kcp::SlotPorts;
    use crate::kcp::fixture::Fixture;
    use crate::kcp::material::KUBECONFIG;
    use berth_actors::identity::Identity;

    fn context(kine_port: u16) -> Context {
        let kine = Running {
            identity: Identity { boot_id: "boot".into(), pid: 1, start_time: 1 },
            address: Some(SocketAddr::from(([127, 0, 0, 1], kine_port))),
            log: "/dev/null".into(),
            log_offset: 0,
        };
        Context { upstream: BTreeMap::from([("kine".to_owned(), kine)]), previous_address: None }
    }

    #[tokio::test]
    async fn the_command_line_is_the_one_kcp_was_measured_with() {
        let state = tempfile::tempdir().unwrap();
        let kcp = Kcp::new(config(state.path()), SlotName::A);
        let spec = kcp.prepare(&context(2379), &WaitNote::default()).await.unwrap();
        let dir = state.path().join("kcp/slot-a").display().to_string();
        assert_eq!(
            spec.args,
            [
                "start".to_owned(),
                "--etcd-servers=http://127.0.0.1:2379".into(),
                "--bind-address=127.0.0.1".into(),
                "--secure-port=0".into(),
                "--experimental-bind-free-port".into(),
                "--feature-gates=WorkspaceMounts=true".into(),
                "--enable-leader-election".into(),
                "--shard-base-url=https://127.0.0.1:6443".into(),
                "--shutdown-delay-duration=0s".into(),
                format!("--root-directory={dir}/root"),
                format!("--audit-log-path={dir}/audit/audit.log"),
                format!("--audit-policy-file={dir}/audit/policy.yaml"),
                "--audit-log-maxsize=100".into(),
                "--audit-log-maxbackup=3".into(),
            ]
        );
        assert_eq!(spec.env.keys().collect::<Vec<_>>(), ["HOME"]);
        assert_eq!(spec.output, state.path().join("kcp/slot-a/log/kcp.log"));
        for made in ["", "root", "audit", "log"] {
            let mode = Path::new(&dir).join(made).metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{made}");
        }
        assert_eq!(kcp.listens(), Listens::OneTcp);
    }

    #[tokio::test]
    async fn a_slot_with_a_port_of_its_own_is_not_told_to_look_for_a_free_one() {
        let state = tempfile::tempdir().unwrap();
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let ports = Some(SlotPorts { a: taken.local_addr().unwrap().port(), b: 16441 });
        let b = Kcp::new(KcpConfig { ports, ..config(state.path()) }, SlotName::B);
        let args = b.args(([127, 0, 0, 1], 2379).into());
        assert!(args.contains(&"--secure-port=16441".to_owned()), "{args:?}");
        assert!(!args.iter().any(|arg| arg.contains("free-port")), "{args:?}");
        assert_eq!(b.listens(), Listens::Fixed(([127, 0, 0, 1], 16441).into()));

        let a = Kcp::new(KcpConfig { ports, ..config(state.path()) }, SlotName::A);
        let error = a.prepare(&context(2379), &WaitNote::default()).await.unwrap_err();
        let PrepareError::Retry(said) = error else { panic!("{error:?}") };
        assert!(
            said.contains("is taken by") && said.contains(&format!("(pid {})", std::process::id())),
            "{said}"
        );
    }

    #[tokio::test]
    async fn both_slots_get_the_same_shard_flags_and_nothing_else_in_common_by_accident() {
        let state = tempfile::tempdir().unwrap();
        Fixture::new().write(&state.path().join("kcp/shared"));
        let mut shard = Vec::new();
        let mut differing = Vec::new();
        for (slot, kine) in [(SlotName::A, 1001), (SlotName::B, 1002)] {
            let kcp = Kcp::new(config(state.path()), slot);
            let args = kcp.prepare(&context(kine), &WaitNote::default()).await.unwrap().args;
            shard.push(args.iter().filter(|arg| arg.starts_with("--shard-")).cloned().collect::<Vec<_>>());
            differing.push(args);
        }
        assert_eq!(shard[0], shard[1]);
        assert_eq!(shard[0].len(), 1);
        let names: Vec<_> = std::iter::zip(&differing[0], &differing[1])
            .filter(|(a, b)| a != b)
            .map(|(a, _)| a.split('=').next().unwrap())
            .collect();
        assert_eq!(names, ["--etcd-servers", "--root-directory", "--audit-log-path", "--audit-policy-file"]);
    }

    #[tokio::test]
    async fn no_secret_is_on_the_command_line_or_in_the_environment() {
        let state = tempfile::tempdir().unwrap();
        let set = Fixture::new();
        set.write(&state.path().join("kcp/shared"));
        let kcp = Kcp::new(config(state.path()), SlotName::B);
        let spec = kcp.prepare(&context(1), &WaitNote::default()).await.unwrap();
        let visible = spec.args.iter().chain(spec.env.values()).cloned().collect::<String>();
        for secret in [&set.shard_admin, &set.kcp_admin, &hex::encode(&set.token_store)] {
            assert!(!visible.contains(secret));
        }
    }

    #[tokio::test]
    async fn only_a_stand_in_is_told_of_an_api_server() {
        let state = tempfile::tempdir().unwrap();
        let mut config = config(state.path());
        config.program.stand_in = Some("no kcp was given".into());
        let spec = Kcp::new(config, SlotName::A).prepare(&context(1), &WaitNote::default()).await.unwrap();
        assert_eq!(
            spec.env.get("KCP_STANDIN_KUBE_APISERVER").map(String::as_str),
            Some("/opt/kube-apiserver")
        );
    }

    #[tokio::test]
    async fn a_damaged_shared_set_is_refused_before_the_spawn_and_for_good() {
        let state = tempfile::tempdir().unwrap();
        let shared = state.path().join("kcp/shared");
        Fixture::new().write(&shared);
        std::fs::remove_file(shared.join(KUBECONFIG)).unwrap();
        let kcp = Kcp::new(config(state.path()), SlotName::B);
        let error = kcp.prepare(&context(1), &WaitNote::default()).await.unwrap_err();
        let PrepareError::Fatal(said) = error else { panic!("{error:?}") };
        assert!(said.starts_with("slot-b/kcp: ") && said.contains("admin.kubeconfig is missing"), "{said}");
    }

    #[tokio::test]
    async fn a_kine_without_an_address_is_waited_for() {
        let state = tempfile::tempdir().unwrap();
        let kcp = Kcp::new(config(state.path()), SlotName::A);
        let error = kcp.prepare(&Context::default(), &WaitNote::default()).await.unwrap_err();
        assert!(matches!(error, PrepareError::Retry(_)), "{error:?}");
    }

    #[tokio::test]
    async fn both_slots_move_http2_clients_by_themselves_where_that_is_configured() {
        let state = tempfile::tempdir().unwrap();
        Fixture::new().write(&state.path().join("kcp/shared"));
        let config = KcpConfig { goaway_chance: 0.02.try_into().unwrap(), ..config(state.path()) };
        for slot in [SlotName::A, SlotName::B] {
            let args =
                Kcp::new(config.clone(), slot).prepare(&context(1), &WaitNote::default()).await.unwrap().args;
            assert_eq!(args.last().map(String::as_str), Some("--goaway-chance=0.02"));
        }
    }

    #[test]
    fn a_delay_is_written_as_go_reads_it() {
        assert_eq!(go_duration(Duration::from_secs(2)), "2s");
        assert_eq!(go_duration(Duration::from_millis(1500)), "1500ms");
    }
}
