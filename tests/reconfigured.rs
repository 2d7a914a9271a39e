//! A daemon that ends and leaves everything running, and the next one, whose configuration says otherwise about one component
//! (A1, A2).

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that panics has failed; the files it writes need not outlive a crash"
)]

mod common;

use common::{Home, everything, host};
use std::fs;
use std::path::{Path, PathBuf};

const CHANGED: &str = "demo/kube-controller-manager";

/// Another file with the same program, as an operator puts a new one beside the old.
fn beside(home: &Home, program: &Path) -> PathBuf {
    let copy = home.state().with_file_name("another-program");
    fs::hard_link(program, &copy).or_else(|_| fs::copy(program, &copy).map(drop)).unwrap();
    copy
}

#[tokio::test]
async fn of_a_configuration_that_changed_only_the_component_it_is_about_is_restarted() {
    let home = Home::new();
    let config = home.config("stop_children = false");
    let dev = home.up(&config);
    home.ok_soon(&dev, &["cluster", "create", "demo"]).await;
    let mut before = everything(&dev.ready().await);
    assert!(dev.terminate().success());
    assert!(before.values().all(|pid| host::is_alive(*pid)), "nobody was stopped");

    let program = &berth::testing::components().kube_controller_manager.path;
    let another = beside(&home, program);
    let text = fs::read_to_string(&config).unwrap();
    let changed = text.replace(program.to_str().unwrap(), another.to_str().unwrap());
    assert_ne!(changed, text);
    fs::write(&config, changed).unwrap();
    let dev = home.up(&config);
    let restarted = |status: &_| {
        common::all_ready(status)
            && everything(status).get(CHANGED).is_some_and(|pid| *pid != before[CHANGED])
    };
    let status = dev.until("the changed component to be started anew", restarted).await;
    let mut after = everything(&status);
    let (old, new) = (before.remove(CHANGED).unwrap(), after.remove(CHANGED).unwrap());
    assert_eq!(after, before, "everybody else keeps their process");
    assert!(before.len() > 6, "{before:?}");
    assert!(!host::is_alive(old));
    assert!(host::command_line(new).starts_with(another.to_str().unwrap()), "{}", host::command_line(new));

    home.ok(&["down"]);
    assert!(dev.ended().success());
    assert_eq!(host::processes_below(&home.state()), []);
}
