//! Real components for tests: the directory `BERTH_TEST_COMPONENTS` names, else one provisioned once for the whole workspace.
//!
//! A test that needs a component calls [`components`] and never skips: what cannot be had fails it, with the reason. The
//! directory has the layout of `--components-dir`, so the tests of other crates can read the default one as well:
//! `<target>/berth-components/{postgres/bin/,bao,kine,kube-apiserver,kube-controller-manager}`.

#![allow(clippy::panic, reason = "only tests call this, and a test without its components has failed")]

use crate::assets::progress::Lines;
use crate::assets::{self, CLOUD_CONTROLLER_MANAGER, KCP_STAND_IN, Overrides};
use crate::components::{Components, Program};
use crate::preflight;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// A build of everything on a slow machine, by another test binary that holds the lock.
const PROVISIONING_DEADLINE: Duration = Duration::from_hours(1);

/// What this host cannot do is no failure, and not passed over either: said past the capture of a test that passes, which
/// `println!` is not.
pub fn not_exercised(what: &str) {
    let _ = writeln!(std::io::stderr(), "NOT EXERCISED: {what}");
}

/// The components, provisioned on the first call. Blocks the calling thread, at worst for as long as a full build.
///
/// kcp and the cloud controller manager are the `berth` program beside the test binary, which `cargo test` builds for
/// integration tests only.
pub fn components() -> &'static Components {
    static COMPONENTS: OnceLock<Components> = OnceLock::new();
    COMPONENTS.get_or_init(|| {
        // A thread of its own: the caller may be inside a runtime, which cannot be blocked on from within.
        let (answer, answered) = channel();
        std::thread::spawn(move || drop(answer.send(resolve())));
        match answered.recv_timeout(PROVISIONING_DEADLINE) {
            Ok(Ok(components)) => components,
            Ok(Err(reason)) => panic!("no components for this test: {reason}"),
            Err(RecvTimeoutError::Timeout) => panic!("no components for this test within an hour"),
            Err(RecvTimeoutError::Disconnected) => panic!("provisioning for this test panicked"),
        }
    })
}

fn resolve() -> Result<Components, String> {
    let target = target_dir()?;
    let berth = target.profile.join("berth");
    let dir = match std::env::var_os("BERTH_TEST_COMPONENTS") {
        Some(dir) => PathBuf::from(dir),
        None => provisioned(&target.root)?,
    };
    let file = |name: &str| {
        let path = dir.join(name);
        path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))
    };
    let named = |arg0: &str| Program {
        path: berth.clone(),
        arg0: Some(arg0.into()),
        stand_in: (arg0 == KCP_STAND_IN).then(|| "a test".to_owned()),
    };
    Ok(Components {
        postgres_bin: file("postgres/bin")?,
        openbao: Program::real(file("bao")?),
        kine: Program::real(file("kine")?),
        kube_apiserver: Program::real(file("kube-apiserver")?),
        kube_controller_manager: Program::real(file("kube-controller-manager")?),
        k3s: None,
        kcp: named(KCP_STAND_IN),
        ccm: named(CLOUD_CONTROLLER_MANAGER),
    })
}

struct TargetDir {
    root: PathBuf,
    /// `debug` or `release`, where programs are.
    profile: PathBuf,
}

/// A test binary is `<target>/<profile>/deps/<name>-<hash>`, an example `<target>/<profile>/examples/<name>`.
fn target_dir() -> Result<TargetDir, String> {
    let exe = std::env::current_exe().map_err(|error| error.to_string())?;
    let profile =
        exe.ancestors().find(|dir| dir.file_name().is_some_and(|name| name == "deps" || name == "examples"));
    let profile =
        profile.and_then(Path::parent).ok_or_else(|| format!("{} is no test binary", exe.display()))?;
    let root = profile.parent().unwrap_or(profile);
    Ok(TargetDir { root: root.to_owned(), profile: profile.to_owned() })
}

/// The default directory, filled by whichever test binary comes first; the others wait for its lock.
fn provisioned(target: &Path) -> Result<PathBuf, String> {
    let text = |error: &dyn std::error::Error| error.to_string();
    let dir = reachable(target.join("berth-components"));
    fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let lock = File::create(dir.join("lock")).map_err(|error| format!("{}: {error}", dir.display()))?;
    flock(&lock, FlockOperation::LockExclusive).map_err(|error| text(&error))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("no runtime: {error}"))?;
    let progress = Lines::new(std::io::stderr());
    let components = runtime
        .block_on(async {
            let store = assets::open(&dir.join("assets"), &progress).await?;
            assets::served(&store, &Overrides::default(), &progress).await
        })
        .map_err(|error| text(&error))?;
    let postgres = dir.join("postgres");
    fs::create_dir_all(&postgres).map_err(|error| format!("{}: {error}", postgres.display()))?;
    for (name, path) in [
        ("postgres/bin", &components.postgres_bin),
        ("bao", &components.openbao),
        ("kine", &components.kine),
        ("kube-apiserver", &components.kube_apiserver),
        ("kube-controller-manager", &components.kube_controller_manager),
    ] {
        let link = dir.join(name);
        if fs::read_link(&link).is_ok_and(|to| to == *path) {
            continue;
        }
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(path, &link).map_err(|error| format!("{}: {error}", link.display()))?;
    }
    Ok(dir)
}

/// Under root, components run as an account that may not get into the checkout: then they lie where it can.
fn reachable(dir: PathBuf) -> PathBuf {
    match preflight::account(None).ok().flatten() {
        Some(account) if preflight::check_reachable(&dir, &account).is_err() => {
            PathBuf::from("/var/tmp/berth-components")
        }
        _ => dir,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_components_of_a_test_are_there_and_can_be_executed() {
        let components = components();
        for program in [
            &components.postgres_bin.join("initdb"),
            &components.openbao.path,
            &components.kine.path,
            &components.kube_apiserver.path,
            &components.kube_controller_manager.path,
        ] {
            let may = rustix::fs::access(program, rustix::fs::Access::EXEC_OK);
            assert!(may.is_ok(), "{}", program.display());
        }
    }
}
