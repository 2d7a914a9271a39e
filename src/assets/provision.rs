//! Gets every component ready to run: the operator's file first, then the store, then what rests there or in this
//! program packed, then a fetch or a build.
//!
//! The wheels are fetched beside the Go builds; the builds go one after another, as each takes every core by itself.
//! The first failure ends the rest; what was already installed stays for the next try.

use super::acquire::Provisioning;
use super::catalogue::{Catalogue, CatalogueError};
use super::delivery::DeliveryError;
use super::download::DownloadError;
use super::itself::{self, CLOUD_CONTROLLER_MANAGER, KCP_STAND_IN};
use super::k3s::{self, K3sError};
use super::operators::{self, OperatorsError};
use super::overrides::{OverrideError, Overrides};
use super::progress::Progress;
use super::store::{Store, StoreError};
use super::tool::ToolError;
use super::wheel::WheelError;
use crate::components::{Components, Program};
use crate::layout::Layout;
use crate::off_thread::off_thread;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    Download(#[from] DownloadError),
    #[error(transparent)]
    Delivery(#[from] DeliveryError),
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    #[error(transparent)]
    Operators(#[from] OperatorsError),
    #[error(
        "{component} is not provisioned by berth: give {flag} PATH, or `berth assets add` or `import` it"
    )]
    OperatorOnly { component: String, flag: String },
}

/// Every component, ready to run. Dropping the future kills what it started; nothing half-made is left to be run.
pub async fn provision(
    layout: &Layout,
    overrides: &Overrides,
    progress: &dyn Progress,
) -> Result<Components, ProvisionError> {
    // The operator's own files first: a wrong one is told before minutes are spent on fetching the rest.
    let (named_kcp, ccm) = (overrides.program("kcp")?, overrides.program("ccm")?);
    let named_k3s = match overrides.program("k3s")? {
        Some(path) => Some(k3s::ask(&path).await?),
        None => None,
    };
    for component in ["postgres", "openbao", "kine", "kube-apiserver", "kube-controller-manager"] {
        overrides.program(component)?;
    }
    let store = open(&layout.assets(), progress).await?;
    let assets = layout.assets();
    let catalogue = off_thread(move || operators::catalogue(&assets)).await?;
    let served = serve(&store, &catalogue, overrides, progress).await?;
    let provisioning = Provisioning { catalogue: &catalogue, store: &store, overrides, progress };
    let kcp = match named_kcp {
        Some(path) => Some(path),
        None => provisioning.operators("kcp").await?,
    };
    let k3s = match named_k3s {
        Some(program) => Some(program),
        None => match provisioning.operators("k3s").await? {
            Some(path) => Some(k3s::ask(&path).await?),
            None => None,
        },
    };
    let keeping = Arc::clone(&store);
    let berth = off_thread(move || itself::keep(&keeping, Path::new(itself::RUNNING))).await?;
    let named = |arg0: &str| Program { path: berth.clone(), arg0: Some(arg0.to_owned()), stand_in: None };
    let kcp = kcp
        .map_or_else(|| Program { stand_in: Some(NO_KCP.to_owned()), ..named(KCP_STAND_IN) }, Program::real);
    let components = Components {
        postgres_bin: served.postgres_bin,
        openbao: Program::real(served.openbao),
        kine: Program::real(served.kine),
        kube_apiserver: Program::real(served.kube_apiserver),
        kube_controller_manager: Program::real(served.kube_controller_manager),
        k3s,
        kcp,
        ccm: ccm.map_or_else(|| named(CLOUD_CONTROLLER_MANAGER), Program::real),
    };
    let held = components.clone();
    off_thread(move || store.hold(held.paths())).await?;
    Ok(components)
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

pub(super) const MADE_AGAIN: &str = "an asset is not used and will be made again";

/// Gets every component a registry serves, as the built-in catalogue says.
pub(crate) async fn served(
    store: &Arc<Store>,
    overrides: &Overrides,
    progress: &dyn Progress,
) -> Result<Served, ProvisionError> {
    serve(store, &Catalogue::embedded()?, overrides, progress).await
}

async fn serve(
    store: &Arc<Store>,
    catalogue: &Catalogue,
    overrides: &Overrides,
    progress: &dyn Progress,
) -> Result<Served, ProvisionError> {
    // Before minutes of building: a mistyped flag is told at once.
    for (component, _) in catalogue.entries() {
        overrides.program(component)?;
    }
    let provisioning = Provisioning { catalogue, store, overrides, progress };
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

/// Gets one component as the catalogue says, whatever the configuration names in its place.
pub(crate) async fn fetch(
    store: &Arc<Store>,
    catalogue: &Catalogue,
    component: &str,
    progress: &dyn Progress,
) -> Result<PathBuf, ProvisionError> {
    let overrides = &Overrides::default();
    Provisioning { catalogue, store, overrides, progress }.component(component).await
}
