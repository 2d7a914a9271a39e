//! What kcp's clients have to trust: the certificate both slots serve with, the one that is about to take its place, and the one
//! it took the place of, for as long as that is valid.
//!
//! Clients' kubeconfigs are made of it, and Berth's own requests. While certificates change, either slot is believed.

use crate::files::{self, FileError};
use crate::kcp::authority;
use crate::kcp::material::{CERTIFICATE, expiry_of};
use crate::kcp::renewal::Places;
use std::path::PathBuf;
use time::OffsetDateTime;

const END: &str = "-----END CERTIFICATE-----";

/// Every certificate once, PEM; the shared ones first. Blocking.
pub(crate) fn bundle(places: &Places, now: OffsetDateTime) -> Result<Vec<u8>, FileError> {
    let mut bundle: Vec<String> = Vec::new();
    let shared = places.shared.join(CERTIFICATE);
    for path in [shared.clone()].into_iter().chain(others(places)) {
        let Some(bytes) = files::read_optional(&path)? else { continue };
        for block in String::from_utf8_lossy(&bytes).split_inclusive(END) {
            let Some((_, body)) = block.split_once("-----BEGIN CERTIFICATE-----") else { continue };
            let block = format!("-----BEGIN CERTIFICATE-----{body}\n");
            // What the slots serve with stays, whatever it is: it is not this file's to judge.
            if !bundle.contains(&block) && (path == shared || is_valid(&block, now)) {
                bundle.push(block);
            }
        }
    }
    Ok(bundle.concat().into_bytes())
}

fn others(places: &Places) -> impl Iterator<Item = PathBuf> + use<> {
    let sets = [&places.renewed_a, &places.renewed_b, &places.before].map(|dir| dir.join(CERTIFICATE));
    [authority::certificate(&places.authority)].into_iter().chain(sets)
}

fn is_valid(block: &str, now: OffsetDateTime) -> bool {
    expiry_of(block.as_bytes()).is_some_and(|ends| ends > now)
}
