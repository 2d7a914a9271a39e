//! What other threads ask of a worker. It sleeps in epoll, so an errand rings its bell, an eventfd.

use super::accept::Place;
use super::slots::Member;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use tokio::sync::oneshot;

/// A client and a server for it, neither registered anywhere.
#[derive(Debug)]
pub(super) struct Joined {
    pub client: OwnedFd,
    pub server: OwnedFd,
    /// What the client sent while it waited for the server.
    pub early: Vec<u8>,
    pub member: Member,
    pub place: Place,
}

#[derive(Debug)]
pub(super) enum Errand {
    Relay(Box<Joined>),
    /// A place is free again.
    Accept,
    /// No place was free for as long as a client may wait.
    TurnAway,
    /// For good; told when nobody is accepted any more.
    Leave(oneshot::Sender<()>),
    /// A slot was ordered to drain.
    LookForOrders,
    Close,
}

#[derive(Debug)]
pub(super) struct Inbox {
    /// `None` once its worker is gone: whatever is sent then is dropped, and with it closed.
    errands: Mutex<Option<Vec<Errand>>>,
    bell: OwnedFd,
    /// Connections its worker has or was given.
    load: AtomicUsize,
}

impl Inbox {
    pub(super) fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { errands: Mutex::new(Some(Vec::new())), bell, load: AtomicUsize::new(0) })
    }

    pub(super) fn send(&self, errand: Errand) {
        if let Some(errands) = &mut *self.errands.lock().unwrap_or_else(PoisonError::into_inner) {
            errands.push(errand);
        }
        // It fails only where 2^64 - 2 rings are unanswered.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Everything that was sent.
    pub(super) fn take(&self) -> Vec<Errand> {
        // First the bell: an errand sent from now on rings again.
        let _ = rustix::io::read(&self.bell, &mut [0_u8; 8][..]);
        let mut errands = self.errands.lock().unwrap_or_else(PoisonError::into_inner);
        errands.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(super) fn close(&self) {
        let left = self.errands.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(left);
    }

    pub(super) fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    /// One connection more, counted when it is given: many can be under way to one worker.
    pub(super) fn add_load(&self) {
        self.load.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end_load(&self) {
        self.load.fetch_sub(1, Ordering::Relaxed);
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
