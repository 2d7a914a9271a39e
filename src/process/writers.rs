//! Whether anybody still has a program's file open for writing: execve refuses it until nobody has (ETXTBSY).
//!
//! Closing it is not enough. A child that was born by another thread while the file was open has a copy of the descriptor
//! until its own exec, a moment later. The asset store calls this before it publishes a program; nothing here writes.

use super::raw;
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// From a fork to its exec. A host that swaps may take a second; what takes longer is somebody who writes.
const PATIENCE: Duration = Duration::from_secs(10);
/// Nothing tells of the last writer's end.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// Returns once nobody has `program` open for writing. A file system without leases cannot tell: then a start that meets
/// ETXTBSY is tried again. Blocking.
pub(crate) fn wait_for_none(program: &Path) -> io::Result<()> {
    wait(program, PATIENCE)
}

fn wait(program: &Path, patience: Duration) -> io::Result<()> {
    let file = crate::files::trusted::open(program)?;
    let began = Instant::now();
    loop {
        match raw::lease_for_reading(file.as_fd()) {
            Err(Errno::AGAIN) if began.elapsed() < patience => std::thread::park_timeout(BETWEEN_LOOKS),
            Err(Errno::AGAIN) => return Err(Errno::TXTBSY.into()),
            Ok(()) | Err(_) => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};

    #[test]
    fn a_program_is_not_taken_for_whole_while_somebody_could_write_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        let writer = File::create_new(&program).unwrap();
        let reader = crate::files::trusted::open(&program).unwrap();
        if raw::lease_for_reading(reader.as_fd()) != Err(Errno::AGAIN) {
            crate::testing::not_exercised(
                "a program that is open for writing: this file system has no leases",
            );
            return;
        }
        let busy = wait(&program, Duration::from_millis(5)).unwrap_err();
        assert_eq!(busy.kind(), io::ErrorKind::ExecutableFileBusy);
        let inherited = OpenOptions::new().append(true).open(&program).unwrap();
        drop(writer);
        assert!(wait(&program, Duration::ZERO).is_err());

        let waiting = std::thread::spawn(move || wait(&program, PATIENCE));
        drop(inherited);
        waiting.join().unwrap().unwrap();
    }
}
