//! Keys of P-256 in SEC 1 (`EC PRIVATE KEY`), as Go's x509 package writes them and k3s leaves them. rcgen speaks PKCS #8.

use base64::{Engine, engine::general_purpose::STANDARD};
use pkcs8::{AlgorithmIdentifierRef, ObjectIdentifier, PrivateKeyInfo, SecretDocument};
use rcgen::KeyPair;
use std::io;
use tokio_rustls::rustls::pki_types::{PrivatePkcs8KeyDer, PrivateSec1KeyDer, pem::PemObject};

const EC_PUBLIC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
/// `[0] { prime256v1 }`: Go needs the name of the curve, PKCS #8 has it outside.
const CURVE: [u8; 12] = *b"\xa0\x0a\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07";
/// Where it belongs: after version and key, before the public half.
const BEFORE: usize = 39;

pub(super) fn write(key: &KeyPair) -> io::Result<String> {
    let pkcs8 = key.serialize_der();
    let inner = PrivateKeyInfo::try_from(pkcs8.as_slice()).map_err(io::Error::other)?.private_key;
    let (Some((head, tail)), Some(length)) = (inner.split_at_checked(BEFORE), inner.get(1)) else {
        return Err(io::Error::other("this is no key of P-256"));
    };
    let length = length + u8::try_from(CURVE.len()).unwrap_or_default();
    let sec1: Vec<u8> = [&head[..1], &[length], &head[2..], &CURVE, tail].concat();
    let text = STANDARD.encode(sec1);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| str::from_utf8(line).ok()).collect();
    Ok(format!("-----BEGIN EC PRIVATE KEY-----\n{}\n-----END EC PRIVATE KEY-----\n", lines.join("\n")))
}

pub(super) fn read(pem: &str) -> io::Result<KeyPair> {
    let sec1 = PrivateSec1KeyDer::from_pem_slice(pem.as_bytes()).map_err(io::Error::other)?;
    let algorithm = AlgorithmIdentifierRef { oid: EC_PUBLIC_KEY, parameters: Some((&P256).into()) };
    let pkcs8 = SecretDocument::try_from(PrivateKeyInfo::new(algorithm, sec1.secret_sec1_der()))
        .map_err(io::Error::other)?;
    KeyPair::try_from(&PrivatePkcs8KeyDer::from(pkcs8.as_bytes())).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_back_as_it_was() {
        let key = KeyPair::generate().unwrap();
        let pem = write(&key).unwrap();
        assert!(pem.starts_with("-----BEGIN EC PRIVATE KEY-----\n"));
        assert_eq!(read(&pem).unwrap().public_key_pem(), key.public_key_pem());
    }
}
