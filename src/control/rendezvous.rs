//! How the command line finds a daemon whose run directory was configured: its state directory names it.
//!
//! The daemon calls [`publish`] once it holds the state directory's lock; the command line calls [`find`].

use crate::files::{FileError, read_optional, write_atomic};
use crate::layout::Layout;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

fn note(state: &Path) -> PathBuf {
    state.join("run-dir")
}

/// Writes the daemon's run directory into its state directory. Blocking.
pub fn publish(layout: &Layout) -> Result<(), FileError> {
    write_atomic(&note(layout.state()), layout.run().as_os_str().as_bytes(), None)
}

/// The layout of the daemon on `state`: with the run directory that was named, else the one it published, else the one it
/// would derive. A note that cannot be read is none: connecting will say what is wrong. Blocking.
pub fn find(state: PathBuf, run: Option<PathBuf>) -> Layout {
    let published = || {
        let bytes = read_optional(&note(&state)).ok().flatten()?;
        Some(PathBuf::from(OsString::from_vec(bytes))).filter(|path| path.is_absolute())
    };
    let run = run.or_else(published);
    Layout::new(state, run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_run_directory_is_found_and_a_named_one_wins() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().to_owned();
        let derived = Layout::new(state.clone(), None);
        assert_eq!(find(state.clone(), None).run(), derived.run());
        publish(&Layout::new(state.clone(), Some("/run/x".into()))).unwrap();
        assert_eq!(find(state.clone(), None).run(), Path::new("/run/x"));
        assert_eq!(find(state, Some("/run/y".into())).run(), Path::new("/run/y"));
    }
}
