//! Components that come as a wheel: pip downloads it, its sha256 is checked here once more, some members are unpacked.

use super::catalogue;
use super::hashed::hash_to;
use super::progress::{Advance, Progress};
use super::record::{at, set_mode, sha256_of};
use super::store::{Staged, StoreError};
use super::tool::{self, Tool, ToolError};
use crate::files::FileError;
use crate::one_line::one_line;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;
use tokio::process::Command;
use zip::ZipArchive;

/// 75 MB take a second on a good line; an hour of patience helps nobody on a dead one.
const DOWNLOAD_DEADLINE: Duration = Duration::from_mins(15);

/// How much is unpacked between two words of progress.
const PROGRESS_STEP: u64 = 8 << 20;

const PYTHON: &str = "install Python 3 with pip (Debian, Ubuntu: python3-pip; Fedora: python3-pip; Alpine: py3-pip), \
                      or name the operator's own file (see --help)";

#[derive(Debug, thiserror::Error)]
pub enum WheelError {
    #[error(transparent)]
    Tool(#[from] ToolError),
    #[error("pip is not installed for python3: {PYTHON}")]
    NoPip,
    #[error("pip said it was done, but there is no wheel in {0}")]
    NoWheel(PathBuf),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{wheel} cannot be unpacked: {reason}")]
    Broken { wheel: String, reason: String },
}

/// One pinned wheel.
#[derive(Debug, Clone)]
pub(super) struct Wheel<'a> {
    pub component: &'a str,
    pub package: &'a str,
    pub version: &'a str,
    /// Its line of the requirements file, with every allowed digest.
    pub requirement: &'static str,
    pub members: &'a BTreeMap<String, String>,
}

impl Wheel<'_> {
    pub(super) fn key(&self) -> String {
        let members = self.members.iter().flat_map(|(from, to)| [from.as_str(), to.as_str()]);
        let parts: Vec<_> = [self.component, self.requirement].into_iter().chain(members).collect();
        catalogue::key(&parts)
    }

    /// Downloads the wheel into the staging directory, outside its tree.
    pub(super) async fn download(
        &self,
        staged: &Staged,
        log: &Path,
        progress: &dyn Progress,
    ) -> Result<PathBuf, WheelError> {
        let requirements = staged.dir.path().join("requirements.txt");
        crate::files::write_atomic(&requirements, self.requirement.as_bytes(), None)
            .map_err(StoreError::of)?;
        let target = staged.dir.path().join("download");
        let mut command = Command::new("python3");
        command
            .args(["-m", "pip", "download", "--no-input", "--disable-pip-version-check", "--no-deps"])
            .args(["--require-hashes", "--only-binary=:all:", "-r"])
            .arg(&requirements)
            .arg("-d")
            .arg(&target)
            // What pip leaves when it is killed goes away with the staging directory.
            .env("TMPDIR", staged.dir.path());
        let purpose = format!("download {} {}", self.package, self.version);
        let tool = Tool { name: "python3", purpose, install: PYTHON, log, deadline: DOWNLOAD_DEADLINE };
        let mut no_pip = false;
        let done = tool::run(tool, command, |line| {
            no_pip |= line.contains("No module named pip");
            // Its bars are drawn for a terminal of its own.
            if !line.contains('━') {
                progress.advanced(self.component, Advance::Note(line.trim().to_owned()));
            }
        })
        .await;
        if no_pip && done.is_err() {
            return Err(WheelError::NoPip);
        }
        done?;
        let files = fs::read_dir(&target).map_err(at("list", &target)).map_err(StoreError::of)?;
        let mut wheels = files.filter_map(|entry| Some(entry.ok()?.path()));
        wheels
            .find(|path| path.extension().is_some_and(|end| end == "whl"))
            .ok_or(WheelError::NoWheel(target))
    }
}

/// The digest of `wheel`, if it is one of `allowed`. Blocking.
pub(super) fn verify(wheel: &Path, allowed: &[&str]) -> Result<String, StoreError> {
    allowed_digest(wheel, sha256_of(wheel)?, allowed)
}

/// `found`, which is that of `file`, if it is one of `allowed`.
pub(super) fn allowed_digest(file: &Path, found: String, allowed: &[&str]) -> Result<String, StoreError> {
    if allowed.contains(&found.as_str()) {
        return Ok(found);
    }
    Err(StoreError::WrongDigest { file: name(file), found, wanted: allowed.join(" or ") })
}

/// Unpacks the chosen members below `tree`, and returns the sha256 of each. `tell` hears bytes done and bytes in all. Blocking.
pub(super) fn unpack(
    wheel: &Path,
    members: &BTreeMap<String, String>,
    tree: &Path,
    tell: &dyn Fn(u64, u64),
) -> Result<BTreeMap<PathBuf, String>, WheelError> {
    let broken = |reason: String| WheelError::Broken { wheel: name(wheel), reason };
    let file = crate::files::trusted::open(wheel).map_err(at("open", wheel)).map_err(StoreError::of)?;
    let mut archive = ZipArchive::new(file).map_err(|error| broken(error.to_string()))?;
    let mut chosen = Vec::new();
    let mut total = 0;
    for index in 0..archive.len() {
        let member = archive.by_index(index).map_err(|error| broken(error.to_string()))?;
        if member.is_dir() {
            continue;
        }
        let Some(target) = target(members, member.name()) else { continue };
        if member.enclosed_name().is_none() || leads_outside(Path::new(&target)) {
            return Err(broken(format!("its member {} leads outside", one_line(member.name()))));
        }
        // `file/.` is a directory's name, which the path's own parts do not show.
        if target.split('/').any(|step| step == ".") {
            return Err(broken(format!("its member {} is no name of a file", one_line(member.name()))));
        }
        total = member.size().saturating_add(total);
        chosen.push((index, tree.join(target)));
    }
    if chosen.is_empty() {
        return Err(broken("it has none of the members the catalogue names".into()));
    }
    let (mut done, mut hashed) = (0, BTreeMap::new());
    for (index, path) in chosen {
        let mut member = archive.by_index(index).map_err(|error| broken(error.to_string()))?;
        let mut out = create(&path).map_err(|error| match error.source.kind() {
            // The tree was empty: whatever is in the way, or cannot be a name, came out of this wheel.
            io::ErrorKind::AlreadyExists
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::InvalidFilename => {
                broken(format!("its member {} has no place beside the others", one_line(member.name())))
            }
            _ => WheelError::Store(StoreError::of(error)),
        })?;
        let sha256 = hash_to(&mut member, &mut out, |bytes| {
            let before = done / PROGRESS_STEP;
            done += bytes;
            if done / PROGRESS_STEP != before {
                tell(done, total);
            }
        });
        let sha256 = sha256.map_err(|error| {
            error.place(&path, |error| broken(one_line(format!("{}: {error}", member.name()))))
        })?;
        hashed.insert(path.strip_prefix(tree).unwrap_or(&path).to_owned(), sha256);
        if member.unix_mode().is_some_and(|mode| mode & 0o111 != 0) {
            set_mode(&path, 0o755).map_err(StoreError::of)?;
        }
    }
    Ok(hashed)
}

/// Where `member` goes, by a name of `members` that is all of it, or a prefix that ends with `/` or is empty.
pub(super) fn target(members: &BTreeMap<String, String>, member: &str) -> Option<String> {
    members.iter().find_map(|(from, to)| match member.strip_prefix(from.as_str())? {
        "" => Some(to.clone()),
        rest if from.ends_with('/') || from.is_empty() => Some(format!("{to}{rest}")),
        _ => None,
    })
}

/// Not below the directory it is joined to, whatever it is, or nowhere.
pub(super) fn leads_outside(target: &Path) -> bool {
    target.as_os_str().is_empty() || target.components().any(|step| !matches!(step, Component::Normal(_)))
}

fn create(path: &Path) -> Result<File, FileError> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(at("create the directory", parent))?;
    }
    File::create_new(path).map_err(at("create", path))
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;
    use zip::write::SimpleFileOptions;

    fn wheel(dir: &Path, members: &[(&str, u32)]) -> PathBuf {
        let path = dir.join("a.whl");
        let mut writer = zip::ZipWriter::new(File::create(&path).unwrap());
        for (member, mode) in members {
            writer.start_file(*member, SimpleFileOptions::default().unix_permissions(*mode)).unwrap();
            writer.write_all(member.as_bytes()).unwrap();
        }
        writer.finish().unwrap();
        path
    }

    fn chosen() -> BTreeMap<String, String> {
        BTreeMap::from([("pg/".to_owned(), "postgres/".to_owned())])
    }

    #[test]
    fn only_the_named_members_are_unpacked_and_programs_stay_programs() {
        let dir = tempfile::tempdir().unwrap();
        let wheel =
            wheel(dir.path(), &[("pg/bin/initdb", 0o755), ("pg/share/sql", 0o644), ("info/x", 0o644)]);
        let tree = dir.path().join("tree");
        unpack(&wheel, &chosen(), &tree, &|_, _| ()).unwrap();
        let mode = |name: &str| fs::metadata(tree.join(name)).unwrap().permissions().mode() & 0o111;
        assert_eq!((mode("postgres/bin/initdb"), mode("postgres/share/sql")), (0o111, 0));
        assert_eq!(fs::read_to_string(tree.join("postgres/share/sql")).unwrap(), "pg/share/sql");
        assert_eq!(fs::read_dir(&tree).unwrap().count(), 1);
    }

    #[test]
    fn a_member_that_leads_outside_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let wheel = wheel(dir.path(), &[("pg/../../evil", 0o644)]);
        let error = unpack(&wheel, &chosen(), &dir.path().join("tree"), &|_, _| ()).unwrap_err();
        assert!(error.to_string().contains("leads outside"), "{error}");
        assert!(!dir.path().join("evil").exists());
    }

    /// It stays inside its archive, and leaves the tree that its prefix is mapped to.
    #[test]
    fn a_member_that_climbs_out_of_its_prefix_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let wheel = wheel(dir.path(), &[("bao/../evil", 0o644)]);
        let members = BTreeMap::from([("bao/".to_owned(), String::new())]);
        let error = unpack(&wheel, &members, &dir.path().join("tree"), &|_, _| ()).unwrap_err();
        assert!(error.to_string().contains("leads outside"), "{error}");
        assert!(!dir.path().join("evil").exists());
    }

    #[test]
    fn a_name_without_a_slash_is_one_member_and_no_prefix() {
        let members = BTreeMap::from([("bin/kcp".to_owned(), "kcp".to_owned())]);
        assert_eq!(target(&members, "bin/kcp").as_deref(), Some("kcp"));
        assert_eq!(target(&members, "bin/kcp-front"), None);
    }

    #[test]
    fn a_member_that_becomes_an_absolute_path_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let wheel = wheel(dir.path(), &[("bao//etc/evil", 0o644)]);
        let members = BTreeMap::from([("bao/".to_owned(), String::new())]);
        let error = unpack(&wheel, &members, &dir.path().join("tree"), &|_, _| ()).unwrap_err();
        assert!(error.to_string().contains("leads outside"), "{error}");
    }

    #[test]
    fn a_member_that_is_named_like_a_directory_is_refused_by_its_wheel() {
        let dir = tempfile::tempdir().unwrap();
        let wheel = wheel(dir.path(), &[("pg/share/.", 0o644)]);
        let error = unpack(&wheel, &chosen(), &dir.path().join("tree"), &|_, _| ()).unwrap_err();
        assert!(
            error.to_string().contains("a.whl") && error.to_string().contains("no name of a file"),
            "{error}"
        );
    }

    #[test]
    fn a_wheel_with_another_digest_is_refused_with_both() {
        let dir = tempfile::tempdir().unwrap();
        let wheel = wheel(dir.path(), &[("pg/a", 0o644)]);
        let found = sha256_of(&wheel).unwrap();
        assert_eq!(verify(&wheel, &["0", &found]).unwrap(), found);
        let text = verify(&wheel, &["0123"]).unwrap_err().to_string();
        assert!(text.contains("a.whl") && text.contains(&found) && text.contains("0123"), "{text}");
    }

    #[test]
    fn a_torn_wheel_is_broken_not_a_disk_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = wheel(dir.path(), &[("pg/a", 0o644)]);
        let mut bytes = fs::read(&path).unwrap();
        let at = bytes.windows(4).position(|four| four == b"pg/a").unwrap();
        bytes[at + 5] ^= 0xff;
        crate::files::write_atomic(&path, &bytes, None).unwrap();
        let error = unpack(&path, &chosen(), &dir.path().join("tree"), &|_, _| ()).unwrap_err();
        assert!(matches!(error, WheelError::Broken { .. }), "{error}");
    }
}
