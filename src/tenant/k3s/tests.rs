use super::*;
use std::net::{Ipv4Addr, TcpListener};

fn k3s() -> K3s {
    let seat = Seat::of_demo();
    K3s {
        etcd: "/r/demo/kine.sock".into(),
        kubeconfig: seat.data.join("kubeconfig"),
        seat,
        program: Some(Program::real("/bin/k3s")),
        port: 16443,
        stand_in_env: BTreeMap::new(),
    }
}

fn k3s_in(dir: &tempfile::TempDir) -> K3s {
    let mut k3s = k3s();
    k3s.seat.data = dir.path().join("demo");
    k3s.seat.logs = dir.path().join("demo/log");
    k3s.seat.sockets = dir.path().join("run");
    k3s
}

async fn prepared(k3s: &K3s) -> Result<ProcessSpec, PrepareError> {
    k3s.prepare(&Context::default(), &WaitNote::default()).await
}

#[test]
fn it_is_a_control_plane_only_on_its_own_ports_and_leaves_the_cloud_to_berth() {
    let args = k3s().arguments();
    assert_eq!(args[0], "server");
    for arg in [
        "--disable-agent",
        "--datastore-endpoint=unix:///r/demo/kine.sock",
        "--data-dir=/s/demo/k3s",
        "--token-file=/s/demo/k3s-token",
        "--https-listen-port=16443",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--node-ip=127.0.0.1",
        "--kube-controller-manager-arg=secure-port=16445",
        "--kube-scheduler-arg=secure-port=16446",
        "--kube-controller-manager-arg=leader-elect=false",
        "--kube-scheduler-arg=leader-elect=false",
        "--disable-cloud-controller",
        "--disable=servicelb,traefik,coredns,local-storage,metrics-server",
        "--disable-helm-controller",
        "--disable-network-policy",
        "--disable-kube-proxy",
        "--secrets-encryption",
        "--service-cidr=10.96.0.0/16",
        "--write-kubeconfig=/s/demo/k3s/admin.kubeconfig",
        "--write-kubeconfig-mode=600",
        "--config=/dev/null",
    ] {
        assert!(args.iter().any(|a| a == arg), "{arg} in {args:?}");
    }
    assert!(
        !args.iter().any(|arg| arg == "--log" || arg.starts_with("--log=") || arg.starts_with("--token="))
    );
}

#[test]
fn its_home_is_the_clusters_own_and_nothing_tells_it_of_the_daemons_systemd() {
    let k3s = k3s();
    let spec = k3s.process(&Program::real("/bin/k3s"));
    assert_eq!(spec.env["HOME"], "/s/demo/k3s");
    let names: Vec<_> = spec.env.keys().map(String::as_str).collect();
    assert_eq!(names, ["HOME", "PATH", "TZ"]);
}

#[test]
fn its_token_is_in_a_file_and_on_no_command_line() {
    let dir = tempfile::tempdir().unwrap();
    let k3s = k3s_in(&dir);
    std::fs::create_dir_all(&k3s.seat.data).unwrap();
    k3s.token().ensure(None).unwrap();
    let token = std::fs::read_to_string(dir.path().join("demo/k3s-token")).unwrap();
    let spec = k3s.process(&Program::real("/bin/k3s"));
    assert!(!format!("{:?}{:?}", spec.args, spec.env).contains(&token));
}

#[tokio::test]
async fn any_of_its_ports_in_use_is_named_before_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let mut k3s = k3s_in(&dir);
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    k3s.port = port - 3;
    let error = prepared(&k3s).await.unwrap_err();
    let named = |error: &PrepareError| (0..4).any(|n| error.to_string().contains(&(port - n).to_string()));
    assert!(
        matches!(&error, PrepareError::Retry(text) if text.contains("in use")) && named(&error),
        "{error}"
    );
}

#[tokio::test]
async fn a_daemon_without_a_k3s_refuses_the_start_and_names_the_flag() {
    let dir = tempfile::tempdir().unwrap();
    let k3s = K3s { program: None, ..k3s_in(&dir) };
    let error = prepared(&k3s).await.unwrap_err();
    assert!(matches!(&error, PrepareError::Fatal(text) if text.contains("--k3s PATH")), "{error}");
    assert!(!dir.path().join("demo").exists(), "nothing was touched");
}
