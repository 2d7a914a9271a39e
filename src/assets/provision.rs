//! Gets every component ready to run: the operator's file first, then the store, then a fetch or a build.
//!
//! The wheels are fetched beside the Go builds; the builds go one after another, as each takes every core by itself.
//! The first failure ends the rest; what was already installed stays for the next try.

use super::catalogue::{self, Catalogue, CatalogueError, Source};
use super::golang::GoProgram;
use super::itself::{self, CLOUD_CONTROLLER_MANAGER, KCP_STAND_IN};
use super::k3s::{self, K3sError};
use super::overrides::{OverrideError, Overrides};
use super::progress::{Advance, Origin, Progress};
use super::record::Recipe;
use super::store::{Staged, Store, StoreError};
use super::tool::ToolError;
use super::wheel::{self, Wheel, WheelError};
use crate::components::{Components, Program};
use crate::layout::Layout;
use crate::off_thread::off_thread;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Why a component cannot be had. One line, with the way out.
#[derive(Debug, thiserror::Error)]
pub enum ProvisionError {
    #[error(transparent)]
    Override(#[from] OverrideError),
    #[error(transparent)]
    K3s(#[from] K3sError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Build(#[from] ToolError),
    #[error(transparent)]
    Fetch(#[from] WheelError),
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    #[error("{component} is not provisioned by berth: give {flag} PATH")]
    OperatorOnly { component: String, flag: String },
}

/// Every component, ready to run. Dropping the future kills what it started; nothing half-made is left to be run.
pub async fn provision(
    layout: &Layout,
    overrides: &Overrides,
    progress: &dyn Progress,
) -> Result<Components, ProvisionError> {
    // The operator's own files first: a wrong one is told before minutes are spent on fetching the rest.
    let (kcp, ccm) = (overrides.program("kcp")?, overrides.program("ccm")?);
    let k3s = match overrides.program("k3s")? {
        Some(path) => Some(k3s::ask(&path).await?),
        None => None,
    };
    for component in ["postgres", "openbao", "kine", "kube-apiserver", "kube-controller-manager"] {
        overrides.program(component)?;
    }
    let store = open(&layout.assets(), progress).await?;
    let served = served(&store, overrides, progress).await?;
    let berth = off_thread(move || itself::keep(&store, Path::new(itself::RUNNING))).await?;
    let named = |arg0: &str| Program { path: berth.clone(), arg0: Some(arg0.to_owned()), stand_in: None };
    let kcp = kcp
        .map_or_else(|| Program { stand_in: Some(NO_KCP.to_owned()), ..named(KCP_STAND_IN) }, Program::real);
    Ok(Components {
        postgres_bin: served.postgres_bin,
        openbao: Program::real(served.openbao),
        kine: Program::real(served.kine),
        kube_apiserver: Program::real(served.kube_apiserver),
        kube_controller_manager: Program::real(served.kube_controller_manager),
        k3s,
        kcp,
        ccm: ccm.map_or_else(|| named(CLOUD_CONTROLLER_MANAGER), Program::real),
    })
}

/// Why kcp is a stand-in, wherever a user sees it.
const NO_KCP: &str = "kcp is not in a registry; give --kcp PATH for the real one";

/// The components a registry serves.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) postgres_bin: PathBuf,
    pub(crate) openbao: PathBuf,
    pub(crate) kine: PathBuf,
    pub(crate) kube_apiserver: PathBuf,
    pub(crate) kube_controller_manager: PathBuf,
}

/// Opens the store at `root`, and tells what in it cannot be trusted.
pub(crate) async fn open(root: &Path, progress: &dyn Progress) -> Result<Arc<Store>, ProvisionError> {
    let root = root.to_owned();
    let store = off_thread(move || Store::open(&root)).await?;
    for reason in store.refused() {
        progress.warned(&format!("{MADE_AGAIN}: {reason}"));
    }
    Ok(Arc::new(store))
}

const STORING: &str = "storing it";
const MADE_AGAIN: &str = "an asset is not used and will be made again";

/// Gets every component a registry serves.
pub(crate) async fn served(
    store: &Arc<Store>,
    overrides: &Overrides,
    progress: &dyn Progress,
) -> Result<Served, ProvisionError> {
    let catalogue = Catalogue::embedded()?;
    // Before minutes of building: a mistyped flag is told at once.
    for (component, _) in catalogue.entries() {
        overrides.program(component)?;
    }
    let provisioning = Provisioning { catalogue: &catalogue, store, overrides, progress };
    let (postgres, openbao, (kine, kube_apiserver, kube_controller_manager)) =
        tokio::try_join!(provisioning.component("postgres"), provisioning.component("openbao"), async {
            Ok((
                provisioning.component("kine").await?,
                provisioning.component("kube-apiserver").await?,
                provisioning.component("kube-controller-manager").await?,
            ))
        })?;
    // The operator names the directory itself, the catalogue the program in it.
    let parent = || postgres.parent().unwrap_or(Path::new("/")).to_owned();
    let postgres_bin = if postgres.is_dir() { postgres.clone() } else { parent() };
    Ok(Served { postgres_bin, openbao, kine, kube_apiserver, kube_controller_manager })
}

struct Provisioning<'a> {
    catalogue: &'a Catalogue,
    store: &'a Arc<Store>,
    overrides: &'a Overrides,
    progress: &'a dyn Progress,
}

impl Provisioning<'_> {
    async fn component(&self, name: &str) -> Result<PathBuf, ProvisionError> {
        let began = Instant::now();
        if let Some(path) = self.overrides.program(name)? {
            self.progress.finished(name, began.elapsed(), Origin::Operator);
            return Ok(path);
        }
        let entry = self.catalogue.entry(name)?;
        let (path, origin) = match &entry.source {
            Source::Wheel { package, package_version, pins, members, program } => {
                let (requirement, digests) = catalogue::wheel_pin(pins, package, package_version)?;
                let wheel =
                    Wheel { component: name, package, version: package_version, requirement, members };
                let (dir, origin) = self.wheel(&wheel, &entry.version, digests).await?;
                (dir.join(program), origin)
            }
            Source::GoTool { import_path, pins, program, .. } => {
                let pins = catalogue::go_pins(pins)?;
                let go = GoProgram { component: name, version: &entry.version, import_path, pins };
                let (dir, origin) = self.go_program(&go).await?;
                (dir.join(program), origin)
            }
            Source::Operator { flag } => {
                return Err(ProvisionError::OperatorOnly { component: name.into(), flag: flag.clone() });
            }
        };
        self.progress.finished(name, began.elapsed(), origin);
        Ok(path)
    }

    async fn wheel(
        &self,
        wheel: &Wheel<'_>,
        version: &str,
        digests: Vec<&'static str>,
    ) -> Result<(PathBuf, Origin), ProvisionError> {
        let key = wheel.key();
        if let Some(dir) = self.stored(&key).await? {
            return Ok((dir, Origin::Store));
        }
        self.progress.started(wheel.component, &format!("downloading {} {}", wheel.package, wheel.version));
        let mut staged = self.stage().await?;
        let file = wheel.download(&staged, &self.store.log(wheel.component), self.progress).await?;
        let recipe = Recipe {
            component: wheel.component.to_owned(),
            version: version.to_owned(),
            key,
            made_by: file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        };
        let (members, store) = (wheel.members.clone(), Arc::clone(self.store));
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let unpacking = off_thread(move || -> Result<PathBuf, ProvisionError> {
            // Nobody listens once the caller has given up; the rest is harmless.
            let say = |advance| drop(tell.send(advance));
            say(Advance::Note("checking its sha256".into()));
            let digest = wheel::verify(&file, &digests)?;
            let tell = |done, total| say(Advance::Bytes { done, total });
            staged.hashed = wheel::unpack(&file, &members, &staged.tree, &tell)?;
            say(Advance::Note(STORING.into()));
            Ok(store.install(&staged, recipe, Some(digest))?)
        });
        let telling = async {
            while let Some(advance) = told.recv().await {
                self.progress.advanced(wheel.component, advance);
            }
        };
        let (installed, ()) = tokio::join!(unpacking, telling);
        Ok((installed?, Origin::Fetched))
    }

    async fn go_program(&self, go: &GoProgram<'_>) -> Result<(PathBuf, Origin), ProvisionError> {
        let key = go.key();
        if let Some(dir) = self.stored(&key).await? {
            return Ok((dir, Origin::Store));
        }
        self.progress.started(go.component, &format!("building {} {}", go.import_path, go.version));
        let staged = self.stage().await?;
        let made_by = go.build(&staged, &self.store.log(go.component), self.progress).await?;
        self.progress.advanced(go.component, Advance::Note(STORING.into()));
        let recipe =
            Recipe { component: go.component.to_owned(), version: go.version.to_owned(), key, made_by };
        let store = Arc::clone(self.store);
        let dir = off_thread(move || store.install(&staged, recipe, None)).await?;
        Ok((dir, Origin::Built))
    }

    async fn stored(&self, key: &str) -> Result<Option<PathBuf>, ProvisionError> {
        let (store, key) = (Arc::clone(self.store), key.to_owned());
        match off_thread(move || store.find(&key)).await {
            Ok(dir) => Ok(Some(dir)),
            Err(None) => Ok(None),
            Err(Some(reason)) => {
                self.progress.warned(&format!("{MADE_AGAIN}: {reason}"));
                Ok(None)
            }
        }
    }

    async fn stage(&self) -> Result<Staged, ProvisionError> {
        let store = Arc::clone(self.store);
        Ok(off_thread(move || store.stage()).await?)
    }
}
