//! What k3s keeps for itself, and the vault's certificate, which is Berth's.

use super::Look;
use crate::control::api::Credential;
use crate::files;
use crate::tenant::k3s::TLS;
use crate::tenant::pki::LEAVES;
use std::path::{Path, PathBuf};
use time::Duration;

/// k3s makes its leaves anew when it starts with less than this left.
const RENEWED_AT_START: Duration = Duration::days(90);
const AUTHORITY_NOTICE: Duration = Duration::days(365);

impl Look {
    pub(super) fn k3s(&self) -> Vec<Credential> {
        let mut all = vec![self.authority("server-ca")];
        all.extend(LEAVES.iter().filter(|leaf| leaf.name == "bao").map(|leaf| self.leaf(leaf)));
        let dir = self.data.join(TLS);
        let mut certificates: Vec<PathBuf> = files::list(&dir)
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(dir.join(entry.ok()?.file_name())))
            .filter(|path| path.extension().is_some_and(|extension| extension == "crt"))
            // Some are bundles, or serve others: what has no key beside it is not k3s's to show.
            .filter(|path| path.with_extension("key").exists())
            .collect();
        certificates.sort();
        all.extend(certificates.iter().map(|path| self.of_k3s(&dir, path)));
        all
    }

    fn of_k3s(&self, dir: &Path, path: &Path) -> Credential {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let is_authority = name.ends_with("-ca");
        let authority = match &name {
            _ if is_authority => path.to_owned(),
            name if name == "client-auth-proxy" => dir.join("request-header-ca.crt"),
            name if name.starts_with("client-") => dir.join("client-ca.crt"),
            _ => dir.join("server-ca.crt"),
        };
        let (renewal, notice) = if is_authority {
            ("not replaced by itself: it is what others know the cluster by", AUTHORITY_NOTICE)
        } else {
            ("by k3s, when it starts within 90 days of its end", RENEWED_AT_START / 3)
        };
        let mut credential = self.credential(path, "k3s's own", renewal.to_owned());
        self.judge(&mut credential, path, &authority, &path.with_extension("key"), notice);
        credential
    }
}
