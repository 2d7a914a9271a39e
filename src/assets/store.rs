//! The content-addressed store: `<state>/assets/sha256/<digest>/`, one directory per asset, whole or absent, and beside it
//! `packed/<digest>.tar.zst`, the same at rest.
//!
//! An asset is staged under `staging/`, stamped, synced and renamed into place, so a crash leaves either nothing or the
//! whole of it; what it leaves in `staging/` is removed at the next opening. One store is open in one process at a time.

use super::held::{self, Hold};
use super::packed::{self, PackedError};
use super::record::{self, RECORD, Recipe, Record, at, set_mode};
use crate::files::{self, FileError, NewFile};
use crate::process;
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Where packed assets lie.
const PACKED: &str = "packed";

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("another berth is provisioning into {0}; wait for it, or choose another state directory")]
    Busy(PathBuf),
    #[error("no space left on the file system of {path}: free some, or choose another state directory")]
    Full { path: PathBuf },
    #[error("{0}; the state directory must be writable for the user berth runs as")]
    File(#[from] FileError),
    #[error("{0} is made of several files or none, so nothing names it")]
    NotOneFile(String),
    #[error("{file} has sha256 {found}, but {wanted} is pinned: refused")]
    WrongDigest { file: String, found: String, wanted: String },
}

impl StoreError {
    /// A full disk has another way out than a forbidden one.
    pub(super) fn of(error: FileError) -> Self {
        match error.source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path: error.path },
            _ => Self::File(error),
        }
    }
}

/// An open store. Dropping it lets the next one open.
#[derive(Debug)]
pub struct Store {
    root: PathBuf,
    by_key: BTreeMap<String, Record>,
    refused: Vec<String>,
    lock: File,
}

impl Drop for Store {
    fn drop(&mut self) {
        // Closing is not enough: a child that is just being born holds a copy of the descriptor until its exec. An error
        // leaves the lock to the end of the process.
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

/// A packed asset, and its record, or why it has none.
type Resting = (PathBuf, Result<Record, PackedError>);

/// An asset about to be packed, which gc leaves alone meanwhile.
#[derive(Debug)]
pub struct Packing {
    record: Record,
    dir: PathBuf,
    path: PathBuf,
    _hold: Hold,
}

impl Packing {
    /// Returns where it rests now. Blocking.
    pub fn run(self, tell: &dyn Fn(u64, u64)) -> Result<PathBuf, PackedError> {
        let mut new = NewFile::create(&self.path).map_err(StoreError::of)?;
        packed::pack(&self.record, &self.dir, &mut new.file, tell)?;
        new.publish().map_err(StoreError::of)?;
        Ok(self.path)
    }
}

/// A place to prepare one asset in: `tree` becomes the asset, the rest of `dir` is thrown away.
#[derive(Debug)]
pub struct Staged {
    pub dir: TempDir,
    pub tree: PathBuf,
    /// sha256 of what was hashed while it was written, by its name in the tree. The rest is read once more.
    pub hashed: BTreeMap<PathBuf, String>,
}

impl Store {
    /// Opens the store at `root`, creating it where needed, and removes what a crash left behind. Blocking.
    pub fn open(root: &Path) -> Result<Self, StoreError> {
        for dir in [root, &root.join("sha256"), &root.join("log")] {
            fs::create_dir_all(dir).map_err(at("create the directory", dir)).map_err(StoreError::of)?;
            // Whatever the umask: a tenant's own account executes what lies in here.
            set_mode(dir, 0o755)?;
        }
        for dir in [PACKED, held::DIR] {
            files::private_dir(&root.join(dir), None).map_err(StoreError::of)?;
        }
        let lock_path = root.join("lock");
        let lock = held::lock_file(&lock_path)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|errno| match errno {
            Errno::WOULDBLOCK => StoreError::Busy(root.to_owned()),
            other => StoreError::File(at("lock", &lock_path)(other.into())),
        })?;
        let staging = root.join("staging");
        match fs::remove_dir_all(&staging) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(at("remove what an interrupted run left in", &staging)(error).into());
            }
            _ => files::private_dir(&staging, None).map_err(StoreError::of)?,
        }
        let mut store = Self { root: root.to_owned(), by_key: BTreeMap::new(), refused: vec![], lock };
        store.read_records()?;
        Ok(store)
    }

    fn read_records(&mut self) -> Result<(), StoreError> {
        for read in self.recorded()? {
            match read {
                Ok(record) => drop(self.by_key.insert(record.key.clone(), record)),
                Err(reason) => self.refused.push(reason),
            }
        }
        Ok(())
    }

    /// The last is the one that was installed last: of two assets by one recipe it counts.
    fn recorded(&self) -> Result<Vec<Result<Record, String>>, StoreError> {
        let dir = self.root.join("sha256");
        let mut records = Vec::new();
        for entry in fs::read_dir(&dir).map_err(at("list", &dir))? {
            let path = entry.map_err(at("list", &dir))?.path();
            let installed = path.join(RECORD).symlink_metadata().map(|meta| record::mtime_ns(&meta));
            records.push((installed.unwrap_or_default(), record::read(&path)));
        }
        records.sort_by_key(|(installed, _)| *installed);
        Ok(records.into_iter().map(|(_, record)| record).collect())
    }

    /// Assets that lie in the store but cannot be trusted, a line each; they are replaced when they are needed.
    pub fn refused(&self) -> &[String] {
        &self.refused
    }

    /// Every asset with a readable record.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.by_key.values()
    }

    /// Where assets are prepared; nobody else can write there.
    pub(super) fn staging(&self) -> PathBuf {
        self.root.join("staging")
    }

    /// Where all assets lie.
    pub(super) fn assets(&self) -> PathBuf {
        self.root.join("sha256")
    }

    /// The digest of everything that lies extracted, with a record or without. Blocking.
    pub(super) fn extracted(&self) -> Result<Vec<String>, StoreError> {
        let dir = self.assets();
        let entries = fs::read_dir(&dir).map_err(at("list", &dir))?;
        let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        Ok(names.collect::<io::Result<_>>().map_err(at("list", &dir))?)
    }

    /// Where an asset lies, present or not.
    pub fn path(&self, digest: &str) -> PathBuf {
        self.root.join("sha256").join(digest)
    }

    /// Where the output of a fetch or a build goes; the last attempt's is kept.
    pub fn log(&self, component: &str) -> PathBuf {
        self.root.join("log").join(format!("{component}.log"))
    }

    /// The asset made by the recipe `key`, if every file of it still has its size and time; else why not. Blocking.
    pub fn find(&self, key: &str) -> Result<PathBuf, Option<String>> {
        let record = self.by_key.get(key).ok_or(None)?;
        let dir = self.path(&record.digest);
        match record.first_difference(&dir) {
            None => Ok(dir),
            Some(difference) => Err(Some(format!("{}: {difference}", dir.display()))),
        }
    }

    /// Has gc leave the assets alone that `programs` lie in, until this process ends. Blocking.
    pub(crate) fn hold<'a>(&self, programs: impl IntoIterator<Item = &'a Path>) -> Result<(), StoreError> {
        let assets = self.assets();
        let assets = assets.canonicalize().map_err(at("resolve", &assets)).map_err(StoreError::of)?;
        let mut held = BTreeSet::new();
        for program in programs {
            // By its lasting name it lies elsewhere; one that is not there cannot be started either.
            let Ok(program) = program.canonicalize() else { continue };
            let Some(name) = program.strip_prefix(&assets).ok().and_then(|path| path.components().next())
            else {
                continue;
            };
            let dir = assets.join(name);
            if held.insert(dir.clone()) {
                held::for_life(&dir)?;
            }
        }
        Ok(())
    }

    /// What is recorded of the recipe `key` by now: an asset that was installed since the opening is not among
    /// [`Self::records`]. Blocking.
    pub fn reread(&self, key: &str) -> Result<Option<Record>, StoreError> {
        Ok(self.recorded()?.into_iter().filter_map(Result::ok).rfind(|record| record.key == key))
    }

    /// An empty place to prepare an asset in, removed when dropped. Blocking.
    pub fn stage(&self) -> Result<Staged, StoreError> {
        let staging = self.root.join("staging");
        let dir = tempfile::Builder::new()
            .tempdir_in(&staging)
            .map_err(at("create a directory in", &staging))
            .map_err(StoreError::of)?;
        let tree = dir.path().join("tree");
        files::private_dir(&tree, None).map_err(StoreError::of)?;
        Ok(Staged { dir, tree, hashed: BTreeMap::new() })
    }

    /// Publishes a staged tree, replacing what lies under its name. A wheel's digest names it; a tree of one program is
    /// named by that program's own, where `digest` is `None`. Blocking.
    pub fn install(
        &self,
        staged: &Staged,
        recipe: Recipe,
        digest: Option<String>,
    ) -> Result<PathBuf, StoreError> {
        let files = record::stamp_tree(&staged.tree, &staged.hashed).map_err(StoreError::of)?;
        let component = recipe.component.clone();
        let record = Record::new(recipe, digest, files).ok_or(StoreError::NotOneFile(component))?;
        self.publish(staged, &record)
    }

    /// Renames a staged tree into its place once it is durable and can be executed.
    fn publish(&self, staged: &Staged, record: &Record) -> Result<PathBuf, StoreError> {
        for name in record.files.keys() {
            let path = staged.tree.join(name);
            let meta = path.symlink_metadata().map_err(at("examine", &path))?;
            if record::is_program(&meta) {
                process::wait_for_none(&path).map_err(at("see the last writer close", &path))?;
            }
        }
        let text = record.text().map_err(at("encode the record of", &staged.tree))?;
        files::write_atomic(&staged.tree.join(RECORD), &text, None).map_err(StoreError::of)?;
        // One syncfs instead of one fsync per file: the PostgreSQL tree has two thousand.
        let handle = crate::files::trusted::open(&staged.tree).map_err(at("open", &staged.tree))?;
        rustix::fs::syncfs(&handle)
            .map_err(|errno| StoreError::of(at("sync the file system of", &staged.tree)(errno.into())))?;
        let target = self.path(&record.digest);
        if target.symlink_metadata().is_err() {
            fs::rename(&staged.tree, &target).map_err(at("rename onto", &target))?;
        } else if renameat_with(CWD, &staged.tree, CWD, &target, RenameFlags::EXCHANGE).is_err() {
            // A file system that cannot exchange two: for a moment there is neither.
            let aside = staged.dir.path().join("replaced");
            fs::rename(&target, &aside).map_err(at("move aside", &target))?;
            fs::rename(&staged.tree, &target).map_err(at("rename onto", &target))?;
        }
        files::sync_dir(&self.root.join("sha256"))?;
        Ok(target)
    }

    /// A name in the store's own directory for `file` of an asset: it stays the same when another asset takes that one's place.
    /// Blocking.
    pub fn name(&self, name: &str, file: &Path) -> Result<PathBuf, StoreError> {
        let link = self.root.join(name);
        // Relative, as the state directory may be moved.
        let target = file.strip_prefix(&self.root).unwrap_or(file);
        if fs::read_link(&link).is_ok_and(|to| to == target) {
            return Ok(link);
        }
        let staged = self.stage()?;
        let aside = staged.dir.path().join(name);
        symlink(target, &aside).map_err(at("create", &aside)).map_err(StoreError::of)?;
        fs::rename(&aside, &link).map_err(at("rename onto", &link))?;
        files::sync_dir(&self.root)?;
        Ok(link)
    }

    /// What the names in the store's own directory lead to. Blocking.
    pub(super) fn named(&self) -> Result<Vec<PathBuf>, StoreError> {
        let entries = fs::read_dir(&self.root).map_err(at("list", &self.root))?;
        let entries = entries.collect::<io::Result<Vec<_>>>().map_err(at("list", &self.root))?;
        let targets = entries.into_iter().filter_map(|entry| fs::read_link(entry.path()).ok());
        Ok(targets.map(|target| self.root.join(target)).collect())
    }

    /// Packs an asset as it lies in the store, unless it is packed already. Takes minutes and 300 MB of memory for a large one, so
    /// never in a daemon. Blocking.
    pub fn pack(&self, record: &Record, tell: &dyn Fn(u64, u64)) -> Result<PathBuf, PackedError> {
        match self.packing(record)? {
            Some(packing) => packing.run(tell),
            None => Ok(self.packed(&record.digest)),
        }
    }

    /// The same work, to be done while the store is closed again: a daemon that starts waits for nobody. `None` where it is packed.
    pub fn packing(&self, record: &Record) -> Result<Option<Packing>, StoreError> {
        let (dir, path) = (self.path(&record.digest), self.packed(&record.digest));
        if path.symlink_metadata().is_ok() {
            return Ok(None);
        }
        let hold = Hold::on(&dir)?;
        Ok(Some(Packing { record: record.clone(), dir, path, _hold: hold }))
    }

    /// Where an asset rests, packed or not.
    pub fn packed(&self, digest: &str) -> PathBuf {
        self.root.join(PACKED).join(format!("{digest}{}", packed::ENDING))
    }

    /// What is packed in the store: each archive with its record, or with why it has none. Reads their beginnings only. Blocking.
    pub fn at_rest(&self) -> Result<Vec<Resting>, StoreError> {
        let dir = self.root.join(PACKED);
        let mut found = Vec::new();
        for entry in fs::read_dir(&dir).map_err(at("list", &dir))? {
            let path = entry.map_err(at("list", &dir))?.path();
            if path.to_string_lossy().ends_with(packed::ENDING) {
                let record = open_packed(&path).and_then(|file| packed::record_of(file, &name(&path)));
                found.push((path, record));
            }
        }
        found.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(found)
    }

    /// The asset of the recipe `key`, unpacked from where it rests in the store; `None` where it does not. An archive that does not
    /// say what it is may be the one. Blocking.
    pub fn restore(&self, key: &str, tell: &dyn Fn(u64, u64)) -> Result<Option<PathBuf>, PackedError> {
        let mut torn = None;
        for (path, record) in self.at_rest()? {
            match record {
                Ok(record) if record.key == key => {
                    let record = self.unpack(open_packed(&path)?, &name(&path), tell)?;
                    return Ok(Some(self.path(&record.digest)));
                }
                Ok(_) => {}
                Err(error) => torn = Some(error),
            }
        }
        torn.map_or(Ok(None), Err)
    }

    /// Unpacks the asset named by `digest` over what lies extracted of it. Blocking.
    pub(super) fn restore_packed(&self, digest: &str) -> Result<(), PackedError> {
        let path = self.packed(digest);
        self.unpack(open_packed(&path)?, &name(&path), &|_, _| ()).map(drop)
    }

    /// Installs what `archive` holds. Its name is for errors. Blocking.
    pub fn unpack(
        &self,
        archive: impl Read + Send + 'static,
        name: &str,
        tell: &dyn Fn(u64, u64),
    ) -> Result<Record, PackedError> {
        let staged = self.stage()?;
        let record = packed::unpack(archive, name, &staged.tree, tell)?;
        self.publish(&staged, &record)?;
        Ok(record)
    }

    /// Reads all of a packed asset and compares it with its record. Blocking.
    pub fn verify_packed(path: &Path, tell: &dyn Fn(u64, u64)) -> Result<Record, PackedError> {
        packed::verify(open_packed(path)?, &name(path), tell)
    }

    /// Removes an asset. Programs that run from it keep their file until they end. Blocking.
    pub fn remove(&self, record: &Record) -> Result<(), StoreError> {
        self.remove_extracted(&record.digest)
    }

    /// Removes an asset, extracted and packed. Blocking.
    pub(super) fn discard(&self, digest: &str) -> Result<(), StoreError> {
        self.remove_packed(digest)?;
        if self.path(digest).symlink_metadata().is_ok() {
            self.remove_extracted(digest)?;
        }
        Ok(())
    }

    pub(super) fn remove_packed(&self, digest: &str) -> Result<(), StoreError> {
        let packed = self.packed(digest);
        match fs::remove_file(&packed) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at("remove", &packed)(error).into()),
            _ => Ok(()),
        }
    }

    pub(super) fn remove_extracted(&self, digest: &str) -> Result<(), StoreError> {
        let staged = self.stage()?;
        let dir = self.path(digest);
        // Renamed first: an asset is whole or absent, never half removed.
        fs::rename(&dir, staged.dir.path().join("removed")).map_err(at("remove", &dir))?;
        Ok(())
    }
}

fn open_packed(path: &Path) -> Result<File, PackedError> {
    Ok(crate::files::trusted::open(path).map_err(at("open", path)).map_err(StoreError::of)?)
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn install_program(store: &Store, key: &str, digest: &str) -> PathBuf {
        let staged = store.stage().unwrap();
        let program = staged.tree.join("kine");
        files::write_atomic(&program, b"#!/bin/sh\n", None).unwrap();
        set_mode(&program, 0o700).unwrap();
        let recipe = Recipe {
            component: "kine".into(),
            version: "v1".into(),
            key: key.into(),
            made_by: "a test".into(),
        };
        store.install(&staged, recipe, Some(digest.into())).unwrap()
    }

    fn entries(dir: &Path) -> usize {
        fs::read_dir(dir).unwrap().count()
    }

    #[test]
    fn an_installed_asset_is_found_again_and_any_account_may_execute_it() {
        let root = tempfile::tempdir().unwrap();
        let dir = install_program(&Store::open(root.path()).unwrap(), "k", "d");
        assert_eq!(Store::open(root.path()).unwrap().find("k"), Ok(dir.clone()));
        for path in [dir.join("kine"), dir, root.path().join("sha256")] {
            assert_eq!(
                fs::metadata(&path).unwrap().permissions().mode() & 0o777,
                0o755,
                "{}",
                path.display()
            );
        }
        assert_eq!(entries(&root.path().join("staging")), 0);
    }

    #[test]
    fn what_a_crash_left_in_staging_is_gone_after_the_next_opening() {
        let root = tempfile::tempdir().unwrap();
        let torn = root.path().join("staging/torn/tree");
        fs::create_dir_all(&torn).unwrap();
        files::write_atomic(&torn.join("kine"), b"half", None).unwrap();
        let store = Store::open(root.path()).unwrap();
        assert_eq!(entries(&root.path().join("staging")), 0);
        assert_eq!(store.find("k"), Err(None));
    }

    #[test]
    fn a_torn_record_is_named_and_its_asset_replaced() {
        let root = tempfile::tempdir().unwrap();
        let dir = install_program(&Store::open(root.path()).unwrap(), "k", "d");
        files::write_atomic(&dir.join(RECORD), b"{\"component\": \"ki", None).unwrap();
        {
            let store = Store::open(root.path()).unwrap();
            assert_eq!(store.find("k"), Err(None));
            assert!(store.refused()[0].contains("sha256/d/asset.json is torn"), "{:?}", store.refused());
            install_program(&store, "k", "d");
        }
        let store = Store::open(root.path()).unwrap();
        assert_eq!((store.find("k"), store.refused().len()), (Ok(dir), 0));
    }

    #[test]
    fn a_program_changed_after_its_installation_is_not_used() {
        let root = tempfile::tempdir().unwrap();
        let dir = install_program(&Store::open(root.path()).unwrap(), "k", "d");
        files::write_atomic(&dir.join("kine"), b"#!/bin/no\n", None).unwrap();
        let store = Store::open(root.path()).unwrap();
        let reason = store.find("k").unwrap_err().unwrap();
        assert!(reason.contains("kine was changed"), "{reason}");
        let corruption = store.records().next().unwrap().first_corruption(&dir).unwrap();
        assert!(corruption.contains("kine has sha256"), "{corruption}");
    }

    #[test]
    fn a_second_opening_is_refused_while_the_first_lives() {
        let root = tempfile::tempdir().unwrap();
        let first = Store::open(root.path()).unwrap();
        assert!(matches!(Store::open(root.path()), Err(StoreError::Busy(_))));
        drop(first);
        assert!(Store::open(root.path()).is_ok());
    }

    #[test]
    fn a_full_disk_and_a_forbidden_one_name_their_own_way_out() {
        let error =
            |kind| StoreError::of(at("write", Path::new("/s/assets"))(io::Error::from(kind))).to_string();
        assert!(
            error(io::ErrorKind::StorageFull).starts_with("no space left on the file system of /s/assets")
        );
        assert!(error(io::ErrorKind::PermissionDenied).contains("must be writable"));
    }

    #[test]
    fn a_removed_asset_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        install_program(&Store::open(root.path()).unwrap(), "k", "d");
        let store = Store::open(root.path()).unwrap();
        store.remove(store.records().next().unwrap()).unwrap();
        assert_eq!((entries(&root.path().join("sha256")), entries(&root.path().join("staging"))), (0, 0));
    }
}
