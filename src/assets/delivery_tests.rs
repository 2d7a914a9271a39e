use super::*;
use crate::assets::record::sha256_of;
use flate2::write::GzEncoder;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

const PROGRAM: &[u8] = b"#!/bin/sh\necho kcp version v1\n";

fn tar() -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, mode, content) in [
        ("./README.md", 0o644, b"read me".as_slice()),
        ("./bin/kcp", 0o755, PROGRAM),
        ("./bin/kcp-front", 0o755, b"x"),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_mode(mode);
        header.set_size(content.len() as u64);
        tar.append_data(&mut header, name, content).unwrap();
    }
    tar.into_inner().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zip() -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
    writer.start_file("bin/kcp", zip::write::SimpleFileOptions::default().unix_permissions(0o755)).unwrap();
    writer.write_all(PROGRAM).unwrap();
    writer.finish().unwrap().into_inner()
}

fn recipe(key: &str) -> Recipe {
    Recipe { component: "kcp".into(), version: "v1".into(), key: key.into(), made_by: "a test".into() }
}

fn install(
    store: &Store,
    bytes: &[u8],
    member: Option<&str>,
    pin: Option<&str>,
) -> Result<PathBuf, DeliveryError> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kcp.file");
    crate::files::write_atomic(&file, bytes, None).unwrap();
    let sha256 = pin.map_or_else(|| sha256_of(&file).unwrap(), str::to_owned);
    let content = Content::of_a_program("kcp", sha256, member.map(str::to_owned));
    Delivery { component: "kcp", content: &content }.install(store, &file, recipe("k"), &|_, _| ())
}

#[test]
fn a_program_comes_out_of_every_form_it_is_delivered_in() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(root.path()).unwrap();
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
    let tar = tar();
    for (form, bytes, member) in [
        ("a program", PROGRAM.to_vec(), None),
        ("a program, zstd", zstd(PROGRAM), None),
        ("a program, gzip", gzip(PROGRAM), None),
        ("tar", tar.clone(), Some("bin/kcp")),
        ("tar.gz", gzip(&tar), Some("bin/kcp")),
        ("tar.zst", zstd(&tar), Some("bin/kcp")),
        ("zip", zip(), Some("bin/kcp")),
    ] {
        let dir = install(&store, &bytes, member, None).unwrap_or_else(|error| panic!("{form}: {error}"));
        let program = dir.join("kcp");
        assert_eq!(crate::files::trusted::bytes(&program).unwrap(), PROGRAM, "{form}");
        assert_eq!(fs::metadata(&program).unwrap().permissions().mode() & 0o777, 0o755, "{form}");
        // Named by what it is, not by how it came.
        assert_eq!(dir.file_name().unwrap().to_str().unwrap(), sha256_of(&program).unwrap(), "{form}");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 2, "{form}: the program and its record");
    }
}

#[test]
fn a_file_that_is_not_the_pinned_one_installs_nothing_however_it_is_wrong() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(root.path()).unwrap();
    let pin = "0".repeat(64);
    for (bytes, member) in
        [(PROGRAM.to_vec(), None), (gzip(&tar()), Some("bin/kcp")), (b"junk".to_vec(), Some("x"))]
    {
        let error = install(&store, &bytes, member, Some(&pin)).unwrap_err().to_string();
        assert!(error.contains("kcp.file has sha256") && error.contains(&pin), "{error}");
    }
    assert_eq!(fs::read_dir(root.path().join("sha256")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(root.path().join("staging")).unwrap().count(), 0);
}

#[test]
fn an_archive_without_the_member_says_what_it_has() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(root.path()).unwrap();
    let error = install(&store, &gzip(&tar()), Some("kcp"), None).unwrap_err().to_string();
    assert!(error.contains("no member kcp") && error.contains("bin/kcp, bin/kcp-front"), "{error}");
}

#[test]
fn a_pinned_member_that_leads_outside_is_still_refused() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(root.path()).unwrap();
    let mut header = tar::Header::new_gnu();
    header.set_size(1);
    header.set_mode(0o755);
    header.as_gnu_mut().unwrap().name[..11].copy_from_slice(b"bin/../../x");
    header.set_cksum();
    let mut tar = tar::Builder::new(Vec::new());
    tar.append(&header, b"x".as_slice()).unwrap();
    let bytes = tar.into_inner().unwrap();
    let error = install(&store, &bytes, Some("bin/"), None).unwrap_err().to_string();
    assert!(error.contains("leads outside"), "{error}");
    assert!(!root.path().join("staging/x").exists());
}
