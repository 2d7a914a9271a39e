//! Every certificate and key of a tenant: what it is for, when it ends, who replaces it, and whether it fits.
//!
//! `berth cluster certs check` shows it, and the status what is wrong in it. It reads files and changes nothing. Blocking.

mod fit;
mod k3s;
mod kubeconfigs;

use crate::control::api::Credential;
use crate::one_line::one_line;
use crate::tenant::Tenant;
use crate::tenant::defaults::RENEW_BEFORE;
use crate::tenant::pki::encryption::Stage;
use crate::tenant::pki::{AUTHORITIES, LEAVES, Leaf, Pki, load_key};
use crate::tenant::{kube_controller_manager, openbao};
use berth_actors::host::Distribution;
pub(super) use kubeconfigs::certificate_in;
use std::path::PathBuf;
use time::{Duration, OffsetDateTime};

/// An authority's end takes all that it signed along, and every client has to be told of its successor.
const AUTHORITY_NOTICE: Duration = Duration::days(365);
/// A leaf is made anew 121 days before its end: with so many left, that has failed for two months.
const LEAF_NOTICE: Duration = Duration::days(60);

pub(super) fn of(tenant: &Tenant, now: OffsetDateTime) -> Vec<Credential> {
    let look = Look { data: tenant.seat().data.clone(), pki: tenant.pki(), now };
    let mut all = match tenant.distribution() {
        Distribution::Kubernetes => look.kubernetes(),
        Distribution::K3s => look.k3s(),
    };
    all.push(look.ccm(&tenant.credentials().client_ca));
    all.extend(look.vault());
    all
}

/// What is wrong, one line each, for the status.
pub(super) fn notices(cluster: &str, credentials: &[Credential]) -> Vec<String> {
    let of = |credential: &Credential| {
        let file = credential.file.clone();
        credential.problems.clone().into_iter().map(move |problem| format!("{cluster}: {file}: {problem}"))
    };
    credentials.iter().flat_map(of).collect()
}

struct Look {
    data: PathBuf,
    pki: Pki,
    now: OffsetDateTime,
}

impl Look {
    fn kubernetes(&self) -> Vec<Credential> {
        let mut all: Vec<_> = AUTHORITIES.iter().map(|name| self.authority(name)).collect();
        all.extend(LEAVES.iter().map(|leaf| self.leaf(leaf)));
        let controllers = kube_controller_manager::KUBECONFIG;
        all.push(self.kubeconfig("kubeconfig", "admin", "the administrator's way in"));
        all.push(self.kubeconfig(
            controllers,
            kube_controller_manager::NAME,
            "kube-controller-manager's way in",
        ));
        all.push(self.signer());
        all.push(self.encryption());
        all
    }

    fn authority(&self, name: &str) -> Credential {
        let purpose = match name {
            "server-ca" => "signs what servers show",
            "client-ca" => "signs what clients show",
            _ => "signs what kube-apiserver shows to extension API servers",
        };
        let renewal = "not replaced by itself: it is what others know the cluster by";
        let (path, key) = (self.pki.certificate(name), self.pki.key(name));
        let mut credential = self.credential(&path, purpose, renewal.to_owned());
        self.judge(&mut credential, &path, &path, &key, AUTHORITY_NOTICE);
        credential
    }

    fn leaf(&self, leaf: &Leaf) -> Credential {
        let path = self.pki.certificate(leaf.name);
        let mut credential = self.credential(&path, leaf.purpose, String::new());
        let (authority, key) = (self.pki.certificate(leaf.ca()), self.pki.key(leaf.name));
        let end = self.judge(&mut credential, &path, &authority, &key, LEAF_NOTICE);
        credential.renewal = match end {
            Some(end) => format!("by the daemon, from {} on", (end - RENEW_BEFORE).date()),
            None => "not before it is repaired".to_owned(),
        };
        credential
    }

    fn signer(&self) -> Credential {
        let path = self.pki.service_account_key();
        let by_order = "by `berth cluster certs rotate --service-account-key`".to_owned();
        let mut credential = self.credential(&path, "signs the tokens of ServiceAccounts", by_order);
        match (load_key(&path), self.pki.verifiers()) {
            (Ok(key), Ok(verifiers)) => {
                let signs = verifiers.first().is_some_and(|first| first.is_of(&key));
                if !signs {
                    credential.problems.push("pki/sa.pub does not begin with its public half".to_owned());
                }
                let old = verifiers.iter().filter_map(|verifier| verifier.until);
                let old: Vec<_> = old.map(|until| until.date().to_string()).collect();
                if !old.is_empty() {
                    credential.renewal =
                        format!("{}; those before it verify until {}", credential.renewal, old.join(", "));
                }
            }
            (Err(error), _) | (_, Err(error)) => credential.problems.push(one_line(error)),
        }
        self.guarded(&mut credential, &path);
        credential
    }

    fn encryption(&self) -> Credential {
        let path = self.pki.encryption();
        let by_order = "by `berth cluster certs rotate --encryption-key`".to_owned();
        let mut credential = self.credential(&path, "seals Secrets and ConfigMaps at rest", by_order);
        match self.pki.encryption_keys() {
            Ok(keys) if keys.stage() != Stage::Settled => {
                credential.renewal = format!("under way: the keys are {}", keys.names().join(", "));
            }
            Ok(_) => {}
            Err(error) => credential.problems.push(one_line(error)),
        }
        self.guarded(&mut credential, &path);
        credential
    }

    /// Until its first start it has none.
    fn vault(&self) -> Vec<Credential> {
        let secret = |(path, purpose, renewal): (PathBuf, &str, &str)| {
            let mut credential = self.credential(&path, purpose, renewal.to_owned());
            if path.exists() {
                self.guarded(&mut credential, &path);
            } else if openbao::is_initialised(&self.data) {
                credential
                    .problems
                    .push("it is missing, and the vault needs it: restore it from a backup".to_owned());
            }
            credential
        };
        let [seal, password] = openbao::secrets(&self.data);
        let by_order = "by `berth cluster certs rotate --seal-key`";
        let by_hand = "by hand, in the vault and in this file";
        [(seal, "opens the vault", by_order), (password, "the vault's operator", by_hand)]
            .map(secret)
            .to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::write_atomic;
    use std::os::unix::fs::PermissionsExt;

    fn look() -> (tempfile::TempDir, Look) {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().to_owned();
        let pki = Pki { cluster: "demo".to_owned(), dir: data.join("pki"), owner: None };
        pki.ensure().unwrap();
        (dir, Look { data, pki, now: crate::clock::now() })
    }

    fn problems(all: &[Credential]) -> Vec<String> {
        notices("demo", all)
    }

    #[test]
    fn a_fresh_set_is_well_and_says_when_each_is_replaced() {
        let (_dir, look) = look();
        let all = look.kubernetes();
        assert_eq!(problems(&all), [""; 0]);
        let server = all.iter().find(|credential| credential.file == "pki/apiserver.crt").unwrap();
        assert_eq!(server.subject.as_deref(), Some("CN=kube-apiserver"));
        assert_eq!(server.issuer.as_deref(), Some("CN=demo server-ca"));
        assert!(server.left_seconds.unwrap() > 364 * 86_400, "{server:?}");
        let due = (look.now + Duration::days(365) - RENEW_BEFORE).date();
        assert_eq!(server.renewal, format!("by the daemon, from {due} on"));
    }

    #[test]
    fn what_ends_what_does_not_fit_and_what_others_may_read_is_told_by_its_file() {
        let (_dir, mut look) = look();
        let copy =
            |from: PathBuf, to: PathBuf| write_atomic(&to, &std::fs::read(from).unwrap(), None).unwrap();
        copy(look.pki.key("admin"), look.pki.key("bao"));
        copy(look.pki.certificate("front-proxy-client"), look.pki.certificate("admin"));
        let open = std::fs::Permissions::from_mode(0o640);
        std::fs::set_permissions(look.pki.service_account_key(), open).unwrap();
        assert_eq!(
            problems(&look.kubernetes()),
            [
                "demo: pki/bao.crt: pki/bao.key is not its key",
                "demo: pki/admin.crt: pki/client-ca.crt did not sign it",
                "demo: pki/admin.crt: pki/admin.key is not its key",
                "demo: pki/sa.key: others may read pki/sa.key (mode 0640): chmod 0600",
            ]
        );
        look.now += Duration::days(310);
        let soon = problems(&look.kubernetes());
        assert!(
            soon.iter().any(|line| line.contains("apiserver.crt: it ends on") && line.contains("in 5")),
            "{soon:?}"
        );
        look.now += Duration::days(60);
        let over = problems(&look.kubernetes());
        assert!(over.iter().any(|line| line.contains("apiserver.crt: it has ended on")), "{over:?}");
    }
}
