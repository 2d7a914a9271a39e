//! The outside world as the tree sees it. Adapters implement these traits; [`crate::fake`] scripts them for tests.
//!
//! Every method is a future the actor may drop: each must be cancel-safe in the sense its doc line states.

use crate::data_adoption::{AdoptionError, AdoptionPlan, Consent};
use crate::handover::{Record, Side, Wish};
use crate::identity::{ComponentId, Identity, SlotName};
use crate::spec::{ProcessSpec, Signal, Step};
use async_trait::async_trait;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitStatus {
    Code(i32),
    Signal(i32),
    /// The kernel killed it, and everything of it, for want of memory within its own limit.
    OutOfMemory,
    /// The kernel did not tell (an adopted process before Linux 6.15).
    Unknown,
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "killed by signal {signal}"),
            Self::OutOfMemory => f.write_str("killed: it ran out of memory, within its limit or the host's"),
            Self::Unknown => f.write_str("exit status unknown"),
        }
    }
}

/// A process that was just born.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spawned {
    pub identity: Identity,
    /// How many bytes had ever been written to the output before this process did: where its own lines begin. A
    /// rotation does not change it.
    pub log_offset: u64,
}

/// A live process as its gate and its successors see it.
#[derive(Debug, Clone)]
pub struct Running {
    pub identity: Identity,
    /// Its one TCP address, once discovered; `None` for a component that listens on a socket file or nothing.
    pub address: Option<SocketAddr>,
    pub log: PathBuf,
    pub log_offset: u64,
}

/// What an earlier daemon left of a component.
#[derive(Debug, Clone)]
pub struct Survivor {
    /// As it was recorded. A dead one still says where it listened: its successor must come back there.
    pub running: Running,
    /// [`ProcessSpec::digest`] of what it was started with.
    pub digest: String,
    /// False: nothing of it is left.
    pub alive: bool,
}

/// A process of an earlier daemon that nobody adopts and that even SIGKILL does not end: it hangs in the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stray {
    pub component: ComponentId,
    pub pid: u32,
    /// As the kernel calls it.
    pub name: String,
}

impl fmt::Display for Stray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {}) of an earlier daemon outlives SIGKILL", self.name, self.pid)
    }
}

/// Whose processes an earlier daemon may have left for a reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accounted {
    /// Each is adopted by its chain.
    pub components: BTreeSet<ComponentId>,
    /// Nobody knows what of these chains should run: whatever does is neither adopted nor ended.
    pub untouched: BTreeSet<String>,
}

impl Accounted {
    pub fn for_component(&self, component: &ComponentId) -> bool {
        self.components.contains(component) || self.untouched.contains(&component.chain)
    }
}

/// What a blueprint may know when it prepares a start: the earlier steps, and this step's own last address.
#[derive(Debug, Clone, Default)]
pub struct Context {
    pub upstream: BTreeMap<String, Running>,
    /// Where this component listened before: a restarted kine must bind the same port (K9).
    pub previous_address: Option<SocketAddr>,
}

impl Context {
    /// The TCP address of an earlier step.
    pub fn address_of(&self, component: &str) -> Option<SocketAddr> {
        self.upstream.get(component).and_then(|running| running.address)
    }
}

/// Why a start could not even be prepared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrepareError {
    /// The identity guard said no. Final: no restart, an operator must decide.
    #[error("{0}")]
    Refused(String),
    /// Retrying cannot help (a missing binary, a torn file). Final until the operator retries.
    #[error("{0}")]
    Fatal(String),
    /// Worth another try by policy (the database did not answer).
    #[error("{0}")]
    Retry(String),
}

/// The gate will not open in this life of the process: the start has failed before its deadline.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// Kill it and let the restart policy decide.
    #[error("{0}")]
    Hopeless(String),
    /// The same, and what it waits for in vain is an earlier step that passes its own gate: that one is restarted before it.
    #[error("{reason}")]
    Upstream { step: String, reason: String },
    /// A configuration the program will never accept. No restart.
    #[error("{0}")]
    Fatal(String),
    /// The identity guard looked again and said no: the process must not go on serving. No restart.
    #[error("{0}")]
    Refused(String),
}

/// What a component waits for, in the operator's words; overwritten as the wait goes on. Shown in status.
#[derive(Debug, Clone, Default)]
pub struct WaitNote(Arc<Mutex<String>>);

impl WaitNote {
    pub fn say(&self, what: impl Into<String>) {
        if let Ok(mut note) = self.0.lock() {
            *note = what.into();
        }
    }

    pub fn get(&self) -> String {
        self.0.lock().map(|note| note.clone()).unwrap_or_default()
    }
}

/// Whether a component has a TCP port to be discovered after the spawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listens {
    /// No TCP socket: a socket file, or nothing at all.
    No,
    /// Exactly one TCP port in the main process; found through its sockets.
    OneTcp,
    /// A port that was chosen beforehand. Nothing has to be found; that it is this process's own is verified.
    Fixed(SocketAddr),
}

/// One component's knowledge: how to make it startable, and when it truly serves.
#[async_trait]
pub trait Blueprint: Send + Sync + 'static {
    /// What it is started with, as far as every start has it. Looks at nothing and changes nothing: what an earlier daemon
    /// left running is compared with it.
    fn spec(&self, context: &Context) -> Result<ProcessSpec, PrepareError>;

    /// Everything that must be true before the process exists (files, databases, certificates), then [`Self::spec`] with
    /// what this start alone needs. Runs before every start; must be idempotent. Not dropped midway: a stop waits for it.
    async fn prepare(&self, context: &Context, note: &WaitNote) -> Result<ProcessSpec, PrepareError>;

    /// Whether to discover a port after the spawn.
    fn listens(&self) -> Listens;

    /// Whether lines of its log may stand in a failure report. Not those of a program that logs other people's values.
    fn quotes_log(&self) -> bool {
        true
    }

    /// Resolves when the component does its job (a login, not a health page). Waits for as long as it takes; the caller
    /// holds the deadline and drops the future. Cancel-safe: nothing is half-done when dropped.
    async fn ready(&self, running: &Running, note: &WaitNote) -> Result<(), GateError>;
}

/// The identity guard between a tenant's datastore and its Kubernetes (I1).
#[async_trait]
pub trait Guard: Send + Sync + 'static {
    /// `Refused` is final; a database that cannot be reached is `Retry`, never "absent".
    async fn check(&self, note: &WaitNote) -> Result<(), PrepareError>;

    /// Resolves when what the last passed check took hold of is held no more: somebody else may take it from then on, so it
    /// is to be checked again. Cancel-safe; not awaited while a check is under way.
    async fn lost(&self);
}

/// Why a process could not be born.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpawnError {
    /// The program is missing or not executable: no restart helps.
    #[error("{0}")]
    Fatal(String),
    /// The host was short of something (pids, memory, a busy text file).
    #[error("{0}")]
    Retry(String),
}

/// Births, deaths and signals, and what an earlier daemon left.
#[async_trait]
pub trait Processes: Send + Sync + 'static {
    /// The components of an earlier daemon whose own process lives.
    async fn survivors(&self) -> BTreeSet<ComponentId>;

    /// SIGKILL to one of them, before anybody has taken charge of it: [`Self::adopt`] finds it ending, and its exit is seen. One
    /// that is gone is not an error.
    async fn kill_survivor(&self, component: &ComponentId) -> Result<(), String>;

    /// Takes charge of what is left of `component`: its exits are seen from here on. What is left of a dead one is reaped.
    /// `None`: there is no record, or it has been taken already.
    async fn adopt(&self, component: &ComponentId) -> Result<Option<Survivor>, String>;

    /// Ends everything an earlier daemon left that nobody accounts for, also of a component whose own process is dead.
    /// Returns a line for each process that was ended; what cannot be is among the [`Self::strays`] until it ends at last.
    async fn reap_strays(&self, accounted: &Accounted) -> Result<Vec<String>, String>;

    /// What an operator asked for and does not get, one line each. Waits for nothing.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }

    /// The strays that still live. Waits for nothing.
    fn strays(&self) -> Vec<Stray>;

    /// Resolves when no stray of `component` is left (pidfd). Cancel-safe.
    async fn strays_ended(&self, component: &ComponentId);

    /// Writes down where a process listens, for the next daemon. Best effort: discovery can find it again.
    async fn record_address(&self, component: &ComponentId, identity: &Identity, address: SocketAddr);

    /// Records the intent durably, then starts the process. Not dropped midway by the tree.
    async fn spawn(&self, component: &ComponentId, spec: &ProcessSpec) -> Result<Spawned, SpawnError>;

    /// Resolves when the process has ended (pidfd). Cancel-safe; may be awaited again and answers at once then.
    async fn exited(&self, identity: &Identity) -> ExitStatus;

    /// Signals the main process, only after its identity was checked with the pidfd held. A process that is already
    /// gone is not an error.
    async fn signal(&self, identity: &Identity, signal: Signal) -> Result<(), String>;

    /// SIGKILL to everything that is left of the component: its cgroup or its group, descendants and token carriers.
    /// Resolves when nothing is left, and forgets the record. Idempotent.
    async fn reap(&self, component: &ComponentId, identity: &Identity) -> Result<(), String>;

    /// The last `lines` lines that the component wrote from `log_offset` on: the words of one life. Never fails: an
    /// unreadable log is an empty one.
    async fn log_tail(&self, log: &Path, log_offset: u64, lines: usize) -> Vec<String>;
}

/// Port discovery.
#[async_trait]
pub trait Listeners: Send + Sync + 'static {
    /// Resolves once the process has exactly one TCP port in LISTEN; more than one is an error that names them.
    /// Waits while there is none. Cancel-safe.
    async fn listening(&self, identity: &Identity) -> Result<SocketAddr, String>;
    /// Resolves once the process listens at `address`. Another process there, or a second port of this one, is an error that
    /// names it. Cancel-safe.
    async fn listening_at(&self, identity: &Identity, address: SocketAddr) -> Result<SocketAddr, String>;
}

/// What a drain did with the old slot's connections. Every number but the time counts connections, never requests: a front that
/// does not end TLS cannot see how many requests are in flight on one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainReport {
    /// Ended by the hold-back rule: answer and FIN in one segment.
    pub held: u64,
    /// Without any activity since the drain began; cut in silence.
    pub idle: u64,
    /// Ended by client or server themselves.
    pub self_closed: u64,
    /// Still busy at the limit; cut whatever their state.
    pub forced: u64,
    /// Those of the held, idle and forced ones whose client still said something after our FIN, other than goodbye. It went
    /// nowhere, so a request in it was never executed. One connection is one, however many requests it lost.
    ///
    /// Neither bound of what clients see fail. Too low: a request its client had not written yet, one the slot had taken and
    /// not begun to answer (other streams of HTTP/2), and whatever a forced cut broke. Too high: a client that repeats the
    /// request by itself, and an HTTP/2 client's window update or answer to a ping, which nothing tells from a request.
    pub raced: u64,
    pub took_ms: u64,
}

impl fmt::Display for DrainReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { held, idle, self_closed, forced, raced, took_ms } = self;
        write!(
            f,
            "{held} held, {idle} idle, {self_closed} self-closed, {forced} forced, {raced} raced in {took_ms} ms"
        )
    }
}

/// The layer-4 front.
#[async_trait]
pub trait Dataplane: Send + Sync + 'static {
    /// New connections go to this slot from the moment the call returns; `None` parks them.
    async fn retarget(&self, target: Option<(SlotName, SocketAddr)>);
    /// Ends the connections of `slot` by the hold-back rule, within `limit`.
    async fn drain(&self, slot: SlotName, limit: Duration) -> DrainReport;
    fn status(&self) -> crate::status::FrontStatus;
}

/// The leader lease kube-system/kcp-controllers in system:admin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub holder: String,
    pub uid: String,
    pub resource_version: String,
}

/// Something changed; look again.
pub type Changes = BoxStream<'static, ()>;

/// A write was not seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoPulse {
    /// It was carried out and can be read, and no watch has seen it.
    Silent,
    /// It could not be written, read or watched, in one line: says nothing about the watches.
    Unasked(String),
}

/// What a handover asks of the kcp API itself.
#[async_trait]
pub trait KcpApi: Send + Sync + 'static {
    /// The lease as seen through the slot at `through`; `None` when there is none.
    async fn lease(&self, through: SocketAddr) -> Result<Option<Lease>, String>;
    /// An item whenever the lease changes from now on, as the slot at `through` sees it; it ends with that slot's word. To be
    /// told is all it is good for: what the lease is now is asked for. `Err`: it must be looked at again and again.
    async fn lease_changes(&self, through: SocketAddr) -> Result<Changes, String>;
    /// Deletes exactly this lease (uid and resourceVersion preconditions). False: it was changed or replaced since it was seen,
    /// and is still there. One that is gone already counts as deleted.
    async fn delete_lease(&self, through: SocketAddr, lease: &Lease) -> Result<bool, String>;
    /// The identity a slot uses as leader, from its own log; `None` before it has tried.
    async fn leader_identity(&self, slot: SlotName) -> Result<Option<String>, String>;
    /// A write through `old` is seen by a watch on `new`. Cleans up after itself.
    async fn canary(&self, old: SocketAddr, new: SocketAddr) -> Result<(), String>;
    /// A small write through the slot at `address` is seen by a watch on the same slot within `deadline`: how long that took.
    /// Writes one object, always the same.
    async fn pulse(&self, address: SocketAddr, deadline: Duration) -> Result<Duration, NoPulse>;
    /// Copies the material that `slot` is to serve with into its root (K4), and has it run what `wish` asks for from its next
    /// start on. Checks it first and names a bad file. The other slot keeps what it has.
    async fn stage(&self, slot: SlotName, wish: &Wish) -> Result<(), String>;
    /// What `slot` was staged with is what both slots and every client share from now on. Idempotent: said again by each
    /// daemon that goes on with a handover, and for the old slot when one is taken back.
    async fn promote(&self, slot: SlotName) -> Result<(), String>;
    /// What runs in `slot`, or would if it were started now; its process is not known here.
    async fn side(&self, slot: SlotName) -> Side;
    /// What a handover to `slot` would stumble over. Changes nothing.
    async fn examine(&self, slot: SlotName, wish: &Wish) -> Findings;
}

/// What was found wrong before anything was done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// Each of these makes it fail.
    pub refusals: Vec<String>,
    pub warnings: Vec<String>,
}

/// The handover journal: one durable record, and the history of those that are over.
#[async_trait]
pub trait Journal: Send + Sync + 'static {
    /// Atomic and fsynced before it returns.
    async fn write(&self, record: &Record) -> Result<(), String>;
    async fn read(&self) -> Result<Option<Record>, String>;
    /// Adds a handover that is over to the history, once.
    async fn remember(&self, record: &Record) -> Result<(), String>;
    async fn history(&self) -> Result<History, String>;
    /// The wall clock, RFC 3339: to be shown, never decided by.
    fn now(&self) -> String;
}

/// Handovers that are over, the latest last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    pub records: Vec<Record>,
    /// Lines that are no records, each with its place.
    pub unreadable: Vec<String>,
}

/// Turns desired state into chains. The tree asks; the adapters know the components.
#[async_trait]
pub trait Estate: Send + Sync + 'static {
    /// The kcp store's own postgres.
    fn store(&self) -> Result<Vec<Step>, String>;
    fn slot(&self, slot: SlotName) -> Result<Vec<Step>, String>;
    fn tenant(&self, name: &str) -> Result<Vec<Step>, String>;
    /// A record for a new tenant, not written yet. The error says what is wrong with the name.
    fn new_tenant(&self, name: &str) -> Result<TenantRecord, String>;
    /// Tenants that should exist, from their durable records, with whether they should run.
    async fn tenants(&self) -> Result<Recorded, String>;
    /// Writes a tenant's durable record (create, start, stop, delete). Calls take effect in their order.
    async fn put_tenant(&self, record: &TenantRecord) -> Result<(), String>;
    /// Makes the data in `staging`, verified, those of a tenant that is not there yet, and its record durable with them.
    /// Killed midway, either the tenant is there or the next daemon removes what there is of it.
    async fn place_restored(&self, record: &TenantRecord, staging: &Path) -> Result<(), String>;
    /// What adopting the tenant's data would change. Its postgres runs, its Kubernetes does not.
    async fn plan_adoption(&self, name: &str) -> Result<AdoptionPlan, AdoptionError>;
    /// Makes the tenant's data its own, as agreed. Dropped or killed midway, it has happened or not: the guard's next check
    /// finishes it.
    async fn adopt_data(&self, name: &str, consent: &Consent) -> Result<(), AdoptionError>;
    /// Removes everything of a stopped tenant: files, sockets, port leases, its record.
    async fn erase_tenant(&self, name: &str) -> Result<(), String>;
}

/// What the durable records say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recorded {
    pub tenants: Vec<TenantRecord>,
    /// Tenants whose record cannot be read, and why: nothing of them is touched, and nobody else waits for them.
    pub unreadable: BTreeMap<String, String>,
}

impl Recorded {
    /// Every tenant there is a record of, readable or not.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let unreadable = self.unreadable.keys().map(String::as_str);
        self.tenants.iter().map(|tenant| tenant.name.as_str()).chain(unreadable)
    }
}

/// The Kubernetes a tenant runs. Chosen when it is made, for life: its data belong to the one that wrote them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Distribution {
    /// kube-apiserver and kube-controller-manager. Every record without the field is one of these.
    #[default]
    Kubernetes,
    K3s,
}

impl Distribution {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Kubernetes => "kubernetes",
            Self::K3s => "k3s",
        })
    }
}

/// Desired state of one tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantRecord {
    pub name: String,
    /// Unique for the life of the cluster; the identity guard compares it.
    pub uid: String,
    #[serde(default, skip_serializing_if = "Distribution::is_default")]
    pub distribution: Distribution,
    pub run: bool,
    /// It is to be deleted, and must never run again: some of its files may be gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub erase: bool,
    /// Since when it is held down although it should run: RFC 3339. To be shown, never decided by. A Berth that does not know
    /// pauses refuses such a record, and so starts nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
}

impl TenantRecord {
    /// Whether its processes should live.
    pub fn should_run(&self) -> bool {
        self.run && self.paused.is_none() && !self.erase
    }
}
