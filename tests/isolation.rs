//! What keeps the clusters of a root daemon apart (N5): one plays the intruder in another, as the kernel knows it. And how a
//! cluster from before there were own uids comes to one.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test that panics has failed; it says what it could not try; its files need not outlive a crash"
)]

mod common;

use berth_actors::status::{ChainState, ChainStatus, TreeStatus};
use common::{Home, all_ready, api, child, host, pids, tenant};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use procfs::process::Process;
use rustix::process::{Gid, Pid, Signal, Uid, kill_process, test_kill_process};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};

/// The account that kcp runs under, and every cluster did.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        berth::testing::not_exercised("clusters under uids of their own: only root can give them some");
    }
    is_root
}

fn own_uid(status: &TreeStatus, cluster: &str) -> u32 {
    status.holdings[cluster].uid.expect("it has a uid of its own")
}

/// Does `work` with this uid and nothing else: no capability, no group but its own.
fn as_uid<T: Send + 'static>(uid: u32, work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(move || {
        let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
        rustix::thread::set_thread_groups(&[]).unwrap();
        rustix::thread::set_thread_res_gid(group, group, group).unwrap();
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        work()
    });
    thread.join().unwrap()
}

/// `top` and all below it, each before what is in it.
fn everything_below(top: &Path) -> Vec<PathBuf> {
    let mut found = vec![top.to_owned()];
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        next += 1;
        if path.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
            found.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found
}

/// Every process of the host with this uid: components and whatever they started.
fn processes_of(uid: u32) -> Vec<u32> {
    let all = procfs::process::all_processes().unwrap().filter_map(Result::ok);
    let of = all.filter_map(|process| {
        let status = process.status().ok()?;
        (status.euid == uid && !status.state.starts_with('Z')).then(|| process.pid().unsigned_abs())
    });
    of.collect()
}

/// What of the files, sockets and processes lets somebody in.
fn intrude(paths: &[PathBuf], processes: &[u32]) -> Vec<String> {
    let mut let_in = Vec::new();
    let mut tried = |what: String, worked: bool| {
        if worked {
            let_in.push(what);
        }
    };
    for path in paths {
        let shown = path.display();
        tried(format!("read {shown}"), fs::read(path).is_ok());
        tried(format!("list {shown}"), fs::read_dir(path).is_ok());
        tried(format!("write {shown}"), fs::OpenOptions::new().append(true).open(path).is_ok());
        tried(format!("create in {shown}"), fs::File::create(path.join("intruder")).is_ok());
        tried(format!("connect {shown}"), UnixStream::connect(path).is_ok());
        tried(
            format!("send to {shown}"),
            UnixDatagram::unbound().is_ok_and(|socket| socket.connect(path).is_ok()),
        );
    }
    for &pid in processes {
        let raw = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        tried(format!("see {pid} as its own"), test_kill_process(raw).is_ok());
        tried(format!("signal {pid}"), kill_process(raw, Signal::CONT).is_ok());
        for file in ["environ", "mem", "maps"] {
            tried(format!("read {file} of {pid}"), fs::File::open(format!("/proc/{pid}/{file}")).is_ok());
        }
        tried(format!("open the files of {pid}"), fs::read_dir(format!("/proc/{pid}/fd")).is_ok());
        tried(format!("enter the directory of {pid}"), fs::read_dir(format!("/proc/{pid}/cwd/")).is_ok());
    }
    let_in
}

/// Neither a capability nor a way to one, no group but its own, no core dump, files for itself alone.
fn has_nothing_to_lose(pid: u32, uid: u32) {
    // postgres has some that come and go.
    let Ok(process) = Process::new(i32::try_from(pid).unwrap()) else { return };
    let (Ok(status), Ok(limits)) = (process.status(), process.limits()) else { return };
    assert_eq!((status.ruid, status.euid, status.suid, status.fuid), (uid, uid, uid, uid), "{}", status.name);
    assert_eq!((status.rgid, status.egid, status.sgid, status.fgid), (uid, uid, uid, uid), "{}", status.name);
    assert_eq!(status.groups, [0; 0], "{}", status.name);
    let sets = [status.capinh, status.capprm, status.capeff, status.capbnd.unwrap(), status.capamb.unwrap()];
    assert_eq!(sets, [0; 5], "{}", status.name);
    assert_eq!((status.nonewprivs, status.umask), (Some(1), Some(0o077)), "{}", status.name);
    let core = limits.max_core_file_size;
    assert!(format!("{:?}", core.hard_limit).contains("Value(0)"), "{}: {core:?}", status.name);
}

/// What an API answers somebody who comes with `config`.
async fn answer(config: Config, path: &str) -> u16 {
    let client = Client::try_from(config).unwrap();
    let request = http::Request::get(path).body(kube::client::Body::empty()).unwrap();
    client.send(request).await.unwrap().status().as_u16()
}

fn at(cluster: &ChainStatus, component: &str) -> Config {
    let address = child(cluster, component).address.unwrap();
    let mut config = Config::new(format!("https://{address}").parse().unwrap());
    config.accept_invalid_certs = true;
    config
}

/// A listener on loopback cannot tell uids apart; it must ask who is there.
async fn no_listener_lets_anybody_in(home: &Home, victim: &ChainStatus, intruder: &str) {
    let secrets = "/api/v1/secrets";
    assert!([401, 403].contains(&answer(at(victim, "kube-apiserver"), secrets).await));
    assert_eq!(answer(at(victim, "openbao"), "/v1/sys/mounts").await, 403);
    // The intruder's own administrator is nobody here.
    let text = fs::read_to_string(home.layout().cluster(intruder).join("kubeconfig")).unwrap();
    let theirs = Kubeconfig::from_yaml(&text).unwrap();
    let theirs = Config::from_custom_kubeconfig(theirs, &KubeConfigOptions::default()).await.unwrap();
    let mut config = at(victim, "kube-apiserver");
    config.auth_info = theirs.auth_info;
    assert_eq!(answer(config, secrets).await, 401);
}

#[tokio::test]
async fn a_cluster_gets_at_no_file_no_socket_and_no_process_of_another() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    let dev = home.dev(&[]);
    dev.ready().await;
    home.ok(&["cluster", "create", "victim"]);
    let status = dev.until("both clusters to be ready", all_ready).await;
    let [intruder, victim] = ["demo", "victim"].map(|cluster| own_uid(&status, cluster));
    assert_ne!(intruder, victim);
    let store = fs::metadata(home.layout().kcp_chain("kcp-store").join("pg")).unwrap().uid();
    assert!(![intruder, victim].contains(&store), "kcp has the common account");

    let layout = home.layout();
    let mut paths = everything_below(&layout.cluster("victim"));
    paths.extend(everything_below(&layout.sockets("victim").unwrap()));
    let sockets = paths.iter().filter(|path| path.metadata().is_ok_and(|meta| meta.file_type().is_socket()));
    assert_eq!(sockets.count(), 2, "of postgres and kine");
    assert!(paths.len() > 1000, "a database has many files: {}", paths.len());
    for path in &paths {
        // The log keeper's own archives are root's.
        let meta = path.symlink_metadata().unwrap();
        assert!([0, victim].contains(&meta.uid()), "{} is of uid {}", path.display(), meta.uid());
    }
    let processes = processes_of(victim);
    for (name, pid) in pids(tenant(&status, "victim")) {
        assert!(processes.contains(&pid), "{name}");
    }
    for &pid in &processes {
        has_nothing_to_lose(pid, victim);
    }

    // What this can find it does find: the victim is let in where the intruder is not.
    let (all, living) = (paths.clone(), processes.clone());
    let of_the_victim = as_uid(victim, move || intrude(&all[..1], &living));
    assert!(of_the_victim.len() > processes.len(), "{of_the_victim:?}");
    assert_eq!(as_uid(intruder, move || intrude(&paths, &processes)), [""; 0]);
    no_listener_lets_anybody_in(&home, tenant(&status, "victim"), "demo").await;

    let shown = home.ok(&["cluster", "status", "victim"]);
    assert!(shown.contains(&format!("uid {victim}")), "{shown}");
    let json: TreeStatus = serde_json::from_str(&home.ok(&["status", "--json"])).unwrap();
    assert_eq!(own_uid(&json, "victim"), victim);

    home.ok(&["cluster", "delete", "victim", "--yes"]);
    assert_eq!(processes_of(victim), [0; 0]);
    let leases = fs::read_to_string(layout.state().join("uids.json")).unwrap();
    assert!(!leases.contains("victim") && leases.contains(&intruder.to_string()), "{leases}");
    assert_eq!(segments_of(victim), [""; 0]);
    assert!(dev.stop().success());
}

/// System V shared memory of a uid, and files in /dev/shm.
fn segments_of(uid: u32) -> Vec<String> {
    let table = fs::read_to_string("/proc/sysvipc/shm").unwrap();
    let segments = table.lines().filter(|line| line.split_whitespace().nth(7) == Some(&uid.to_string()));
    let files = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let files = files.filter(|entry| entry.metadata().is_ok_and(|meta| meta.uid() == uid));
    segments.map(str::to_owned).chain(files.map(|entry| entry.path().display().to_string())).collect()
}

#[tokio::test]
async fn a_cluster_from_before_runs_on_and_moves_at_its_next_start_however_often_the_daemon_dies() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    let shared = home.config("[tenants]\nuids = 0\n");
    let dev = home.up(&shared);
    let is_up =
        |status: &TreeStatus| status.store.as_ref().is_some_and(|store| store.state == ChainState::Ready);
    dev.until("the tree to have its orders", is_up).await;
    home.ok(&["cluster", "create", "demo"]);
    let before = dev.until("the cluster to be ready", all_ready).await;
    assert_eq!(before.holdings["demo"].uid, None);
    let data = home.layout().cluster("demo");
    let maps = api::config_maps(api::client(&data.join("kubeconfig"), None).await, "default");
    api::create_config_map(&maps, "kept", "yes").await;
    let common = fs::metadata(&data).unwrap().uid();

    // What runs is not disturbed.
    dev.kill();
    let own = home.config("");
    let dev = home.up(&own);
    let status = dev.until("the cluster to be adopted", all_ready).await;
    assert_eq!(pids(tenant(&status, "demo")), pids(tenant(&before, "demo")));
    assert_eq!(status.holdings["demo"].uid, None);
    assert!(home.ok(&["status"]).contains("demo still runs under the account that all share"));
    assert!(dev.terminate().success());

    // The daemon dies before the first file has changed hands, and after the last.
    let fault = home.state().with_file_name("fault");
    for place in ["tenant-moving", "tenant-moved"] {
        fs::write(&fault, format!("{place} 0 die")).unwrap();
        let dev =
            home.run(&["up", "--config", own.to_str().unwrap()], &[("BERTH_FAULT", fault.to_str().unwrap())]);
        assert!(!dev.ended().success(), "{place}");
        let leases = fs::read_to_string(home.layout().state().join("uids.json")).unwrap();
        assert!(leases.contains("\"moving\": true"), "{place}: {leases}");
    }
    let dev = home.up(&own);
    let status = dev.until("the cluster to be ready again", all_ready).await;
    let uid = own_uid(&status, "demo");
    assert_ne!(uid, common);
    for path in everything_below(&data) {
        let owner = path.symlink_metadata().unwrap().uid();
        assert!([0, uid].contains(&owner), "{} is of uid {owner}", path.display());
    }
    for (name, pid) in pids(tenant(&status, "demo")) {
        assert!(processes_of(uid).contains(&pid), "{name}");
    }
    let maps = api::config_maps(api::client(&data.join("kubeconfig"), None).await, "default");
    assert_eq!(api::read_config_map(&maps, "kept").await, "yes");
    assert!(dev.terminate().success());
    assert_eq!(host::processes_below(&home.state()), []);
}
