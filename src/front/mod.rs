//! The layer-4 front: one address for every client of kcp, retargeted between the two slots. The daemon binds it, the
//! handover retargets it and drains the slot that goes. TLS is never terminated here, and no byte is ever changed.
//!
//! ```text
//! worker ──▶ accept ──▶ dial ──▶ sessions ──▶ relay ◀── order ── slots ◀── Front::drain
//!   │ epoll    place      └ lobby ──▶ inbox ▲   │ flow x 2 over wire       counts, report
//!   │ alarms   peers        target (dial, park) └ tls, hello ─▶ hold (pure step), pace
//!   └ inbox    refusals             ▲ watch: Target
//!       ▲ crew                Front::retarget
//! ```
//! Each worker is a thread with an epoll of its own. The lobby is a runtime for the few that must wait. Neither is the actors':
//! traffic never slows their arbiter, and a slow arbiter slows no traffic.

mod accept;
mod alarms;
mod config;
mod crew;
mod descriptors;
mod dial;
mod error;
mod flow;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod hello;
mod hold;
mod inbox;
mod lobby;
mod pace;
mod peers;
mod refusals;
mod relay;
mod sessions;
mod shared;
mod slots;
mod target;
mod tls;
mod wire;
mod worker;

#[cfg(test)]
mod tests;

pub use config::{DrainConfig, FrontConfig, Keepalive};
pub use descriptors::{Descriptors, Misfit};
pub use error::FrontError;

use async_trait::async_trait;
use berth_actors::host::{Dataplane, DrainReport};
use berth_actors::identity::SlotName;
use berth_actors::status::FrontStatus;
use crew::Crew;
use shared::Shared;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::broadcast;
use worker::Worker;

/// The running front; clones are the same one. When the last is dropped it is closed.
#[derive(Debug, Clone)]
pub struct Front {
    engine: Arc<Engine>,
}

#[derive(Debug)]
struct Engine {
    address: SocketAddr,
    shared: Arc<Shared>,
    crew: Arc<Crew>,
    handle: Handle,
    /// `None` once closed.
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    lobby: Runtime,
    /// A second handle on the listening socket, for whoever inherits it.
    listener: TcpListener,
}

impl Front {
    /// Listens on `addr`. Clients are parked until the first [`Dataplane::retarget`].
    pub fn bind(addr: SocketAddr, config: FrontConfig) -> Result<Self, FrontError> {
        let listener = TcpListener::bind(addr).map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => FrontError::Taken { addr, holder: None },
            _ => FrontError::Bind { addr, source },
        })?;
        Self::from_listener(listener, config)
    }

    /// Serves a socket that already listens: inherited from systemd or from the daemon before this one.
    pub fn from_listener(listener: TcpListener, config: FrontConfig) -> Result<Self, FrontError> {
        let address = prepare(&listener, &config).map_err(|source| FrontError::Listener { source })?;
        let lobby = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("front-lobby")
            .enable_all()
            .build()
            .map_err(|source| FrontError::Threads { source })?;
        let (shared, handle) = (Shared::new(config), lobby.handle().clone());
        let crew = Crew::new(Arc::clone(&shared), handle.clone());
        let crew = crew.map_err(|source| FrontError::Threads { source })?;
        let engine = Engine { address, shared, crew, handle, running: Mutex::new(None) };
        for number in engine.crew.workers() {
            let own = listener.try_clone().map_err(|source| FrontError::Listener { source })?;
            start(Worker::new(number, Arc::clone(&engine.crew), own), number)
                .map_err(|source| FrontError::Threads { source })?;
        }
        *engine.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(Running { lobby, listener });
        Ok(Self { engine: Arc::new(engine) })
    }

    /// The address it listens on, with the real port where 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.engine.address
    }

    /// The listening socket for a successor, which may accept from it beside this front; `None` once closed.
    pub fn listener(&self) -> io::Result<Option<TcpListener>> {
        let running = self.engine.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.as_ref().map(|running| running.listener.try_clone()).transpose()
    }

    /// One line for each bout of refusals, as `berth events` shows them.
    pub fn refusals(&self) -> broadcast::Receiver<String> {
        self.engine.shared.refusals.lines()
    }

    /// Accepts nobody any more and ends every connection by the hold-back rule, within `limit`. Whoever connects from now on
    /// waits in the socket's queue for [`Self::listener`]'s next owner.
    pub async fn leave(&self, limit: Duration) -> [DrainReport; 2] {
        self.engine.crew.leave().await;
        tokio::join!(self.drain(SlotName::A, limit), self.drain(SlotName::B, limit)).into()
    }

    /// Stops accepting, cuts what is open and ends the threads. Returns at once; drain first to lose no request.
    pub fn close(&self) {
        self.engine.close();
    }
}

impl Engine {
    fn close(&self) {
        self.crew.close();
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Not a plain drop: that waits for the threads, and panics where waiting is forbidden.
        if let Some(Running { lobby, .. }) = running {
            lobby.shutdown_background();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close();
    }
}

#[async_trait]
impl Dataplane for Front {
    async fn retarget(&self, target: Option<(SlotName, SocketAddr)>) {
        crate::fault::point("front-retargeting");
        self.engine.shared.retarget(target);
        crate::fault::point("front-retargeted");
    }

    /// Retarget first: a connection that joins the slot later is not drained. The last cut is made at `limit`, and the report
    /// follows up to a linger later, when late bytes are counted.
    async fn drain(&self, slot: SlotName, limit: Duration) -> DrainReport {
        let shared = &self.engine.shared;
        let (slot, config) = (Arc::clone(shared.slot(slot)), Arc::clone(&shared.config));
        slot.order_drain(limit, config.drain.pace);
        self.engine.crew.look_for_orders();
        // On the front's own runtime, whose clock the connections go by. A caller that gives up changes nothing.
        let drained = async move { slot.drained(limit + 2 * config.linger).await };
        self.engine.handle.spawn(drained).await.unwrap_or_default()
    }

    fn status(&self) -> FrontStatus {
        self.engine.shared.status(self.engine.address)
    }
}

fn start(worker: io::Result<Worker>, number: usize) -> io::Result<()> {
    let worker = worker?;
    thread::Builder::new().name(format!("front-{number}")).spawn(move || worker.run())?;
    Ok(())
}

fn prepare(listener: &TcpListener, config: &FrontConfig) -> io::Result<SocketAddr> {
    listener.set_nonblocking(true)?;
    // A second listen(2) only sets the length of the queue.
    rustix::net::listen(listener, i32::try_from(config.backlog).unwrap_or(i32::MAX))?;
    listener.local_addr()
}
