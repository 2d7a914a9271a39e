//! Files that are written before every start, and touched only when they differ: each write costs two syncs of the disk.

use crate::files::{self, FileError};
use berth_actors::spec::User;
use std::path::Path;

/// `path` holds `bytes` afterwards. Blocking.
pub(super) fn keep(path: &Path, bytes: &[u8], owner: Option<User>) -> Result<(), FileError> {
    if files::read_optional(path)?.as_deref() == Some(bytes) {
        return Ok(());
    }
    files::write_atomic(path, bytes, owner)
}
