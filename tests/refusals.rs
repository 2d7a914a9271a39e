//! Bad input: a clear error that names the thing and the way out, and nothing lost.

#![allow(clippy::disallowed_methods, reason = "the files a test writes need not outlive a crash")]

mod common;

use berth_actors::status::{ChainState, TreeStatus};
use common::{Home, host, pids, tenant};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

/// It failed, and said all of `words` on standard error.
fn refused(output: &Output, words: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "it was not refused: {text}");
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
    assert!(text.trim().lines().count() <= 3, "an error is short: {text}");
}

#[test]
fn a_taken_front_port_names_its_holder() {
    let home = Home::new();
    let taken = TcpListener::bind(home.front).unwrap();
    let output = home.berth(&["dev", "--front", &home.front.to_string()]);
    refused(&output, &[&home.front.to_string(), &format!("pid {}", std::process::id())]);
    drop(taken);
}

#[test]
fn a_component_that_is_missing_or_not_executable_is_named_with_its_flag() {
    let home = Home::new();
    let front = home.front.to_string();
    let missing = home.berth(&["dev", "--front", &front, "--kine", "/nowhere/kine"]);
    refused(&missing, &["--kine", "/nowhere/kine"]);
    let file = home.state().with_file_name("kcp");
    fs::write(&file, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let plain = home.berth(&["dev", "--front", &front, "--kcp", file.to_str().unwrap()]);
    refused(&plain, &["--kcp", "executable"]);
}

#[test]
fn a_run_directory_too_long_for_a_socket_is_refused_before_anything_starts() {
    let home = Home::new();
    let long = format!("/tmp/{}", "r".repeat(100));
    let output = home.berth(&["dev", "--front", &home.front.to_string(), "--run-dir", &long]);
    refused(&output, &["--run-dir", "bytes"]);
    assert!(!std::path::Path::new(&long).exists());
}

#[test]
fn a_state_directory_of_another_user_is_refused_with_both_uids() {
    if !rustix::process::geteuid().is_root() {
        // Only root can give a directory away; an ordinary user meets the same check on root's.
        let output = Home::new().berth(&["dev", "--front", "127.0.0.1:0", "--state", "/root"]);
        return refused(&output, &["--state"]);
    }
    let home = Home::new();
    fs::create_dir(home.state()).unwrap();
    std::os::unix::fs::chown(home.state(), Some(65534), None).unwrap();
    let output = home.berth(&["dev", "--front", &home.front.to_string()]);
    refused(&output, &["uid 65534", "--state"]);
}

#[test]
fn an_unknown_key_of_the_configuration_is_named_with_its_line() {
    let home = Home::new();
    let file = home.state().with_file_name("berth.toml");
    fs::write(&file, "start_concurrency = 2\nno_such_key = 1\n").unwrap();
    let output = home.berth(&["up", "--config", file.to_str().unwrap()]);
    refused(&output, &["no_such_key", "berth.toml:2"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_bad_cluster_name_is_refused_with_what_a_name_is() {
    let home = Home::new();
    for name in ["Upper", "under_score", "-dash", &"x".repeat(41)] {
        let output = home.berth(&["cluster", "create", "--", name]);
        assert!(!output.status.success(), "{name} was accepted");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(name), "{text}");
    }
}

#[test]
fn without_a_daemon_a_command_says_where_it_looked() {
    let home = Home::new();
    let output = home.berth(&["status"]);
    refused(&output, &["control.sock", "berth up"]);
    assert_eq!(output.status.code(), Some(3));
}

#[tokio::test]
async fn a_second_daemon_a_torn_record_and_a_torn_snapshot_are_refused_by_name() {
    let home = Home::new();
    let dev = home.dev(&[]);
    dev.ready().await;
    let second = home.berth(&["dev", "--front", "127.0.0.1:0"]);
    refused(&second, &[&format!("pid {}", dev.pid()), home.state().to_str().unwrap()]);

    let nodes = home.layout().cluster("demo").join("nodes.json");
    fs::write(&nodes, "[{").unwrap();
    refused(&home.berth(&["node", "add", "demo", "worker-1"]), &["nodes.json"]);
    assert_eq!(fs::read_to_string(&nodes).unwrap(), "[{", "a file that cannot be read is not overwritten");
    fs::write(&nodes, "[]").unwrap();
    refused(&home.berth(&["cluster", "create", "demo"]), &["demo"]);
    refused(&home.berth(&["cluster", "delete", "nobody", "--yes"]), &["nobody"]);

    let before = pids(tenant(&dev.ready().await, "demo"));
    dev.kill();
    let record = home.layout().clusters().join("demo.json");
    let kept = fs::read(&record).unwrap();
    fs::write(&record, &kept[..kept.len() / 2]).unwrap();
    let dev = home.dev_of("other");
    let others = |status: &TreeStatus| tenants(status, &["other"]) && status.front.target.is_some();
    let status = dev.until("everybody else to be ready", others).await;
    let reason = tenant(&status, "demo").reason.clone().unwrap();
    assert!(reason.contains("demo.json") && reason.contains("backup"), "{reason}");
    refused(&home.berth(&["cluster", "delete", "demo", "--yes"]), &["demo.json", "restart the daemon"]);
    assert!(before.iter().all(|(_, pid)| host::is_alive(*pid)), "what runs of it runs on");
    dev.kill();

    fs::write(&record, &kept).unwrap();
    let dev = home.dev_of("other");
    assert_eq!(pids(tenant(&dev.ready().await, "demo")), before, "and is adopted once it can be read again");
    assert!(dev.stop().success());
}

fn tenants(status: &TreeStatus, ready: &[&str]) -> bool {
    let is_ready = |name: &&str| {
        status.tenants.iter().any(|chain| chain.name == **name && chain.state == ChainState::Ready)
    };
    ready.iter().all(is_ready)
}
