//! This very program, kept in the store: the cloud controller manager and the kcp stand-in are it under another `argv[0]`.
//!
//! They must outlive an upgrade or a rebuild of the file the daemon was started from, so they run from a copy. And they must not be
//! taken for started differently after it, so they run it by a name that stays: they become the new program at their next start.

use super::catalogue;
use super::hashed::hash_to;
use super::record::{Recipe, at, mtime_ns, set_mode};
use super::store::{Store, StoreError};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// `argv[0]` of the stand-in for kcp.
pub const KCP_STAND_IN: &str = "kcp-stand-in";
/// `argv[0]` of the cloud controller manager.
pub const CLOUD_CONTROLLER_MANAGER: &str = "socialweb-cloud-controller-manager";

/// The running program, even when its file was replaced since it started.
pub(super) const RUNNING: &str = "/proc/self/exe";

const COMPONENT: &str = "berth";

/// The lasting name of the copy of `program` in the store, which is made where it is missing; copies of earlier programs go.
/// Blocking.
pub(super) fn keep(store: &Store, program: &Path) -> Result<PathBuf, StoreError> {
    let mut source = crate::files::trusted::open(program).map_err(at("open", program))?;
    let meta = source.metadata().map_err(at("examine", program))?;
    // Reading it all for its digest costs more than the rest of a second start: inode, size and time name it as well.
    let stamp =
        [meta.dev().to_string(), meta.ino().to_string(), meta.len().to_string(), mtime_ns(&meta).to_string()];
    let key = catalogue::key(&[COMPONENT, &stamp.join(" ")]);
    if let Ok(dir) = store.find(&key) {
        return store.name(COMPONENT, &dir.join(COMPONENT));
    }
    let mut staged = store.stage()?;
    let copy = staged.tree.join(COMPONENT);
    let mut target = File::create_new(&copy).map_err(at("create", &copy)).map_err(StoreError::of)?;
    let sha256 = hash_to(&mut source, &mut target, |_| ())
        .map_err(|error| error.place(&copy, |error| StoreError::of(at("read", program)(error))))?;
    staged.hashed.insert(COMPONENT.into(), sha256);
    drop(target);
    set_mode(&copy, 0o755)?;
    let recipe = Recipe {
        component: COMPONENT.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        key,
        made_by: "a copy of the running program".into(),
    };
    let dir = store.install(&staged, recipe, None)?;
    let name = store.name(COMPONENT, &dir.join(COMPONENT))?;
    for earlier in
        store.records().filter(|record| record.component == COMPONENT && store.path(&record.digest) != dir)
    {
        store.remove(earlier)?;
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files;

    #[test]
    fn a_rebuilt_program_replaces_the_copy_of_the_one_before_under_its_name() {
        let root = tempfile::tempdir().unwrap();
        let program = root.path().join("program");
        let kept = |text: &[u8]| {
            files::write_atomic(&program, text, None).unwrap();
            let store = Store::open(&root.path().join("assets")).unwrap();
            let first = keep(&store, &program).unwrap();
            drop(store);
            let store = Store::open(&root.path().join("assets")).unwrap();
            assert_eq!(keep(&store, &program).unwrap(), first);
            assert_eq!(std::fs::read(&first).unwrap(), text);
            (first.clone(), first.canonicalize().unwrap())
        };
        let (name, one) = kept(b"one");
        let (later_name, two) = kept(b"two");
        assert_eq!(later_name, name);
        assert!(!one.exists() && two.exists());
        let (_, again) = kept(b"one");
        assert_eq!(again, one, "back to the program before");
    }
}
