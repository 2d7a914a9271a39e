//! Components brought by hand, for hosts that reach no server: a wheel, a program, an archive, or a packed asset of another
//! store. Each is verified against its pin while it is unpacked. Blocking throughout.

use super::catalogue::{self, Catalogue, CatalogueError, Content};
use super::delivery::{Delivery, DeliveryError};
use super::packed::{self, PackedError};
use super::pinned;
use super::pins::{self, Pin};
use super::record::{Recipe, Record, at, sha256_of};
use super::store::{Store, StoreError};
use super::wheel::{self, WheelError};
use std::io;
use std::path::Path;

#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error(
        "{file} has sha256 {found}, which no catalogue names: say what it must be with --component NAME --sha256 HEX"
    )]
    NotPinned { file: String, found: String },
    #[error("{component} is no component of Berth; it runs {known}")]
    Unknown { component: String, known: String },
    #[error(
        "{component} is a tree of files: bring its wheel, or what `berth assets pack` made of it elsewhere"
    )]
    Tree { component: String },
    #[error("{file} is a packed {has}, not {component}")]
    Another { file: String, has: String, component: String },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Wheel(#[from] WheelError),
    #[error(transparent)]
    Delivery(#[from] DeliveryError),
    #[error(transparent)]
    Packed(#[from] PackedError),
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
}

/// What an operator says a file is.
#[derive(Debug, Clone)]
pub struct Named {
    pub component: String,
    /// Without one, the catalogue's.
    pub version: Option<String>,
    /// Of the file.
    pub sha256: String,
    /// The program, where the file is an archive.
    pub member: Option<String>,
}

/// Installs `file`, and returns what it became.
pub fn import(
    store: &Store,
    catalogue: &Catalogue,
    file: &Path,
    named: Option<&Named>,
    tell: &dyn Fn(u64, u64),
) -> Result<Record, ImportError> {
    let key = match named {
        Some(named) => by_name(store, catalogue, file, named, tell)?,
        None => by_digest(store, catalogue, file, tell)?,
    };
    let gone = || at("find what was imported from", file)(io::ErrorKind::NotFound.into());
    Ok(store.reread(&key)?.ok_or_else(|| StoreError::of(gone()))?)
}

/// A file that a catalogue pins says itself what it is.
fn by_digest(
    store: &Store,
    catalogue: &Catalogue,
    file: &Path,
    tell: &dyn Fn(u64, u64),
) -> Result<String, ImportError> {
    let found = sha256_of(file).map_err(StoreError::of)?;
    let Some(pin) = pins::all(catalogue)?.into_iter().find(|pin| pin.digests.contains(&found)) else {
        return Err(ImportError::NotPinned { file: file.display().to_string(), found });
    };
    let entry = catalogue.entry(&pin.component)?;
    let recipe = recipe(&pin, file);
    if let Some(content) = pins::content(entry) {
        Delivery { component: &pin.component, content }.install(store, file, recipe, tell)?;
        return Ok(pin.key);
    }
    let (wheel, digests) = pins::wheel(&pin.component, entry)?;
    let mut staged = store.stage()?;
    let (own, digest) = pinned::bring(store, file, &staged, &digests)?;
    staged.hashed = wheel::unpack(&own, wheel.members, &staged.tree, tell)?;
    store.install(&staged, recipe, Some(digest))?;
    Ok(pin.key)
}

/// The operator's word for what it is, and its digest for that it is that very file.
fn by_name(
    store: &Store,
    catalogue: &Catalogue,
    file: &Path,
    named: &Named,
    tell: &dyn Fn(u64, u64),
) -> Result<String, ImportError> {
    let component = named.component.as_str();
    let Ok(entry) = catalogue.entry(component) else {
        let known = catalogue.entries().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
        return Err(ImportError::Unknown { component: component.to_owned(), known });
    };
    let open = || crate::files::trusted::open(file).map_err(at("open", file)).map_err(StoreError::of);
    let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
    if name.ends_with(packed::ENDING)
        && named.member.is_none()
        && let Ok(record) = packed::record_of(open()?, &name)
    {
        if record.component != component {
            let component = component.to_owned();
            return Err(ImportError::Another { file: name, has: record.component, component });
        }
        let staged = store.stage()?;
        let (own, _) = pinned::bring(store, file, &staged, &[&named.sha256])?;
        let archive = crate::files::trusted::open(&own).map_err(at("open", &own)).map_err(StoreError::of)?;
        return Ok(store.unpack(archive, &name, tell)?.key);
    }
    if component == "postgres" {
        return Err(ImportError::Tree { component: component.to_owned() });
    }
    let version = named.version.clone().unwrap_or_else(|| entry.version.clone());
    let mut pin = pins::of(component, entry)?;
    if version != pin.version || pins::content(entry).is_some() {
        // Not what the catalogue asks for, and never taken for it.
        pin.key = catalogue::key_by_hand(component, &version);
        pin.version = version;
    }
    let content = Content::of_a_program(component, named.sha256.clone(), named.member.clone());
    Delivery { component, content: &content }.install(store, file, recipe(&pin, file), tell)?;
    Ok(pin.key)
}

fn recipe(pin: &Pin, file: &Path) -> Recipe {
    let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy();
    Recipe {
        component: pin.component.clone(),
        version: pin.version.clone(),
        key: pin.key.clone(),
        made_by: format!("imported from {name}"),
    }
}

#[cfg(test)]
#[path = "import_tests.rs"]
mod tests;
