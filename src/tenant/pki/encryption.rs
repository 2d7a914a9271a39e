//! The API server's encryption at rest: which keys there are, and which of them seals.
//!
//! The file is also the record of a rotation, so that each stage is durable before anything is done in it:
//! ```text
//! [k1]  ─begin─▶  [k1, k2]  ─prefer─▶  [k2, k1]  ─drop─▶  [k2]
//!                 both open, k1 seals  both open, k2 seals: everything is sealed anew
//! ```

use super::{Pki, PkiError, random_key, turn};
use crate::files;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What of a tenant is sealed before it reaches kine, whose log and database see only that.
pub(crate) const SEALED: [&str; 2] = ["secrets", "configmaps"];

/// Where a rotation of the key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// There is one key.
    Settled,
    /// The newer one opens, and the older one still seals.
    Announced,
    /// The newer one seals, and the older one still opens what was sealed before.
    Preferred,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Key {
    name: String,
    secret: String,
}

/// The keys in their order: the first one seals.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Keys(Vec<Key>);

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|key| &key.name)).finish()
    }
}

impl Keys {
    pub(super) fn first(key: &[u8; 32]) -> Self {
        Self(vec![Key { name: "k1".to_owned(), secret: BASE64.encode(key) }])
    }

    pub(super) fn text(&self) -> String {
        let config = serde_json::json!({
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "EncryptionConfiguration",
            "resources": [{
                "resources": SEALED,
                "providers": [{ "secretbox": { "keys": self.0 } }],
            }],
        });
        format!("{config:#}\n")
    }

    fn parse(text: &[u8]) -> Result<Self, String> {
        let config: serde_json::Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let keys = &config["resources"][0]["providers"][0]["secretbox"]["keys"];
        let keys: Vec<Key> = Vec::deserialize(keys).map_err(|_| "it names no secretbox keys".to_owned())?;
        let numbers: Option<Vec<u32>> = keys.iter().map(|key| number(&key.name)).collect();
        match numbers.as_deref() {
            Some([_]) => Ok(Self(keys)),
            Some([one, other]) if one != other => Ok(Self(keys)),
            _ => Err("its keys are not those of a rotation: one or two, called k1, k2 and so on".to_owned()),
        }
    }

    pub(crate) fn stage(&self) -> Stage {
        let numbers: Vec<_> = self.0.iter().map(|key| number(&key.name)).collect();
        match numbers[..] {
            [first, second] if first < second => Stage::Announced,
            [_, _] => Stage::Preferred,
            _ => Stage::Settled,
        }
    }

    /// What the API server writes before whatever it seals with a key that is to go.
    pub(crate) fn old_marks(&self) -> Vec<String> {
        self.0.iter().skip(1).map(|key| format!("k8s:enc:secretbox:v1:{}:", key.name)).collect()
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        self.0.iter().map(|key| key.name.as_str()).collect()
    }

    fn next(mut self, key: &[u8; 32]) -> Self {
        match self.stage() {
            Stage::Settled => {
                let newest = self.0.first().and_then(|key| number(&key.name)).unwrap_or_default();
                self.0.push(Key { name: format!("k{}", newest + 1), secret: BASE64.encode(key) });
            }
            Stage::Announced => self.0.swap(0, 1),
            Stage::Preferred => self.0.truncate(1),
        }
        self
    }
}

fn number(name: &str) -> Option<u32> {
    name.strip_prefix('k')?.parse().ok()
}

impl Pki {
    pub(crate) fn encryption_keys(&self) -> Result<Keys, PkiError> {
        let path = self.encryption();
        Keys::parse(&files::read(&path)?).map_err(|reason| PkiError::Unusable { path, reason })
    }

    /// As the API server tells which configuration it has in use.
    pub(crate) fn encryption_digest(&self) -> Result<String, PkiError> {
        Ok(format!("sha256:{}", hex::encode(Sha256::digest(files::read(&self.encryption())?))))
    }

    /// From `stage` to the next one; nothing where the keys are in another stage. Durable before it returns.
    pub(crate) fn advance_encryption(&self, stage: Stage) -> Result<(), PkiError> {
        turn::take(&self.dir, || {
            let keys = self.encryption_keys()?;
            if keys.stage() != stage {
                return Ok(());
            }
            self.write(&self.encryption(), keys.next(&random_key()?).text().as_bytes())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rotation_goes_through_its_stages_and_each_is_read_back() {
        let mut keys = Keys::first(&[1; 32]);
        let mut stages = Vec::new();
        for key in 2..=7 {
            keys = Keys::parse(keys.next(&[key; 32]).text().as_bytes()).unwrap();
            stages.push((keys.stage(), keys.names().join(" ")));
        }
        let stage = |stage, names: &str| (stage, names.to_owned());
        assert_eq!(
            stages,
            [
                stage(Stage::Announced, "k1 k2"),
                stage(Stage::Preferred, "k2 k1"),
                stage(Stage::Settled, "k2"),
                stage(Stage::Announced, "k2 k3"),
                stage(Stage::Preferred, "k3 k2"),
                stage(Stage::Settled, "k3"),
            ]
        );
        assert_eq!(keys.old_marks(), [""; 0]);
        assert_eq!(keys.next(&[9; 32]).old_marks(), ["k8s:enc:secretbox:v1:k4:"]);
    }

    #[test]
    fn keys_that_no_rotation_left_are_refused_and_never_shown() {
        let of = |names: &[&str]| {
            let key = |name: &&str| Key { name: (*name).to_owned(), secret: "hidden".to_owned() };
            Keys(names.iter().map(key).collect())
        };
        for names in [&[][..], &["mine"], &["k1", "k1"], &["k1", "k2", "k3"]] {
            let error = Keys::parse(of(names).text().as_bytes()).unwrap_err();
            assert!(!error.contains("hidden"), "{error}");
        }
        assert_eq!(format!("{:?}", of(&["k2", "k1"])), r#"["k2", "k1"]"#);
    }
}
