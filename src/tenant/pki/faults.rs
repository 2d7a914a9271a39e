//! Rotations that are killed at every place there is, one after the other, on one set of keys.

use super::encryption::Stage;
use super::*;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

/// Where the process that is to die works.
const PLACE: &str = "BERTH_TEST_ROTATION";
const TEST: &str = "tenant::pki::faults::a_rotation_that_is_killed_anywhere_is_finished_by_the_next_start";

fn pki(dir: &Path) -> Pki {
    Pki { cluster: "demo".to_owned(), dir: dir.join("pki"), owner: None }
}

fn rotate_everything(pki: &Pki) {
    let now = crate::clock::now();
    pki.rotate(Which::All, now).unwrap();
    pki.rotate_service_account(now + time::Duration::days(1)).unwrap();
    for stage in [Stage::Settled, Stage::Announced, Stage::Preferred] {
        pki.advance_encryption(stage).unwrap();
    }
}

/// What a component may read before anybody has recovered anything: the old pair, the new one, or a change that is on record.
fn no_pair_is_lost(pki: &Pki) {
    for leaf in &LEAVES {
        let path = pki.certificate(leaf.name);
        let certificate = Certificate::parse(&files::read(&path).unwrap(), &path).unwrap();
        let fits = certificate.is_of(&load_key(&pki.key(leaf.name)).unwrap());
        assert!(fits || pki.next(leaf.name).exists(), "{}", leaf.name);
    }
    pki.encryption_keys().unwrap();
    pki.verifiers().unwrap();
}

fn everything_fits(pki: &Pki) {
    for leaf in &LEAVES {
        let [path, ca] = [leaf.name, leaf.ca].map(|name| pki.certificate(name));
        let [own, authority] =
            [path, ca].map(|path| Certificate::parse(&files::read(&path).unwrap(), &path).unwrap());
        assert!(own.is_of(&load_key(&pki.key(leaf.name)).unwrap()), "{}", leaf.name);
        assert!(own.is_signed_by(&authority), "{}", leaf.name);
        assert!(!pki.next(leaf.name).exists());
    }
    let verifiers = pki.verifiers().unwrap();
    assert!(verifiers[0].is_of(&load_key(&pki.service_account_key()).unwrap()));
    assert!(verifiers[0].until.is_none() && verifiers[1..].iter().all(|verifier| verifier.until.is_some()));
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a test may wait for the process that it has killed")]
fn a_rotation_that_is_killed_anywhere_is_finished_by_the_next_start() {
    if let Some(dir) = std::env::var_os(PLACE) {
        return rotate_everything(&pki(Path::new(&dir)));
    }
    let dir = tempfile::tempdir().unwrap();
    let pki = pki(dir.path());
    pki.ensure().unwrap();
    let first = pki.verifiers().unwrap()[0].id();
    let armed = dir.path().join("fault");
    let mut deaths = 0;
    loop {
        files::write_atomic(&armed, format!("* {deaths} die").as_bytes(), None).unwrap();
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", TEST])
            .env(PLACE, dir.path())
            .env(crate::fault::ARMED_IN, &armed)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        no_pair_is_lost(&pki);
        pki.ensure().unwrap();
        everything_fits(&pki);
        assert!(
            pki.verifiers().unwrap().iter().any(|verifier| verifier.id() == first),
            "no key is forgotten"
        );
        if status.success() {
            break;
        }
        assert_eq!(status.signal(), Some(9), "{status}");
        deaths += 1;
    }
    // Three files a pair, three for the signer, one a stage, each with five places within its writing.
    assert!(deaths >= 5 * (3 * 5 + 3) + 3 * 5, "{deaths} places");
}
