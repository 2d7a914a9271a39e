//! The socket itself: who finds it, who may take its place, and what a client says when nobody is there.

use super::*;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn bind(socket: &Path) -> Result<ControlServer, super::super::ControlError> {
    let tree = FakeTree { answer: |_| Ok(Reply::Done), asked: Arc::default() }.start();
    let files = FakeFiles { dir: PathBuf::new(), nodes: Mutex::default() };
    ControlServer::bind(socket, DaemonDesk::open().0, tree.recipient(), Arc::new(files), EventHub::new())
}

#[actix::test]
async fn the_socket_is_the_owners_alone() {
    let harness = Harness::obedient();
    let mode = std::fs::metadata(harness.client.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
}

#[actix::test]
async fn a_dead_daemons_socket_is_replaced_and_a_live_ones_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("control.sock");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    assert!(socket.exists(), "stale");
    let server = bind(&socket).unwrap();
    let error = bind(&socket).unwrap_err().to_string();
    assert!(error.contains("berth down"), "{error}");
    drop(server);
    assert!(!socket.exists());
}

#[actix::test]
async fn a_successors_socket_is_not_removed_by_its_predecessor() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("control.sock");
    let old = bind(&socket).unwrap();
    std::fs::remove_file(&socket).unwrap();
    let _new = bind(&socket).unwrap();
    drop(old);
    assert!(socket.exists());
}

#[actix::test]
async fn a_file_in_the_sockets_place_and_a_shared_directory_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("control.sock");
    std::fs::File::create(&socket).unwrap();
    assert!(bind(&socket).unwrap_err().to_string().contains("no socket"));
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let error = bind(&socket).unwrap_err().to_string();
    assert!(error.contains("mode 0777") && error.contains("--run-dir"), "{error}");
}

#[actix::test]
async fn without_a_daemon_the_client_names_the_socket_and_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("control.sock");
    for stale in [false, true] {
        if stale {
            drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        }
        let error = Client::new(&socket).status().await.unwrap_err();
        assert!(matches!(error, ClientError::NoDaemon { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("berth up") && text.contains(socket.to_str().unwrap()), "{text}");
    }
}

#[actix::test]
async fn a_daemon_that_ends_before_it_answers_is_down_but_has_no_status() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("control.sock");
    for (down, path) in [(true, socket.clone()), (false, socket.clone())] {
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let client = Client::new(&path);
        let daemon = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            std::fs::remove_file(&path).unwrap();
            drop(listener);
            drop(stream);
        });
        if down {
            client.down().await.unwrap();
        } else {
            let error = client.status().await.unwrap_err();
            assert!(matches!(error, ClientError::Broken { .. }), "{error:?}");
        }
        daemon.await.unwrap();
    }
}
