//! The operator's own catalogue, `<state>/assets/catalogue.toml`: what it names goes over the built-in one.
//!
//! Written by hand or by `berth assets add`; read at each start. A file that is not one stops the start by name: without it,
//! something else would run.

use super::catalogue::{self, Catalogue, CatalogueError, Entry};
use super::record::at;
use super::store::StoreError;
use crate::files;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum OperatorsError {
    #[error("{path} is not a catalogue of components: {reason}")]
    Invalid { path: PathBuf, reason: String },
    #[error("{path} names {component}, which Berth does not run; it runs {known}")]
    Unknown { path: PathBuf, component: String, known: String },
    #[error("{component} is not added: {reason}")]
    Entry { component: String, reason: String },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    BuiltIn(#[from] CatalogueError),
}

fn path(assets: &Path) -> PathBuf {
    assets.join("catalogue.toml")
}

/// The built-in catalogue with the operator's over it. Blocking.
pub(crate) fn catalogue(assets: &Path) -> Result<Catalogue, OperatorsError> {
    let built_in = Catalogue::embedded()?;
    let entries = read(assets)?;
    if let Some(component) = entries.keys().find(|name| built_in.entry(name).is_err()) {
        let known: Vec<_> = built_in.entries().map(|(name, _)| name).collect();
        let (component, known) = (component.clone(), known.join(", "));
        return Err(OperatorsError::Unknown { path: path(assets), component, known });
    }
    Ok(built_in.overlaid(entries))
}

/// The same, with `entry` in it, which is not written down yet.
pub(crate) fn with(catalogue: Catalogue, component: &str, entry: Entry) -> Result<Catalogue, OperatorsError> {
    entry
        .source
        .is_sound()
        .map_err(|reason| OperatorsError::Entry { component: component.to_owned(), reason })?;
    if catalogue.entry(component).is_err() {
        let known = catalogue.entries().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
        let reason = format!("Berth does not run it; it runs {known}");
        return Err(OperatorsError::Entry { component: component.to_owned(), reason });
    }
    if component == "postgres" {
        let reason = "it is a tree of files, of which this is one: import its wheel, or write all its members into catalogue.toml";
        return Err(OperatorsError::Entry { component: component.to_owned(), reason: reason.to_owned() });
    }
    Ok(catalogue.overlaid([(component.to_owned(), entry)].into()))
}

fn read(assets: &Path) -> Result<BTreeMap<String, Entry>, OperatorsError> {
    let path = path(assets);
    let invalid = |reason| OperatorsError::Invalid { path: path.clone(), reason };
    let Some(bytes) = files::read_optional(&path).map_err(StoreError::of)? else {
        return Ok(BTreeMap::new());
    };
    let text = String::from_utf8(bytes).map_err(|error| invalid(error.to_string()))?;
    catalogue::parse(&text).map_err(invalid)
}

/// Writes `entry` into the operator's catalogue, in place of an earlier one. Blocking.
pub(crate) fn add(assets: &Path, component: &str, entry: Entry) -> Result<(), OperatorsError> {
    let mut entries = read(assets)?;
    entries.insert(component.to_owned(), entry);
    let path = path(assets);
    let text = toml::to_string_pretty(&entries).map_err(io::Error::other).map_err(at("encode", &path));
    let text = text.map_err(StoreError::of)?;
    // What is written can be read again: a wrong entry is refused here, not at the next start.
    catalogue::parse(&text).map_err(|reason| OperatorsError::Invalid { path: path.clone(), reason })?;
    files::write_atomic(&path, text.as_bytes(), None).map_err(StoreError::of)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assets::catalogue::{Content, Source};

    fn entry(path: &str) -> Entry {
        let content = Content::of_a_program("kcp", "0".repeat(64), Some("bin/kcp".into()));
        let source = Source::File { path: path.into(), content };
        Entry { version: "v0.34.0".into(), licence: String::new(), note: String::new(), source }
    }

    #[test]
    fn what_an_operator_adds_goes_over_the_built_in_catalogue() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(catalogue(dir.path()).unwrap().entry("kcp").unwrap().version, "v0.33.0");
        add(dir.path(), "kcp", entry("/srv/kcp.tar.gz")).unwrap();
        let catalogue = catalogue(dir.path()).unwrap();
        assert_eq!(catalogue.entry("kcp").unwrap().version, "v0.34.0");
        assert_eq!(catalogue.entry("kine").unwrap().version, "v0.17.5");
    }

    #[test]
    fn an_entry_without_a_pin_or_with_a_password_is_refused_by_its_file() {
        let dir = tempfile::tempdir().unwrap();
        assert!(add(dir.path(), "kcp", entry("kcp")).unwrap_err().to_string().contains("not absolute"));
        let digest = "0".repeat(64);
        for (source, reason) in [
            (format!("url = \"http://a/kcp\"\nsha256 = \"{digest}\""), "https://"),
            (format!("url = \"https://me:word@a/kcp\"\nsha256 = \"{digest}\""), "a password"),
            ("url = \"https://a/kcp\"\nsha256 = \"beef\"".to_owned(), "64 hexadecimal"),
            ("url = \"https://a/kcp\"".to_owned(), "sha256"),
        ] {
            let text = format!("[kcp]\nversion = \"v1\"\n[kcp.source]\nkind = \"https\"\n{source}\n");
            files::write_atomic(&path(dir.path()), text.as_bytes(), None).unwrap();
            let error = catalogue(dir.path()).unwrap_err().to_string();
            assert!(error.contains("catalogue.toml") && error.contains(reason), "{error}");
        }
    }

    #[test]
    fn a_component_that_berth_does_not_run_is_named() {
        let dir = tempfile::tempdir().unwrap();
        add(dir.path(), "etcd", entry("/srv/etcd")).unwrap();
        let error = catalogue(dir.path()).unwrap_err().to_string();
        assert!(error.contains("names etcd") && error.contains("kine"), "{error}");
    }
}
