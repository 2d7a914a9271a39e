//! The k3s stand-in as a process: its refusals, and that it ends as a whole. What it serves is tested with Berth around it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that cannot go on has failed; its files need not outlive a crash, its processes end with it"
)]

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

/// A directory with a token, and a program in the place of both children.
struct Place(tempfile::TempDir);

impl Place {
    fn new(child: &str) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::write(place.path("token"), "the-secret").unwrap();
        fs::write(place.path("child"), format!("#!/bin/sh\n{child}\n")).unwrap();
        fs::set_permissions(place.path("child"), fs::Permissions::from_mode(0o755)).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_k3s-stand-in"));
        let port = three_free_ports();
        command
            .args(["server", "--disable-agent", "--datastore-endpoint=unix:///nowhere"])
            .arg(format!("--data-dir={}", self.path("data").display()))
            .arg(format!("--token-file={}", self.path("token").display()))
            .arg(format!("--https-listen-port={port}"))
            .arg(format!("--kube-scheduler-arg=secure-port={}", port + 2))
            .env("HOME", self.0.path())
            .env("K3S_STANDIN_KUBE_APISERVER", self.path("child"))
            .env("K3S_STANDIN_KUBE_CONTROLLER_MANAGER", self.path("child"))
            .stdin(Stdio::null());
        command
    }

    fn output(&self, extra: &[&str]) -> Output {
        self.command().args(extra).output().unwrap()
    }
}

/// The first of three in a row. Each caller has a stretch of its own, below the ephemeral range: tests run beside each other.
fn three_free_ports() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let base = 20_000 + u16::try_from(std::process::id() % 120).unwrap() * 100;
    loop {
        let first = base + NEXT.fetch_add(3, Ordering::Relaxed);
        if (first..first + 3).all(is_free) {
            return first;
        }
    }
}

fn refused(output: &Output, words: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("level=fatal") && text.contains(words), "{text}");
}

#[test]
fn it_calls_itself_a_stand_in() {
    let output = Command::new(env!("CARGO_BIN_EXE_k3s-stand-in")).arg("--version").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.starts_with("k3s version v"), "{text}");
    assert!(text.lines().next().unwrap().contains("stand-in"), "{text}");
}

#[test]
fn a_flag_it_does_not_know_ends_it_with_exit_code_one() {
    refused(
        &Place::new("exit 0").output(&["--no-such-flag=7"]),
        "flag provided but not defined: -no-such-flag",
    );
}

#[test]
fn it_writes_k3ss_files_before_it_serves_and_refuses_another_token_for_them() {
    let place = Place::new("exit 3");
    refused(&place.output(&["--secrets-encryption"]), "apiserver exited: exit status: 3");
    for file in [
        "tls/client-ca.crt",
        "tls/client-ca.key",
        "tls/server-ca.crt",
        "tls/request-header-ca.crt",
        "tls/client-admin.crt",
        "tls/client-admin.key",
        "tls/service.key",
        "cred/admin.kubeconfig",
        "cred/encryption-config.json",
        "token",
    ] {
        let path = place.path("data/server").join(file);
        assert_eq!(path.metadata().expect(file).permissions().mode() & 0o777, 0o600, "{file}");
    }
    let ca = fs::read(place.path("data/server/tls/client-ca.crt")).unwrap();
    refused(&place.output(&[]), "apiserver exited");
    assert_eq!(fs::read(place.path("data/server/tls/client-ca.crt")).unwrap(), ca, "made once");
    fs::write(place.path("token"), "another").unwrap();
    refused(&place.output(&[]), "bootstrap data already found and encrypted with different token");
}

#[test]
fn a_signal_to_it_ends_its_children_too() {
    let place = Place::new("echo the child is $$ >&2; exec sleep 600");
    let mut stand_in = place.command().stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(stand_in.stderr.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|line| line.starts_with("the child is ")).expect("its child begins");
    let child = Pid::from_raw(line.rsplit(' ').next().unwrap().parse().unwrap()).unwrap();
    kill_process(Pid::from_child(&stand_in), Signal::TERM).unwrap();
    assert_eq!(stand_in.wait().unwrap().code(), Some(0));
    // The pipe ends with the last process that holds it.
    assert_eq!(lines.count(), 0);
    assert!(test_kill_process(child).is_err(), "it lives on");
}
