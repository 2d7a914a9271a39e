//! The daemon seen from outside: its memory and its open files.

use super::{LOOK, PATIENCE};
use berth_actors::status::{FrontStatus, Refused};
use procfs::process::Process;

pub struct Watch {
    process: Process,
    memory: u64,
    files: usize,
}

impl Watch {
    pub fn of(pid: u32) -> Self {
        Self { process: Process::new(pid.cast_signed()).unwrap(), memory: 0, files: 0 }
    }

    /// What is now is the level to come back to.
    pub fn begin(&mut self) {
        (self.memory, self.files) = (self.memory_at_most(), self.files());
    }

    fn files(&self) -> usize {
        self.process.fd_count().unwrap()
    }

    /// Bytes; the kernel keeps the highest.
    fn memory_at_most(&self) -> u64 {
        self.process.status().unwrap().vmhwm.unwrap() * 1024
    }

    /// Bytes since [`Self::begin`], at the highest.
    pub fn growth(&self) -> u64 {
        self.memory_at_most() - self.memory
    }

    /// Resolves once no more files are open than at the beginning.
    pub async fn settled(&self) {
        let wait = async {
            while self.files() > self.files {
                tokio::time::sleep(LOOK).await;
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, wait).await;
        assert!(in_time.is_ok(), "{} files are open, {} were before the flood", self.files(), self.files);
    }

    pub fn say(&self, when: &str, front: &FrontStatus) {
        let resident = self.process.status().unwrap().vmrss.unwrap() / 1024;
        let Refused { peer_cap, total_cap, parked_cap, parked_too_long, descriptors } = front.refused_by;
        println!(
            "{when}: {} connections, {} parked; {resident} MiB, {} open files; refused {peer_cap} of one address, {total_cap} in \
             all, {parked_cap} parked, {parked_too_long} parked too long, {descriptors} for files",
            front.open,
            front.parked,
            self.files()
        );
    }
}
