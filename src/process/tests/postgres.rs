//! A real postgres, whose backends escape group, parents and environment: each has its own session, and its title
//! overwrites its environment.

use super::*;
use crate::process::table::Table;
use std::os::unix::fs::chown;
use std::path::Path;

const NOBODY: User = User { uid: 65534, gid: 65534 };

fn binary(name: &str) -> PathBuf {
    crate::testing::components().postgres_bin.join(name)
}

fn user() -> Option<User> {
    rustix::process::geteuid().is_root().then_some(NOBODY)
}

/// A database directory beside the bench's other files.
async fn initdb(bench: &Bench) -> PathBuf {
    let data = bench.path("data");
    std::fs::create_dir(&data).unwrap();
    if let Some(user) = user() {
        chown(&data, Some(user.uid), Some(user.gid)).unwrap();
        for dir in [bench.dir.path(), bench.layout.state()] {
            std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o711)).unwrap();
        }
    }
    let tool = Tool {
        program: binary("initdb"),
        args: ["-D", ".", "-A", "trust", "-U", "berth", "--no-sync"].map(str::to_owned).to_vec(),
        env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
        dir: data.clone(),
        user: user(),
    };
    tool::run(tool, Duration::from_mins(2)).await.unwrap();
    data
}

fn spec(bench: &Bench, data: &Path) -> ProcessSpec {
    let socket_dir = data.to_str().unwrap();
    let args = ["-D", ".", "-c", "listen_addresses=", "-k", socket_dir, "-c", "fsync=off"];
    ProcessSpec {
        dir: data.to_owned(),
        output: bench.path("log"),
        user: user(),
        ..bench.spec(binary("postgres").to_str().unwrap(), &args)
    }
}

/// As soon as it accepts a login.
async fn connect(data: &Path) -> tokio_postgres::Client {
    let mut config = tokio_postgres::Config::new();
    config.host_path(data).user("berth").dbname("postgres");
    let (client, connection) = soon(async {
        loop {
            match config.connect(tokio_postgres::NoTls).await {
                Ok(connected) => return connected,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    tokio::spawn(connection);
    client
}

/// Starts postgres and a backend that is too busy to notice the postmaster's death. Returns both.
async fn with_a_busy_backend(bench: &Bench, id: &ComponentId, data: &Path) -> (Identity, Identity) {
    let postmaster = bench.host.spawn(id, &spec(bench, data)).await.unwrap().identity;
    let client = connect(data).await;
    let pid: i32 = client.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let backend = identity_of(u32::try_from(pid).unwrap()).unwrap();
    tokio::spawn(async move { client.batch_execute("do $$ begin loop end loop; end $$").await });
    // Its title says so once it is at it.
    let title = format!("/proc/{pid}/cmdline");
    soon(async {
        while !std::fs::read_to_string(&title).unwrap().contains(" DO") {
            tokio::task::yield_now().await;
        }
    })
    .await;
    (postmaster, backend)
}

fn left_in(data: &Path) -> Vec<u32> {
    let table = Table::read().unwrap();
    table.iter().filter(|entry| entry.marks().cwd.starts_with(data)).map(|entry| entry.pid).collect()
}

#[tokio::test]
async fn a_busy_backend_does_not_outlive_the_reap_of_its_killed_postmaster() {
    orphans::become_subreaper().unwrap();
    for host in [ProcessHost::new, ProcessHost::without_cgroups] {
        let bench = Bench::with(host);
        let id = ComponentId::new("demo", "postgres");
        let data = initdb(&bench).await;
        let (postmaster, backend) = with_a_busy_backend(&bench, &id, &data).await;
        bench.host.signal(&postmaster, Signal::Kill).await.unwrap();
        assert_eq!(soon(bench.host.exited(&postmaster)).await, ExitStatus::Signal(9));
        assert!(is_alive(&backend), "it does not notice");
        bench.host.reap(&id, &postmaster).await.unwrap();
        assert!(!is_alive(&backend));
        assert_eq!(left_in(&data), [0; 0]);

        let again = bench.host.spawn(&id, &spec(&bench, &data)).await.unwrap().identity;
        connect(&data).await;
        bench.host.signal(&again, Signal::Int).await.unwrap();
        assert_eq!(soon(bench.host.exited(&again)).await, ExitStatus::Code(0));
        bench.host.reap(&id, &again).await.unwrap();
    }
}

#[tokio::test]
async fn a_new_daemon_lets_postgres_shut_down_and_ends_even_a_headless_backend() {
    for kill_postmaster in [false, true] {
        let bench = Bench::with(ProcessHost::without_cgroups);
        let id = ComponentId::new("demo", "postgres");
        let data = initdb(&bench).await;
        let (postmaster, _) = with_a_busy_backend(&bench, &id, &data).await;
        if kill_postmaster {
            bench.host.signal(&postmaster, Signal::Kill).await.unwrap();
            soon(bench.host.exited(&postmaster)).await;
        }
        survivors::reap_all(&bench.layout).await.unwrap();
        assert_eq!(left_in(&data), [0; 0]);
        assert_eq!(bench.log().contains("database system is shut down"), !kill_postmaster);
    }
}
