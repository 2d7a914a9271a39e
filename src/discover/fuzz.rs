//! The kernel's answer to "who listens?", under any bytes.

use super::diag;

pub fn sock_diag(bytes: &[u8]) {
    let mut found = Vec::new();
    let read = diag::read(bytes, &mut found);
    // The smallest message that tells a socket has 88 bytes; more sockets than that were made up.
    assert!(found.len() <= bytes.len() / 64, "{} sockets in {} bytes: {read:?}", found.len(), bytes.len());
}
