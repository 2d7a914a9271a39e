//! One file from an https server of the operator's choice, streamed to disk. What it must be is checked by whoever asked.

use super::record::at;
use super::store::StoreError;
use crate::one_line::one_line;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_LENGTH, LOCATION, USER_AGENT};
use hyper::{Request, Response, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

/// A server that is silent for this long has gone.
const SILENCE: Duration = Duration::from_secs(60);
/// The whole of it: 200 MB at 60 kB/s.
const DEADLINE: Duration = Duration::from_hours(1);
/// Release pages send one or two.
const REDIRECTS: usize = 5;
/// No component is as large; a server that never ends must not fill the disk.
const LARGEST: u64 = 4 << 30;

#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    #[error("{url}: {reason}; `berth assets import` takes the file from elsewhere")]
    Failed { url: String, reason: String },
    #[error("the certificate authority {path}: {reason}")]
    Authority { path: PathBuf, reason: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Whose certificates are believed: those `ca` holds, else those the host trusts. Blocking.
pub(super) fn roots(ca: Option<&Path>) -> Result<RootCertStore, DownloadError> {
    let mut roots = RootCertStore::empty();
    let Some(path) = ca else {
        let native = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(native.certs);
        if roots.is_empty() {
            let reason = "this host trusts none; install its package ca-certificates, or name one with `ca`";
            return Err(DownloadError::Authority {
                path: "/etc/ssl/certs".into(),
                reason: reason.to_owned(),
            });
        }
        return Ok(roots);
    };
    let bad = |reason: String| DownloadError::Authority { path: path.to_owned(), reason: one_line(reason) };
    let pem = crate::files::trusted::bytes(path).map_err(|error| bad(error.to_string()))?;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| bad(error.to_string()))?;
        roots.add(certificate).map_err(|error| bad(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(bad("it has no certificate in it".to_owned()));
    }
    Ok(roots)
}

/// Writes what `url` serves to the new file `into`. `tell` hears bytes done, and bytes in all where the server says so.
/// Cancel-safe: a part of a file is left.
pub(super) async fn fetch(
    url: &str,
    roots: RootCertStore,
    into: &Path,
    tell: impl Fn(u64, Option<u64>),
) -> Result<(), DownloadError> {
    let failed = |reason: String| DownloadError::Failed { url: shown(url), reason: one_line(reason) };
    let transfer = async {
        let response = ask(url, roots).await.map_err(failed)?;
        let length = response.headers().get(CONTENT_LENGTH).and_then(|text| text.to_str().ok()?.parse().ok());
        if length.is_some_and(|length: u64| length > LARGEST) {
            return Err(failed("it is larger than any component".to_owned()));
        }
        let write = |error| DownloadError::Store(StoreError::of(at("write", into)(error)));
        let mut file = tokio::fs::File::create_new(into).await.map_err(write)?;
        let (mut body, mut done) = (response.into_body(), 0);
        while let Some(frame) = within(body.frame()).await.map_err(failed)? {
            let frame = frame.map_err(|error| failed(root_cause(&error)))?;
            let Ok(data) = frame.into_data() else { continue };
            done += data.len() as u64;
            if done > LARGEST {
                return Err(failed("it is larger than any component".to_owned()));
            }
            file.write_all(&data).await.map_err(write)?;
            tell(done, length);
        }
        file.flush().await.map_err(write)?;
        match length {
            Some(length) if length != done => Err(failed(format!("it ended after {done} of {length} bytes"))),
            _ => Ok(()),
        }
    };
    let late = || failed(format!("not done within {} minutes", DEADLINE.as_secs() / 60));
    tokio::time::timeout(DEADLINE, transfer).await.unwrap_or_else(|_| Err(late()))
}

/// The first answer that is no redirect.
async fn ask(url: &str, roots: RootCertStore) -> Result<Response<Incoming>, String> {
    let client = client(roots)?;
    let mut uri: Uri = url.parse().map_err(|error| format!("it is no URL: {error}"))?;
    for _ in 0..=REDIRECTS {
        let request = Request::get(uri.clone())
            .header(USER_AGENT, concat!("berth/", env!("CARGO_PKG_VERSION")))
            .body(Empty::<Bytes>::new())
            .map_err(|error| error.to_string())?;
        let response = within(client.request(request)).await?.map_err(|error| root_cause(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let to = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
        match to {
            Some(to) if status.is_redirection() => uri = redirected(&uri, to)?,
            _ => return Err(format!("the server answers {status}")),
        }
    }
    Err(format!("more than {REDIRECTS} redirects"))
}

/// Only to where it is encrypted as well.
fn redirected(from: &Uri, to: &str) -> Result<Uri, String> {
    let to = if to.starts_with('/') {
        format!("https://{}{to}", from.authority().map_or("", |authority| authority.as_str()))
    } else {
        to.to_owned()
    };
    if !to.starts_with("https://") {
        return Err("it redirects to what is not https".to_owned());
    }
    to.parse().map_err(|error| format!("it redirects to no URL: {error}"))
}

fn client(roots: RootCertStore) -> Result<Client<HttpsConnector<HttpConnector>, Empty<Bytes>>, String> {
    let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1().build();
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

async fn within<T>(wait: impl Future<Output = T>) -> Result<T, String> {
    let silent = |_| format!("the server was silent for {} s", SILENCE.as_secs());
    tokio::time::timeout(SILENCE, wait).await.map_err(silent)
}

/// Without what follows a question mark: it may let its reader in.
fn shown(url: &str) -> String {
    url.split(['?', '#']).next().unwrap_or_default().to_owned()
}

/// hyper's own text is "client error (Connect)"; what an operator needs is the innermost source.
fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| error.source()).last().unwrap_or(error).to_string()
}

#[cfg(test)]
#[path = "download_tests.rs"]
pub(super) mod tests;
