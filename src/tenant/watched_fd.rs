//! File descriptors the runtime waits for: an inotify instance, a pidfd.

use std::io;
use std::os::fd::OwnedFd;
use tokio::io::unix::AsyncFd;

/// Must be called on the runtime; `fd` must be non-blocking.
#[expect(
    deprecated,
    reason = "its replacement is unsafe for types that may swap or close their fd; an OwnedFd does not"
)]
pub(super) fn watched(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(fd)
}
