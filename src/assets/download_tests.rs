use super::*;
use rcgen::{CertificateParams, KeyPair};
use std::sync::Mutex;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// An https server on loopback that answers each path with a whole response, as it stands; ends with the test's runtime.
pub(crate) struct Mirror {
    pub(crate) port: u16,
    /// Its own certificate, PEM.
    pub(crate) ca: String,
}

impl Mirror {
    pub(crate) async fn serve(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        let tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            )
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = stream.read_u8().await else { break };
                    head.push(byte);
                }
                let head = String::from_utf8(head).unwrap();
                let path = head.split(' ').nth(1).unwrap_or_default();
                // A client that hangs up is part of some tests.
                let _ = stream.write_all(&answer(path)).await;
                let _ = stream.shutdown().await;
            }
        });
        Self { port, ca: certificate.pem() }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.port)
    }

    fn roots(&self) -> RootCertStore {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        crate::files::write_atomic(&path, self.ca.as_bytes(), None).unwrap();
        roots(Some(&path)).unwrap()
    }
}

/// A whole file, as a server sends it.
pub(crate) fn ok(body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn redirect(to: &str) -> Vec<u8> {
    format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").into()
}

async fn fetched(mirror: &Mirror, path: &str) -> Result<(Vec<u8>, Vec<(u64, Option<u64>)>), String> {
    let dir = tempfile::tempdir().unwrap();
    let into = dir.path().join("file");
    let told = Mutex::new(Vec::new());
    fetch(&mirror.url(path), mirror.roots(), &into, |done, total| told.lock().unwrap().push((done, total)))
        .await
        .map_err(|error| error.to_string())?;
    Ok((crate::files::trusted::bytes(&into).unwrap(), told.into_inner().unwrap()))
}

#[tokio::test]
async fn a_file_arrives_whole_through_a_redirect_and_its_progress_is_told() {
    let body = vec![7; 300_000];
    let sent = body.clone();
    let mirror = Mirror::serve(move |path| if path == "/kcp" { ok(&sent) } else { redirect("/kcp") }).await;
    let (bytes, told) = fetched(&mirror, "/latest").await.unwrap();
    assert_eq!(bytes, body);
    assert_eq!(told.last(), Some(&(300_000, Some(300_000))));
    assert!(told.iter().is_sorted(), "{told:?}");
}

#[tokio::test]
async fn what_is_cut_refused_or_led_astray_is_said_to_be_without_the_secret_of_its_url() {
    let mirror = Mirror::serve(|path| match path.split('?').next().unwrap_or_default() {
        "/cut" => [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n".as_slice(), b"half"].concat(),
        "/plain" => redirect("http://localhost/kcp"),
        "/round" => redirect("/round"),
        _ => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec(),
    })
    .await;
    assert!(fetched(&mirror, "/plain").await.unwrap_err().contains("not https"));
    assert!(fetched(&mirror, "/round").await.unwrap_err().contains("redirects"));
    let error = fetched(&mirror, "/none?token=word").await.unwrap_err();
    assert!(error.contains("404") && error.contains("/none") && !error.contains("word"), "{error}");
    let error = fetched(&mirror, "/cut").await.unwrap_err();
    assert!(error.contains("/cut: ") && error.contains("berth assets import"), "{error}");
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_is_not_believed() {
    let (mirror, other) = (Mirror::serve(|_| ok(b"x")).await, Mirror::serve(|_| ok(b"y")).await);
    let into = tempfile::tempdir().unwrap();
    let result = fetch(&mirror.url("/"), other.roots(), &into.path().join("file"), |_, _| ()).await;
    let error = result.unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
}
