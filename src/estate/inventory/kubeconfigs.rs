//! Kubeconfigs that hold a certificate: copies of a leaf, and the cloud controller manager's own.

use super::Look;
use crate::ccm;
use crate::control::api::Credential;
use crate::files;
use crate::one_line::one_line;
use crate::tenant::pki::certificate::Certificate;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use kube::config::Kubeconfig;
use std::path::Path;
use time::Duration;

/// The CCM's is minted anew 56 hours before its end.
const CCM_NOTICE: Duration = Duration::days(1);

impl Look {
    /// One that holds copies of `leaf`'s files.
    pub(super) fn kubeconfig(&self, file: &str, leaf: &str, purpose: &str) -> Credential {
        let path = self.data.join(file);
        let renewal = "with the certificate in it".to_owned();
        let mut credential = self.credential(&path, purpose, renewal);
        match (files::read_optional(&path), files::read(&self.pki.certificate(leaf))) {
            (Ok(None), _) => "written at its component's start".clone_into(&mut credential.renewal),
            (Ok(Some(text)), Ok(own)) if certificate_in(&text).is_ok_and(|copy| copy == own) => {}
            (Ok(Some(_)), Ok(_)) => {
                let problem =
                    format!("it holds another certificate than pki/{leaf}.crt: `berth cluster certs rotate`");
                credential.problems.push(problem);
            }
            (Err(error), _) | (_, Err(error)) => credential.problems.push(one_line(error)),
        }
        self.guarded(&mut credential, &path);
        credential
    }

    pub(super) fn ccm(&self, client_ca: &Path) -> Credential {
        let path = ccm::credential_file(&self.data);
        let mut credential =
            self.credential(&path, "cloud-controller-manager, to the API server", String::new());
        let text = match files::read_optional(&path) {
            Ok(Some(text)) => text,
            Ok(None) => {
                "minted at its start".clone_into(&mut credential.renewal);
                return credential;
            }
            Err(error) => {
                credential.problems.push(one_line(error));
                return credential;
            }
        };
        let read =
            certificate_in(&text).and_then(|pem| Certificate::parse(&pem, &path).map_err(|e| e.to_string()));
        match read {
            Ok(certificate) => {
                self.describe(&mut credential, &certificate, CCM_NOTICE);
                self.signed(&mut credential, &certificate, client_ca);
                let due =
                    ccm::Validity { not_before: certificate.not_before, not_after: certificate.not_after };
                credential.renewal = format!("by the daemon, from {} on", due.renew_at().date());
            }
            Err(reason) => credential.problems.push(reason),
        }
        self.guarded(&mut credential, &path);
        credential
    }
}

/// The client certificate in a kubeconfig.
pub(in crate::estate) fn certificate_in(kubeconfig: &[u8]) -> Result<Vec<u8>, String> {
    let text = std::str::from_utf8(kubeconfig).map_err(|_| "it is no text".to_owned())?;
    let config = Kubeconfig::from_yaml(text).map_err(|_| "it is no kubeconfig".to_owned())?;
    let user = config.auth_infos.first().and_then(|named| named.auth_info.as_ref());
    let data = user.and_then(|user| user.client_certificate_data.as_ref());
    let data = data.ok_or_else(|| "there is no certificate in it".to_owned())?;
    BASE64.decode(data).map_err(|_| "its certificate is not base64".to_owned())
}
