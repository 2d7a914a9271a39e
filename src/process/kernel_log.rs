//! Whom the kernel killed for want of memory, by its own log: it says so where no cgroup counts it, and of a host that ran out as
//! a whole.
//!
//! [`super::life`] asks when a process was killed and nobody here had asked for it. Only what is logged from the daemon's start on is
//! read, and each line once. Whoever may not read the log, or has pids of its own (a container), learns nothing from it.

use rustix::fs::{Mode, OFlags, SeekFrom};
use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, OnceLock, PoisonError};

/// More than are killed between two looks; a number each.
const REMEMBERED: usize = 256;
/// The longest record the kernel hands out.
const RECORD: usize = 8192;
/// The inode of the first pid namespace, whose numbers the log has (linux/proc_ns.h).
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

static LOG: OnceLock<Option<Mutex<KernelLog<File>>>> = OnceLock::new();

/// From now on the log is followed. Once, at the daemon's start.
pub(super) fn follow() {
    LOG.get_or_init(|| open().map(Mutex::new));
}

/// Whether the kernel says that it killed this process to get memory back. A few reads from memory.
pub(super) fn blames(pid: u32) -> bool {
    let Some(Some(log)) = LOG.get() else { return false };
    log.lock().unwrap_or_else(PoisonError::into_inner).blames(pid)
}

fn open() -> Option<KernelLog<File>> {
    if std::fs::metadata("/proc/self/ns/pid").ok()?.ino() != FIRST_PID_NAMESPACE {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open("/dev/kmsg", flags, Mode::empty()).ok()?;
    rustix::fs::seek(&file, SeekFrom::End(0)).ok()?;
    Some(KernelLog { file: file.into(), killed: VecDeque::new() })
}

#[derive(Debug)]
struct KernelLog<F> {
    file: F,
    /// The latest first.
    killed: VecDeque<u32>,
}

impl<F: Read> KernelLog<F> {
    fn blames(&mut self, pid: u32) -> bool {
        let mut record = [0; RECORD];
        loop {
            match self.file.read(&mut record) {
                Ok(0) => break,
                Ok(length) => {
                    if let Some(victim) = victim(&String::from_utf8_lossy(&record[..length])) {
                        self.killed.truncate(REMEMBERED - 1);
                        self.killed.push_front(victim);
                    }
                }
                // Overtaken by newer records; the next read goes on with the oldest there is.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
                Err(_) => break,
            }
        }
        // A pid is blamed once: its next owner did nothing.
        let place = self.killed.iter().position(|killed| *killed == pid);
        place.is_some_and(|place| self.killed.remove(place).is_some())
    }
}

/// Whom a record says was killed: `level,number,time,flags;text`. What a program wrote into the log says nothing.
fn victim(record: &str) -> Option<u32> {
    let (head, text) = record.split_once(';')?;
    let level: u32 = head.split(',').next()?.parse().ok()?;
    let is_the_kernels = level < 8;
    let text = ["Out of memory", "Memory cgroup out of memory", "Out of memory (oom_kill_allocating_task)"]
        .into_iter()
        .find_map(|cause| text.strip_prefix(cause)?.strip_prefix(": Killed process "))?;
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    text[..digits].parse().ok().filter(|_| is_the_kernels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    /// As the kernel hands them out: one record each read.
    struct Records(VecDeque<Result<&'static str, i32>>);

    impl Read for Records {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            match self.0.pop_front() {
                None => Err(io::ErrorKind::WouldBlock.into()),
                Some(Err(errno)) => Err(io::Error::from_raw_os_error(errno)),
                Some(Ok(record)) => {
                    into[..record.len()].copy_from_slice(record.as_bytes());
                    Ok(record.len())
                }
            }
        }
    }

    const HOST: &str = "3,841,68731002,-;Out of memory: Killed process 4711 (postgres) total-vm:209715kB, anon-rss:1kB, UID:65534\n";
    const CGROUP: &str =
        "3,842,68731002,-;Memory cgroup out of memory: Killed process 4712 (kube-apiserver) total-vm:1kB\n";

    #[test]
    fn a_victim_is_named_by_the_kernel_and_by_nobody_else() {
        assert_eq!(victim(HOST), Some(4711));
        assert_eq!(victim(CGROUP), Some(4712));
        for other in [
            "12,842,1,-;Out of memory: Killed process 1 (written by a program)\n",
            "6,842,1,-;oom_reaper: reaped process 4711 (postgres), now anon-rss:0kB\n",
            "3,842,1,-;Out of memory: Killed process x (postgres)\n",
            "3,842,1,-;tty: Out of memory: Killed process 1 (a)\n",
            "Out of memory: Killed process 1 (a)",
            "",
        ] {
            assert_eq!(victim(other), None, "{other}");
        }
    }

    #[test]
    fn a_process_is_blamed_once_and_lost_records_end_nothing() {
        let records = [Ok(HOST), Err(libc::EPIPE), Ok("6,1,1,-;eth0: up\n"), Ok(CGROUP)];
        let mut log = KernelLog { file: Records(records.into()), killed: VecDeque::new() };
        assert!(log.blames(4712) && log.blames(4711));
        assert!(!log.blames(4711) && !log.blames(1));
        for _ in 0..2 * REMEMBERED {
            log.file.0.push_back(Ok(HOST));
        }
        assert!(log.blames(4711));
        assert!(log.killed.len() < REMEMBERED);
    }
}
