//! Backups as they are written, and every way in which a file can be none.

use super::*;
use crate::backup::archive::Archive;
use crate::backup::manifest::FORMAT;
use crate::guard::{Owner, Phase, Record};
use berth_actors::host::Distribution;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

fn header() -> Header {
    Header {
        format: FORMAT,
        berth: "0.0.0".to_owned(),
        cluster: "demo".to_owned(),
        made: "2026-01-02T03:04:05Z".to_owned(),
        bytes: 100,
    }
}

fn manifest() -> Manifest {
    let identity = Record {
        owner: Owner { cluster: "demo".to_owned(), uid: "u".to_owned() },
        epoch: 1,
        phase: Phase::Settled,
        system_identifier: "7001".to_owned(),
        authorities: BTreeMap::new(),
        data_dir: "/s/clusters/demo".into(),
        data_dir_inode: 7,
        machine_id: None,
        replaces: None,
    };
    let Header { format, berth, cluster, made, .. } = header();
    Manifest {
        format,
        berth,
        cluster,
        made,
        distribution: Distribution::Kubernetes,
        postgres: "18.6".to_owned(),
        programs: BTreeMap::new(),
        identity,
        members: BTreeMap::new(),
    }
}

/// A directory, a key, and the tar of a database with a directory and a file.
fn backup() -> Vec<u8> {
    let mut database = tar::Builder::new(Vec::new());
    let mut entry = tar::Header::new_ustar();
    entry.set_entry_type(EntryType::Directory);
    entry.set_size(0);
    database.append_data(&mut entry, "base/", io::empty()).unwrap();
    entry.set_entry_type(EntryType::Regular);
    entry.set_size(4);
    database.append_data(&mut entry, "PG_VERSION", &b"18\n\n"[..]).unwrap();
    let mut archive = Archive::begin(Vec::new(), &header(), Arc::default()).unwrap();
    archive.dir("pki").unwrap();
    archive.file("pki/sa.key", 6, &b"secret"[..]).unwrap();
    archive.dir("pg").unwrap();
    archive.members_of("pg", database.into_inner().unwrap().as_slice()).unwrap();
    archive.finish(manifest()).unwrap()
}

/// A backup of other members than Berth would write, with a manifest that lists `listed` or else nothing more.
fn forged(members: &[(&str, EntryType, &[u8])], listed: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(zstd::Encoder::new(Vec::new(), 1).unwrap());
    let mut put = |name: &str, kind, bytes: &[u8]| {
        let mut entry = tar::Header::new_gnu();
        entry.set_entry_type(kind);
        entry.set_size(bytes.len() as u64);
        // Past the library's own checks: whoever forges one has no such scruples.
        entry.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        entry.set_cksum();
        tar.append(&entry, bytes).unwrap();
    };
    for (name, kind, bytes) in members {
        put(name, *kind, bytes);
    }
    let member =
        |bytes: &[u8]| Member { size: bytes.len() as u64, sha256: hex::encode(Sha256::digest(bytes)) };
    let members = listed.iter().map(|(name, bytes)| ((*name).to_owned(), member(bytes))).collect();
    let manifest = Manifest { members, ..manifest() };
    put(MANIFEST, EntryType::Regular, &serde_json::to_vec(&manifest).unwrap());
    tar.into_inner().unwrap().finish().unwrap()
}

fn refusal(bytes: &[u8]) -> String {
    verify(bytes).unwrap_err().to_string()
}

fn first() -> (&'static str, EntryType, Vec<u8>) {
    (HEADER, EntryType::Regular, serde_json::to_vec(&header()).unwrap())
}

#[test]
fn a_backup_says_what_it_is_and_unpacks_to_what_it_was_made_of() {
    let bytes = backup();
    let told = verify(bytes.as_slice()).unwrap();
    assert_eq!(told.members.keys().collect::<Vec<_>>(), ["pg/PG_VERSION", "pki/sa.key"]);
    assert_eq!(Manifest { members: BTreeMap::new(), ..told.clone() }, manifest());
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(unpack(bytes.as_slice(), dir.path(), None).unwrap(), told);
    assert_eq!(fs::read(dir.path().join("pki/sa.key")).unwrap(), b"secret");
    assert_eq!(fs::read(dir.path().join("pg/PG_VERSION")).unwrap(), b"18\n\n");
    let mode = |path: &str| fs::metadata(dir.path().join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!([mode("pki/sa.key"), mode("pki"), mode("pg/base")], [0o600, 0o700, 0o700]);
}

#[test]
fn a_backup_that_ends_anywhere_before_its_end_is_none() {
    let bytes = backup();
    for length in 0..bytes.len() {
        let error = refusal(&bytes[..length]);
        assert!(error.starts_with("TornBackup: ") || error.starts_with("NotABackup: "), "{length}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn a_backup_with_any_byte_changed_is_refused_or_the_same_to_the_last_member() {
    let bytes = backup();
    let whole = verify(bytes.as_slice()).unwrap();
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        // zstd's own header has bits without a meaning.
        assert!(verify(changed.as_slice()).map_or(true, |told| told == whole), "byte {at}");
    }
}

#[test]
fn a_foreign_file_is_told_from_a_torn_one() {
    let plain = zstd::encode_all(&b"no tar at all, only text"[..], 1).unwrap();
    let other = forged(&[("readme", EntryType::Regular, b"hello")], &[]);
    for (foreign, word) in
        [(&b""[..], "NotABackup"), (b"PK\x03\x04...", "NotABackup"), (&other, "NotABackup")]
    {
        assert!(refusal(foreign).starts_with(word), "{}", refusal(foreign));
    }
    assert!(refusal(&plain).contains("Backup: "));
}

#[test]
fn a_newer_format_is_named_before_anything_else_is_read() {
    let newer = forged(&[(HEADER, EntryType::Regular, br#"{"format":2,"sealed":"yes"}"#)], &[]);
    assert!(refusal(&newer).starts_with("NewerFormat: it has format 2, this Berth reads up to 1"));
}

#[test]
fn a_member_that_is_not_the_listed_one_is_named() {
    let (name, kind, head) = first();
    let head = (name, kind, head.as_slice());
    let key = ("pki/sa.key", EntryType::Regular, &b"another"[..]);
    let changed = forged(&[head, key], &[("pki/sa.key", b"secret")]);
    assert!(refusal(&changed).starts_with("WrongDigest: its member pki/sa.key"), "{}", refusal(&changed));
    let unlisted = forged(&[head, key], &[]);
    assert!(refusal(&unlisted).starts_with("WrongMember: its manifest does not know pki/sa.key"));
    let missing = forged(&[head], &[("pki/sa.key", b"secret")]);
    assert!(refusal(&missing).starts_with("WrongMember: pki/sa.key is missing"));
    let twice = forged(&[head, key, key], &[("pki/sa.key", b"another")]);
    assert!(refusal(&twice).contains("twice"));
    let mut longer = forged(&[head], &[]);
    longer.extend(zstd::encode_all(&b"more"[..], 1).unwrap());
    assert!(refusal(&longer).contains("after its end"), "{}", refusal(&longer));
}

#[test]
fn nothing_is_ever_unpacked_outside_or_as_a_link() {
    let (name, kind, head) = first();
    let head = (name, kind, head.as_slice());
    for (bad, kind) in [
        ("../escape", EntryType::Regular),
        ("/tmp/escape", EntryType::Regular),
        ("pki/../../escape", EntryType::Directory),
        ("link", EntryType::Symlink),
        ("link", EntryType::Link),
        ("pipe", EntryType::Fifo),
        (".berth-x", EntryType::Directory),
    ] {
        let forged = forged(&[head, (bad, kind, b"")], &[(bad, b"")]);
        let dir = tempfile::tempdir().unwrap();
        let into = dir.path().join("into");
        fs::create_dir(&into).unwrap();
        let error = unpack(forged.as_slice(), &into, None).unwrap_err().to_string();
        assert!(error.starts_with("WrongMember: "), "{bad}: {error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "{bad}");
        assert_eq!(fs::read_dir(&into).unwrap().count(), 0, "{bad}");
    }
}
