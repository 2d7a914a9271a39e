//! What the catalogues ask for: each component with the key it has in the store, and the files that may become it.
//!
//! Import looks a file up here by its digest; gc keeps what is named here. Reads nothing.

use super::catalogue::{self, Catalogue, CatalogueError, Content, Entry, Source};
use super::golang::GoProgram;
use super::wheel::Wheel;

/// One component as it is asked for.
#[derive(Debug, Clone)]
pub(super) struct Pin {
    pub component: String,
    pub version: String,
    /// Of the asset in the store.
    pub key: String,
    /// sha256 of the files that are it, before anything is unpacked; none for what is built here or only an operator has.
    pub digests: Vec<String>,
}

pub(super) fn all(catalogue: &Catalogue) -> Result<Vec<Pin>, CatalogueError> {
    catalogue.entries().map(|(component, entry)| of(component, entry)).collect()
}

pub(super) fn of(component: &str, entry: &Entry) -> Result<Pin, CatalogueError> {
    let (key, digests) = match &entry.source {
        Source::Wheel { .. } => {
            let (wheel, digests) = wheel(component, entry)?;
            (wheel.key(), digests.into_iter().map(str::to_owned).collect())
        }
        Source::GoTool { .. } => (go_program(component, entry)?.key(), Vec::new()),
        Source::Operator { .. } => (catalogue::key_by_hand(component, &entry.version), Vec::new()),
        Source::File { content, .. } | Source::Https { content, .. } => {
            (content.key(component, &entry.version), vec![content.sha256.clone()])
        }
    };
    Ok(Pin { component: component.to_owned(), version: entry.version.clone(), key, digests })
}

/// The wheel of an entry that is one, and the digests it may have.
pub(super) fn wheel<'a>(
    component: &'a str,
    entry: &'a Entry,
) -> Result<(Wheel<'a>, Vec<&'static str>), CatalogueError> {
    let Source::Wheel { package, package_version, pins, members, .. } = &entry.source else {
        return Err(CatalogueError::new(format!("{component} is no wheel")));
    };
    let (requirement, digests) = catalogue::wheel_pin(pins, package, package_version)?;
    Ok((Wheel { component, package, version: package_version, requirement, members }, digests))
}

pub(super) fn go_program<'a>(component: &'a str, entry: &'a Entry) -> Result<GoProgram<'a>, CatalogueError> {
    let Source::GoTool { import_path, pins, .. } = &entry.source else {
        return Err(CatalogueError::new(format!("{component} is not built")));
    };
    let pins = catalogue::go_pins(pins)?;
    Ok(GoProgram { component, version: &entry.version, import_path, pins })
}

/// The pinned file of an entry that has one.
pub(super) fn content(entry: &Entry) -> Option<&Content> {
    match &entry.source {
        Source::File { content, .. } | Source::Https { content, .. } => Some(content),
        Source::Wheel { .. } | Source::GoTool { .. } | Source::Operator { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_component_has_a_key_of_its_own() {
        let pins = all(&Catalogue::embedded().unwrap()).unwrap();
        let mut keys: Vec<_> = pins.iter().map(|pin| &pin.key).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), pins.len());
        let digests = |name| pins.iter().find(|pin| pin.component == name).unwrap().digests.len();
        assert!(digests("postgres") > 0 && digests("openbao") > 0 && digests("kine") == 0);
    }
}
