//! What only the host knows: the memory of components, and the daemon as a process. Read when somebody asks, off the arbiter.

use super::figures::chains;
use crate::front::Descriptors;
use crate::process::{Held, held_by};
use berth_actors::status::TreeStatus;
use procfs::process::Process;
use std::collections::HashMap;
use std::time::Duration;

#[derive(Debug, Default)]
pub(super) struct Host {
    /// By the pid of a component's main process.
    pub(super) held: HashMap<u32, Held>,
    /// `None` where `/proc` does not tell.
    pub(super) own: Option<Own>,
}

/// The daemon itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Own {
    pub(super) resident: u64,
    pub(super) cpu: Duration,
    /// Since 1970.
    pub(super) started: Duration,
    pub(super) open_files: u64,
    pub(super) most_files: u64,
    pub(super) threads: u64,
}

impl Host {
    /// Blocking.
    pub(super) fn look(status: &TreeStatus) -> Self {
        let mains: Vec<u32> =
            chains(status).flat_map(|chain| &chain.children).filter_map(|child| child.pid).collect();
        Self { held: held_by(&mains), own: Own::look() }
    }
}

impl Own {
    fn look() -> Option<Self> {
        let process = Process::myself().ok()?;
        let stat = process.stat().ok()?;
        let ticks = |ticks: u64| Duration::from_millis(ticks * 1000 / procfs::ticks_per_second().max(1));
        Some(Self {
            resident: stat.rss * procfs::page_size(),
            cpu: ticks(stat.utime + stat.stime),
            started: Duration::from_secs(procfs::boot_time_secs().ok()?) + ticks(stat.starttime),
            open_files: process.fd_count().ok()? as u64,
            most_files: Descriptors::of_this_process().limit,
            threads: u64::try_from(stat.num_threads).unwrap_or_default(),
        })
    }
}
