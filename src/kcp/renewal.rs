//! A new certificate for kcp, slot by slot (K10). The slot that a handover starts gets a set of its own, which differs from the
//! shared one in certificate and key; once the front has moved, that set becomes the shared one.
//!
//! ```text
//! <state>/kcp/ca/                 Berth's authority, from the first rotation on
//! <state>/kcp/renewed-slot-b/     the set slot b was staged with, until it is promoted
//! <state>/kcp/shared.before/      the set before the latest promotion: to go back, and for clients that trust it still
//! ```
//! Blocking throughout.

use crate::fault;
use crate::files;
use crate::kcp::authority::{self, AuthorityError};
use crate::kcp::material::{CERTIFICATE, FILES, KEY};
use crate::kcp::paths::SlotPaths;
use crate::kcp::shared::{Shared, SharedError};
use crate::layout::Layout;
use berth_actors::identity::SlotName;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use time::OffsetDateTime;

#[derive(Debug, Clone)]
pub(crate) struct Places {
    layout: Layout,
    pub shared: PathBuf,
    pub before: PathBuf,
    pub authority: PathBuf,
    pub renewed_a: PathBuf,
    pub renewed_b: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum RenewalError {
    #[error(transparent)]
    Shared(#[from] SharedError),
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error(transparent)]
    File(#[from] files::FileError),
}

impl Places {
    pub(crate) fn new(layout: &Layout) -> Self {
        let at = |name: &str| layout.kcp().join(name);
        Self {
            shared: layout.kcp_shared(),
            before: at("shared.before"),
            authority: at("ca"),
            renewed_a: at("renewed-slot-a"),
            renewed_b: at("renewed-slot-b"),
            layout: layout.clone(),
        }
    }

    fn renewed(&self, slot: SlotName) -> &Path {
        match slot {
            SlotName::A => &self.renewed_a,
            SlotName::B => &self.renewed_b,
        }
    }

    /// The set that `slot` starts from.
    pub(crate) fn set_of(&self, slot: SlotName) -> Shared {
        let renewed = self.renewed(slot);
        Shared::new(if renewed.exists() { renewed.to_owned() } else { self.shared.clone() })
    }

    /// `slot` is to start from the shared set again.
    pub(crate) fn discard(&self, slot: SlotName) -> Result<(), RenewalError> {
        Ok(remove(self.renewed(slot))?)
    }

    /// A set for `slot` with a new certificate, whole or not at all.
    pub(crate) fn renew(&self, slot: SlotName, now: OffsetDateTime) -> Result<(), RenewalError> {
        let set = Shared::new(self.shared.clone()).require()?;
        authority::prepare(&self.authority, now)?;
        let pair = authority::issue(&self.authority, now)?;
        self.discard(slot)?;
        let aside = self.layout.kcp().join(format!("{}renewed", files::ASIDE));
        remove(&aside)?;
        files::private_dir(&aside, None)?;
        for (name, bytes) in set.files() {
            let bytes = match name {
                CERTIFICATE => pair.chain.as_bytes(),
                KEY => pair.key.as_bytes(),
                _ => bytes,
            };
            files::write_atomic(&aside.join(name), bytes, None)?;
        }
        rename(&aside, self.renewed(slot))?;
        Ok(())
    }

    /// What `slot` starts from is what both slots share. Idempotent, also after a crash in the middle, once [`Self::recover`]
    /// has run.
    pub(crate) fn promote(&self, slot: SlotName) -> Result<(), RenewalError> {
        let renewed = self.renewed(slot);
        if renewed.exists() {
            if self.shared.exists() {
                remove(&self.before)?;
                rename(&self.shared, &self.before)?;
            }
            fault::point("shared-set-aside");
            rename(renewed, &self.shared)?;
        } else if self.was_before(slot)? {
            let gone = self.layout.kcp().join("shared.taken-back");
            remove(&gone)?;
            rename(&self.shared, &gone)?;
            rename(&self.before, &self.shared)?;
            remove(&gone)?;
        }
        Ok(())
    }

    /// Whether `slot` serves with the certificate before the shared one.
    fn was_before(&self, slot: SlotName) -> Result<bool, RenewalError> {
        let read = |dir: &Path| files::read_optional(&dir.join(CERTIFICATE));
        let serves = read(&SlotPaths::new(&self.layout, slot).root)?;
        Ok(serves.is_some() && serves == read(&self.before)? && serves != read(&self.shared)?)
    }

    /// A daemon that died between two renames left no shared set: the one before is it again, and whoever promoted does it
    /// once more.
    pub(crate) fn recover(&self) -> Result<(), RenewalError> {
        let is_there = |dir: &Path| FILES.iter().any(|name| dir.join(name).exists());
        if !self.shared.exists() && is_there(&self.before) {
            rename(&self.before, &self.shared)?;
        }
        Ok(())
    }
}

fn remove(dir: &Path) -> Result<(), files::FileError> {
    match fs::remove_dir_all(dir) {
        Err(source) if source.kind() != ErrorKind::NotFound => {
            Err(files::FileError { action: "remove", path: dir.to_owned(), source })
        }
        _ => Ok(()),
    }
}

fn rename(from: &Path, to: &Path) -> Result<(), files::FileError> {
    fs::rename(from, to).map_err(|source| files::FileError {
        action: "rename onto",
        path: to.to_owned(),
        source,
    })?;
    files::sync_dir(to.parent().unwrap_or(Path::new(".")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kcp::fixture::Fixture;
    use crate::kcp::material::Material;
    use crate::kcp::trust;
    use time::Duration;

    struct Kcp {
        _state: tempfile::TempDir,
        places: Places,
    }

    fn kcp() -> Kcp {
        let state = tempfile::tempdir().unwrap();
        let layout = Layout::new(state.path().to_owned(), None);
        files::private_dir(&layout.kcp(), None).unwrap();
        let set = Fixture::new();
        set.write(&layout.kcp_shared());
        set.write(&SlotPaths::new(&layout, SlotName::A).root);
        Kcp { _state: state, places: Places::new(&layout) }
    }

    fn now() -> OffsetDateTime {
        crate::clock::now()
    }

    fn certificate(dir: &Path) -> Vec<u8> {
        fs::read(dir.join(CERTIFICATE)).unwrap()
    }

    fn bundle(places: &Places) -> String {
        String::from_utf8(trust::bundle(places, now()).unwrap()).unwrap()
    }

    #[test]
    fn a_renewed_set_is_the_same_kcp_with_another_certificate_and_one_slots_until_it_is_promoted() {
        let Kcp { places, .. } = &kcp();
        let before = Material::read(&places.shared).unwrap();
        places.renew(SlotName::B, now()).unwrap();
        assert_eq!(certificate(&places.shared), before.certificate());
        let renewed = places.set_of(SlotName::B).require().unwrap();
        assert_ne!(renewed.certificate(), before.certificate());
        assert_eq!(renewed.token(), before.token());
        assert!(renewed.expires().unwrap() > now() + Duration::days(364));
        assert_eq!(places.set_of(SlotName::A).require().unwrap().certificate(), before.certificate());

        places.promote(SlotName::B).unwrap();
        places.promote(SlotName::B).unwrap();
        assert_eq!(certificate(&places.shared), renewed.certificate());
        assert_eq!(certificate(&places.before), before.certificate());
        assert!(!places.renewed_b.exists());
    }

    #[test]
    fn clients_trust_the_old_and_the_new_one_and_a_second_rotation_is_news_to_nobody() {
        let Kcp { places, .. } = &kcp();
        let old = String::from_utf8(certificate(&places.shared)).unwrap();
        assert_eq!(bundle(places), old, "nothing changes before a rotation");
        assert!(!authority::prepare(&places.authority, now()).unwrap());
        let prepared = bundle(places);
        let ca = fs::read_to_string(authority::certificate(&places.authority)).unwrap();
        assert!(prepared.starts_with(&old) && prepared.contains(ca.trim()), "{prepared}");

        for slot in [SlotName::B, SlotName::A] {
            places.renew(slot, now()).unwrap();
            places.promote(slot).unwrap();
            let serves = String::from_utf8(certificate(&places.shared)).unwrap();
            assert!(serves.contains(ca.trim()), "who trusts the authority trusts this one");
        }
        let after_years = now() + Duration::days(366);
        let kept = String::from_utf8(trust::bundle(places, after_years).unwrap()).unwrap();
        assert_eq!(kept.matches("BEGIN").count(), 2, "the shared leaf and its authority: {kept}");
    }

    #[test]
    fn a_daemon_that_dies_between_two_renames_loses_no_set() {
        let Kcp { places, .. } = &kcp();
        let before = certificate(&places.shared);
        places.renew(SlotName::B, now()).unwrap();
        let renewed = certificate(&places.renewed_b);
        fs::rename(&places.shared, &places.before).unwrap();

        places.recover().unwrap();
        assert_eq!(certificate(&places.shared), before);
        places.promote(SlotName::B).unwrap();
        assert_eq!(certificate(&places.shared), renewed);
    }

    #[test]
    fn a_promotion_is_taken_back_for_the_slot_that_still_serves_with_the_old_one() {
        let Kcp { places, .. } = &kcp();
        let before = certificate(&places.shared);
        places.renew(SlotName::B, now()).unwrap();
        places.promote(SlotName::B).unwrap();
        places.promote(SlotName::A).unwrap();
        assert_eq!(certificate(&places.shared), before);
        places.promote(SlotName::A).unwrap();
        assert_eq!(certificate(&places.shared), before);
    }

    #[test]
    fn the_authority_is_made_once_and_its_loss_is_named() {
        let Kcp { places, .. } = &kcp();
        assert!(!authority::prepare(&places.authority, now()).unwrap());
        let made = fs::read(authority::certificate(&places.authority)).unwrap();
        assert!(authority::prepare(&places.authority, now()).unwrap());
        assert_eq!(fs::read(authority::certificate(&places.authority)).unwrap(), made);
        fs::remove_file(places.authority.join("ca.key")).unwrap();
        let error = places.renew(SlotName::B, now()).unwrap_err().to_string();
        assert!(error.contains("ca.key is missing"), "{error}");
        assert!(!places.renewed_b.exists());
    }
}
