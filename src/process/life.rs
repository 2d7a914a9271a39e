//! One watched process, child or adopted: its pidfd, its exit status, its signals.
//!
//! The host keeps one per live component. A dead child stays a zombie until it is reaped: while it does, neither its pid
//! nor its process group can come to mean another process.

use super::cgroup::Cgroup;
use super::{children, identity, kernel_log, post_mortem, raw};
use crate::process::ledger::Record;
use berth_actors::host::ExitStatus;
use berth_actors::identity::Identity;
use berth_actors::spec::Signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, OnceLock, PoisonError};
use tokio::io::unix::AsyncFd;

#[derive(Debug)]
pub(super) struct Life {
    pub(super) identity: Identity,
    /// `None` for a process that was found by its identity alone.
    pub(super) record: Option<Record>,
    /// Where it listens, if that became known after the record was made.
    pub(super) address: OnceLock<SocketAddr>,
    pidfd: AsyncFd<OwnedFd>,
    end: Mutex<End>,
}

#[derive(Debug, Clone, Copy)]
enum End {
    NotYet,
    /// Dead; a child is still a zombie.
    Died(ExitStatus),
    /// Dead, waited for, and nothing of it is left.
    Reaped(ExitStatus),
}

impl Life {
    /// Watches the process behind `pidfd`. Needs the runtime that will await [`Self::exited`].
    pub(super) fn new(identity: Identity, record: Option<Record>, pidfd: OwnedFd) -> io::Result<Self> {
        let pidfd = raw::watch(pidfd)?;
        Ok(Self { identity, record, address: OnceLock::new(), pidfd, end: Mutex::new(End::NotYet) })
    }

    /// Takes charge of a process that someone else started; `None` when it is gone.
    pub(super) fn adopt(identity: &Identity, record: Option<Record>) -> io::Result<Option<Self>> {
        let Some(pidfd) = identity::open(identity)? else { return Ok(None) };
        children::know(identity.pid);
        Self::new(identity.clone(), record, pidfd).map(Some)
    }

    /// Cancel-safe, and any number may wait: the status is kept, not consumed.
    pub(super) async fn exited(&self) -> ExitStatus {
        loop {
            if let Some(status) = self.status() {
                return status;
            }
            match self.pidfd.readable().await {
                // Clears nothing that became ready since: tokio compares the event's tick.
                Ok(mut ready) if self.status().is_none() => ready.clear_ready(),
                Ok(_) => {}
                // The runtime is shutting down; nobody will read the answer.
                Err(_) => return ExitStatus::Unknown,
            }
        }
    }

    /// How it ended, if it has.
    pub(super) fn status(&self) -> Option<ExitStatus> {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        if let End::Died(status) | End::Reaped(status) = *end {
            return Some(status);
        }
        let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = match exit_status(self.pidfd.get_ref(), peek)? {
            ExitStatus::Unknown => post_mortem::status(self.pidfd.get_ref(), &self.identity),
            known => known,
        };
        // Only where the memory controller is enabled is there such a count.
        let cgroup = self.record.as_ref().and_then(|record| record.cgroup.clone()).map(Cgroup::at);
        let counted = || cgroup.as_ref().is_some_and(Cgroup::has_run_out_of_memory);
        let status = judged(status, counted, || kernel_log::blames(self.identity.pid));
        *end = End::Died(status);
        Some(status)
    }

    /// Lets the kernel forget a dead child. Nothing may be left of the component: its pid can be reused from here on.
    /// False when it was buried before.
    pub(super) fn bury(&self) -> bool {
        let forget = |pid, wait: &dyn Fn()| {
            children::forget(pid, wait);
            Some(())
        };
        self.bury_by(forget).unwrap_or(false)
    }

    /// The same, but never waits: `None` when that was not possible at once.
    pub(super) fn try_bury(&self) -> Option<bool> {
        self.bury_by(|pid, wait| children::try_forget(pid, wait))
    }

    fn bury_by(&self, forget: impl FnOnce(u32, &dyn Fn()) -> Option<()>) -> Option<bool> {
        let Some(status) = self.status() else { return Some(false) };
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*end, End::Died(_)) {
            return Some(false);
        }
        forget(self.identity.pid, &|| {
            exit_status(self.pidfd.get_ref(), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        })?;
        *end = End::Reaped(status);
        Some(true)
    }

    /// Nobody here waits for its end: should it be a child, its zombie is collected like any orphan's.
    pub(super) fn let_go(&self) {
        children::forget(self.identity.pid, || ());
    }

    pub(super) fn is_buried(&self) -> bool {
        matches!(*self.end.lock().unwrap_or_else(PoisonError::into_inner), End::Reaped(_))
    }

    /// The pidfd was checked against the identity when it was opened; it can never mean another process.
    pub(super) fn signal(&self, signal: Signal) -> io::Result<()> {
        let signal = match signal {
            Signal::Int => rustix::process::Signal::INT,
            Signal::Term => rustix::process::Signal::TERM,
            Signal::Kill => rustix::process::Signal::KILL,
        };
        match pidfd_send_signal(self.pidfd.get_ref(), signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// A process may also end by itself because the kernel took another one of its cgroup: postgres, with a backend gone.
fn judged(status: ExitStatus, counted: impl Fn() -> bool, logged: impl Fn() -> bool) -> ExitStatus {
    match status {
        ExitStatus::Signal(9) if counted() || logged() => ExitStatus::OutOfMemory,
        ExitStatus::Code(code) if code != 0 && counted() => ExitStatus::OutOfMemory,
        status => status,
    }
}

/// The status behind a pidfd, or `None` while it runs. Only a parent is told more than that it ended.
pub(super) fn exit_status(pidfd: &OwnedFd, options: WaitIdOptions) -> Option<ExitStatus> {
    match waitid(WaitId::PidFd(pidfd.as_fd()), options) {
        Ok(None) => None,
        Ok(Some(status)) => Some(
            status
                .exit_status()
                .map(ExitStatus::Code)
                .or_else(|| status.terminating_signal().map(ExitStatus::Signal))
                .unwrap_or(ExitStatus::Unknown),
        ),
        Err(_) => ended_within(pidfd, Timespec::default()).then_some(ExitStatus::Unknown),
    }
}

/// Whether the process ends within `patience`. Blocking for as long.
pub(super) fn ended_within(pidfd: &OwnedFd, patience: Timespec) -> bool {
    ended_before(pidfd, patience, None)
}

/// The same, but gives up as soon as the other end of the pipe `given_up` is closed.
pub(super) fn ended_before(pidfd: &OwnedFd, patience: Timespec, given_up: Option<&OwnedFd>) -> bool {
    let mut fds = vec![PollFd::new(pidfd, PollFlags::IN)];
    fds.extend(given_up.map(|pipe| PollFd::new(pipe, PollFlags::empty())));
    loop {
        match poll(&mut fds, Some(&patience)) {
            Err(Errno::INTR) => {}
            Ok(_) => return !fds[0].revents().is_empty(),
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_blamed_for_a_kill_that_is_counted_or_logged_and_for_a_failure_that_is_counted() {
        let [kill, failure, clean, told] =
            [ExitStatus::Signal(9), ExitStatus::Code(1), ExitStatus::Code(0), ExitStatus::Signal(15)];
        let judge = |status, counted, logged| judged(status, || counted, || logged);
        for (counted, logged) in [(true, false), (false, true)] {
            assert_eq!(judge(kill, counted, logged), ExitStatus::OutOfMemory);
        }
        assert_eq!(judge(kill, false, false), kill);
        assert_eq!(judge(failure, true, false), ExitStatus::OutOfMemory);
        assert_eq!(judge(failure, false, true), failure, "a kill of this pid was another life's");
        assert_eq!((judge(clean, true, true), judge(told, true, true)), (clean, told));
    }
}
