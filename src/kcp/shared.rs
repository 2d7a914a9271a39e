//! `<state>/kcp/shared`: the set of five files that every slot starts from (K4).
//!
//! Captured once, from the first slot that ever became ready; copied into a slot's root whenever that root holds anything
//! else. The five files appear together or not at all, so a set that lacks one was damaged, and is refused.

use crate::fault;
use crate::files::{self, FileError};
use crate::kcp::material::{self, FILES, Material, MaterialError};
use berth_actors::spec::User;
use std::fs::Permissions;
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Cheap to clone. All methods block.
#[derive(Debug, Clone)]
pub struct Shared {
    dir: PathBuf,
}

/// Why the shared set cannot be used, captured or copied.
#[derive(Debug, thiserror::Error)]
pub enum SharedError {
    #[error(transparent)]
    Material(#[from] MaterialError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(
        "{0} does not exist: no slot has become ready yet, so there is nothing to copy into another; start a slot first"
    )]
    NotCaptured(PathBuf),
    #[error(
        "{shared} is gone although the other slot has run: starting this one would make a second kcp with other keys and \
         tokens; copy the five files from {other} to {shared}"
    )]
    Lost { shared: PathBuf, other: PathBuf },
}

impl SharedError {
    /// Whether the same attempt may succeed later: a full disk may, a bad set may not.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::File(_) | Self::Material(MaterialError::Unreadable(_)))
    }
}

impl Shared {
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// The checked set; `None` when none was ever captured.
    pub fn load(&self) -> Result<Option<Material>, SharedError> {
        for name in FILES {
            if exists(&self.dir.join(name))? {
                return Ok(Some(Material::read(&self.dir)?));
            }
        }
        Ok(None)
    }

    /// The checked set, which must be there.
    pub fn require(&self) -> Result<Material, SharedError> {
        self.load()?.ok_or_else(|| SharedError::NotCaptured(self.dir.clone()))
    }

    /// Takes the set of a slot that has become ready, unless there is one already. All or nothing, durable.
    pub fn capture(&self, root: &Path) -> Result<Material, SharedError> {
        if let Some(set) = self.load()? {
            return Ok(set);
        }
        let set = Material::read(root)?;
        let parent = self.dir.parent().unwrap_or(Path::new("."));
        files::private_dir(parent, None)?;
        let aside = tempfile::Builder::new()
            .prefix(files::ASIDE)
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(parent)
            .map_err(at("create a directory beside", &self.dir))?;
        for (name, bytes) in set.files() {
            files::write_atomic(&aside.path().join(name), bytes, None)?;
        }
        fault::point("shared-aside");
        match std::fs::rename(aside.path(), &self.dir) {
            // Its contents are where they belong; there is nothing left to clean up under the old name.
            Ok(()) => drop(aside.keep()),
            // A gate that was dropped has finished its capture after all.
            Err(error) if matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists) => {
            }
            Err(error) => return Err(at("rename onto", &self.dir)(error).into()),
        }
        files::sync_dir(parent)?;
        self.require()
    }

    /// Makes `root` hold the shared set. A copy that fails takes back what it wrote: kcp refuses to start on a part.
    pub fn stage(&self, root: &Path, owner: Option<User>) -> Result<(), SharedError> {
        let set = self.require()?;
        if Material::read(root).is_ok_and(|present| present.same_kcp(&set)) {
            return Ok(());
        }
        files::private_dir(root, owner)?;
        for (name, bytes) in set.files() {
            if let Err(error) = files::write_atomic(&root.join(name), bytes, owner) {
                for name in FILES {
                    // Best effort: the next start checks the root again, whatever is left in it.
                    let _ = std::fs::remove_file(root.join(name));
                }
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Prepares the root of a slot before kcp starts on it.
    ///
    /// Before the first capture kcp makes the files itself. Two cases need care then: a first start that was cut short
    /// between two files leaves a root that kcp refuses for ever, and a shared set that was lost must not be replaced by
    /// new keys while another slot still has the old ones.
    pub fn prepare(
        &self,
        root: &Path,
        interrupted: &Path,
        other_root: &Path,
        owner: Option<User>,
    ) -> Result<(), SharedError> {
        if self.load()?.is_some() {
            return self.stage(root, owner);
        }
        match Material::read(root) {
            Ok(_) => {}
            Err(MaterialError::Unreadable(error)) => return Err(error.into()),
            Err(MaterialError::Bad { .. }) => {
                if exists(&other_root.join(material::CERTIFICATE))? {
                    return Err(SharedError::Lost { shared: self.dir.clone(), other: other_root.to_owned() });
                }
                if is_stuck(root)? {
                    set_aside(root, interrupted)?;
                }
            }
        }
        Ok(files::private_dir(root, owner)?)
    }
}

/// kcp completes a root that lacks files, except for half of a pair, and a token store without its token.
fn is_stuck(root: &Path) -> Result<bool, FileError> {
    let has = |name: &str| exists(&root.join(name));
    let half_a_pair = has(material::CERTIFICATE)? != has(material::KEY)?;
    Ok(half_a_pair || has(material::TOKEN_STORE)?)
}

/// Moves a root that never served out of the way, over the one before it. Nothing is lost that a client has seen.
fn set_aside(root: &Path, interrupted: &Path) -> Result<(), FileError> {
    match std::fs::remove_dir_all(interrupted) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(at("remove", interrupted)(error));
        }
        _ => {}
    }
    std::fs::rename(root, interrupted).map_err(at("set aside", root))
}

fn exists(path: &Path) -> Result<bool, FileError> {
    path.try_exists().map_err(at("look for", path))
}

fn at<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> FileError + 'a {
    move |source| FileError { action, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kcp::fixture::Fixture;
    use crate::kcp::material::{KUBECONFIG, TOKEN_STORE};

    struct Kcp {
        state: tempfile::TempDir,
    }

    impl Kcp {
        fn new() -> Self {
            Self { state: tempfile::tempdir().unwrap() }
        }
        fn at(&self, name: &str) -> PathBuf {
            self.state.path().join(name)
        }
        fn shared(&self) -> Shared {
            Shared::new(self.at("shared"))
        }
        fn prepare(&self, slot: &str, other: &str) -> Result<(), SharedError> {
            self.shared().prepare(&self.at(slot), &self.at("interrupted"), &self.at(other), None)
        }
    }

    #[test]
    fn the_first_ready_slot_is_captured_once_and_privately() {
        let kcp = Kcp::new();
        let (first, second) = (Fixture::new(), Fixture::new());
        first.write(&kcp.at("a"));
        second.write(&kcp.at("b"));
        assert_eq!(kcp.shared().capture(&kcp.at("a")).unwrap().token().expose(), first.shard_admin);
        assert_eq!(kcp.shared().capture(&kcp.at("b")).unwrap().token().expose(), first.shard_admin);

        assert_eq!(kcp.at("shared").metadata().unwrap().permissions().mode() & 0o777, 0o700);
        for name in FILES {
            let mode = kcp.at("shared").join(name).metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        let beside = kcp.state.path().read_dir().unwrap().count();
        assert_eq!(beside, 3, "a, b, shared and no leftover");
    }

    #[test]
    fn a_bad_root_is_never_captured_in_part() {
        let kcp = Kcp::new();
        Fixture::new().write(&kcp.at("a"));
        std::fs::remove_file(kcp.at("a").join(TOKEN_STORE)).unwrap();
        kcp.shared().capture(&kcp.at("a")).unwrap_err();
        assert_eq!(kcp.state.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn a_fresh_root_gets_all_five_files() {
        let kcp = Kcp::new();
        let set = Fixture::new();
        set.write(&kcp.at("shared"));
        kcp.prepare("b", "a").unwrap();
        for name in FILES {
            assert_eq!(
                std::fs::read(kcp.at("b").join(name)).unwrap(),
                std::fs::read(kcp.at("shared").join(name)).unwrap(),
                "{name}"
            );
        }
    }

    #[test]
    fn a_root_with_a_torn_kubeconfig_or_other_keys_is_staged_again() {
        let kcp = Kcp::new();
        let set = Fixture::new();
        set.write(&kcp.at("shared"));
        set.write(&kcp.at("a"));
        files::write_atomic(&kcp.at("a").join(KUBECONFIG), b"apiVers", None).unwrap();
        kcp.prepare("a", "b").unwrap();
        assert_eq!(Material::read(&kcp.at("a")).unwrap().token().expose(), set.shard_admin);

        Fixture::new().write(&kcp.at("a"));
        kcp.prepare("a", "b").unwrap();
        assert_eq!(Material::read(&kcp.at("a")).unwrap().token().expose(), set.shard_admin);
    }

    #[test]
    fn a_root_that_serves_the_shared_set_is_left_alone() {
        let kcp = Kcp::new();
        let set = Fixture::new();
        set.write(&kcp.at("shared"));
        set.write(&kcp.at("a"));
        let rewritten = String::from_utf8(set.kubeconfig.clone()).unwrap().replace(&set.kcp_admin, "newer");
        files::write_atomic(&kcp.at("a").join(KUBECONFIG), rewritten.as_bytes(), None).unwrap();
        kcp.prepare("a", "b").unwrap();
        assert_eq!(std::fs::read(kcp.at("a").join(KUBECONFIG)).unwrap(), rewritten.as_bytes());
    }

    #[test]
    fn a_damaged_shared_set_is_refused_by_name_and_nothing_is_staged() {
        let kcp = Kcp::new();
        Fixture::new().write(&kcp.at("shared"));
        std::fs::remove_file(kcp.at("shared").join(KUBECONFIG)).unwrap();
        let error = kcp.prepare("b", "a").unwrap_err();
        assert!(error.to_string().contains("shared/admin.kubeconfig is missing"), "{error}");
        assert!(!error.is_passing());
        assert!(!kcp.at("b").exists());
    }

    #[test]
    fn a_lost_shared_set_is_not_replaced_by_a_second_kcp() {
        let kcp = Kcp::new();
        Fixture::new().write(&kcp.at("a"));
        let error = kcp.prepare("b", "a").unwrap_err().to_string();
        assert!(error.contains(&format!("from {}", kcp.at("a").display())), "{error}");
        kcp.prepare("a", "b").unwrap();
    }

    #[test]
    fn the_very_first_start_stages_nothing() {
        let kcp = Kcp::new();
        kcp.prepare("a", "b").unwrap();
        assert_eq!(kcp.at("a").read_dir().unwrap().count(), 0);
        let error = kcp.shared().stage(&kcp.at("b"), None).unwrap_err().to_string();
        assert!(error.contains("no slot has become ready yet"), "{error}");
    }

    #[test]
    fn a_first_start_cut_short_between_two_files_is_set_aside() {
        let kcp = Kcp::new();
        Fixture::new().write(&kcp.at("a"));
        std::fs::remove_file(kcp.at("a").join(KUBECONFIG)).unwrap();
        kcp.prepare("a", "b").unwrap();
        assert_eq!(kcp.at("a").read_dir().unwrap().count(), 0);
        assert!(kcp.at("interrupted").join(TOKEN_STORE).exists());
    }
}
