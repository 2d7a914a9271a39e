//! One daemon after another: killed, replaced, upgraded. Nothing that runs may notice (A1, A2, F5).

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, in its helpers too")]
#![allow(clippy::disallowed_methods, reason = "what a test reads nobody planted")]

mod common;

use berth::https::Https;
use common::{Dev, Home, all_ready, api, everything, host};
use kube::api::{Api, DynamicObject, PostParams};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::io::{IoSliceMut, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

type Maps = Api<DynamicObject>;

/// A client that asks again and again until it is told to stop, and counts what went wrong.
struct Clients {
    over: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    loops: Vec<JoinHandle<Vec<String>>>,
}

impl Clients {
    /// `ask` is one request; each loop begins the next when the last has ended.
    fn start<F>(loops: usize, ask: impl Fn() -> F + Clone + Send + 'static) -> Self
    where
        F: Future<Output = Result<(), String>> + Send,
    {
        let (over, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let spawn = |_| {
            let (over, answered, ask) = (Arc::clone(&over), Arc::clone(&answered), ask.clone());
            tokio::spawn(async move {
                let mut failures = Vec::new();
                while !over.load(Ordering::SeqCst) {
                    match ask().await {
                        Ok(()) => _ = answered.fetch_add(1, Ordering::SeqCst),
                        Err(failure) => failures.push(failure),
                    }
                }
                failures
            })
        };
        let loops = (0..loops).map(spawn).collect();
        Self { over, answered, loops }
    }

    /// Ends the loops; returns how many requests were answered, after seeing that none failed.
    async fn none_failed(self) -> u64 {
        self.over.store(true, Ordering::SeqCst);
        for client in self.loops {
            assert_eq!(client.await.unwrap(), [""; 0]);
        }
        self.answered.load(Ordering::SeqCst)
    }
}

/// Of a tenant's API server, directly.
fn readers(maps: Maps) -> Clients {
    Clients::start(1, move || {
        let maps = maps.clone();
        async move {
            let value = maps.get("acknowledged").await.map_err(|error| error.to_string())?;
            (value.data["data"]["key"] == "yes").then_some(()).ok_or_else(|| "another value".to_owned())
        }
    })
}

/// Each write has a name of its own, and is read back.
fn writers(maps: Maps) -> Clients {
    let next = Arc::new(AtomicU64::new(0));
    Clients::start(1, move || {
        let (maps, name) = (maps.clone(), format!("written-{}", next.fetch_add(1, Ordering::SeqCst)));
        async move {
            let object = api::config_map(&name, "yes");
            maps.create(&PostParams::default(), &object).await.map_err(|error| error.to_string())?;
            maps.get(&name).await.map(drop).map_err(|error| error.to_string())
        }
    })
}

/// Through the front, on a connection of its own each time.
fn clients_of_the_front(home: &Home) -> Clients {
    let certificate = std::fs::read(home.layout().kcp_shared().join("apiserver.crt")).unwrap();
    let url = format!("https://{}/readyz", home.front);
    Clients::start(3, move || {
        let (certificate, url) = (certificate.clone(), url.clone());
        async move {
            let https = Https::new(&certificate, None).map_err(|error| error.to_string())?;
            match https.get(&url, Duration::from_secs(30)).await {
                Ok((status, _)) if status.is_success() => Ok(()),
                Ok((status, _)) => Err(status.to_string()),
                Err(error) => Err(error.to_string()),
            }
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_daemons_killed_in_a_row_fail_no_request_of_tenants_clients_and_touch_no_process() {
    let home = Home::new();
    let mut dev = home.dev(&[]);
    dev.ready().await;
    home.ok(&["cluster", "create", "second"]);
    let before = everything(&dev.ready().await);
    let mut clients = Vec::new();
    for tenant in ["demo", "second"] {
        let kubeconfig = home.layout().cluster(tenant).join("kubeconfig");
        let maps = api::config_maps(api::client(&kubeconfig, None).await, "default");
        api::create_config_map(&maps, "acknowledged", "yes").await;
        clients.extend([readers(maps.clone()), writers(maps)]);
    }
    let socket = home.layout().control_socket();
    for life in 0..50 {
        dev.kill();
        // The next one makes it anew.
        let _ = std::fs::remove_file(&socket);
        dev = home.dev(&[]);
        // Some live long enough to adopt everything, some to open their control socket, some to do nothing at all.
        match life % 3 {
            0 => _ = dev.ready().await,
            1 => {
                while !socket.exists() {
                    host::created(&socket).await;
                }
            }
            _ => {}
        }
    }
    assert_eq!(everything(&dev.ready().await), before);
    for clients in clients {
        assert!(clients.none_failed().await > 100);
    }
    assert!(dev.stop().success());
    assert_eq!(host::processes_below(&home.state()), []);
}

/// As another build is: a file of its own, with other bytes in it.
fn another_berth(home: &Home) -> PathBuf {
    let program = home.state().with_file_name("another-berth");
    std::fs::copy(env!("CARGO_BIN_EXE_berth"), &program).unwrap();
    let mut file = std::fs::File::options().append(true).open(&program).unwrap();
    // Behind all that is loaded.
    file.write_all(b"another").unwrap();
    program
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_loses_no_connection_attempt_and_touches_no_process() {
    let home = Home::new();
    let dev = home.dev(&[]);
    let before = everything(&dev.ready().await);
    let clients = clients_of_the_front(&home);
    for program in [another_berth(&home), PathBuf::from(env!("CARGO_BIN_EXE_berth"))] {
        let said = home.ok(&["upgrade", program.to_str().unwrap()]);
        assert!(said.contains(&format!("as pid {}", dev.pid())), "{said}");
        assert_eq!(host::program(dev.pid()), program.canonicalize().unwrap());
        assert_eq!(everything(&dev.ready().await), before);
    }
    assert!(clients.none_failed().await > 30);

    let refused = home.berth(&["upgrade", "/bin/echo"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("so it is no berth"));
    assert_eq!(everything(&dev.ready().await), before, "it stays when it is refused");
    assert!(dev.stop().success());
    assert_eq!(host::processes_below(&home.state()), []);
}

/// What systemd does: it keeps the descriptor a service hands it, and starts the next service with it.
struct FakeSystemd {
    socket: UnixDatagram,
    path: PathBuf,
}

impl FakeSystemd {
    fn new(dir: &std::path::Path) -> Self {
        let path = dir.join("notify.sock");
        Self { socket: UnixDatagram::bind(&path).unwrap(), path }
    }

    /// Reads messages until one brings a descriptor.
    fn stored(&self) -> OwnedFd {
        loop {
            if let (_, Some(descriptor)) = self.next() {
                return descriptor;
            }
        }
    }

    /// Reads messages until one says how it goes in these words.
    fn told(&self, status: &str) {
        while self.next().0 != format!("STATUS={status}") {}
    }

    fn next(&self) -> (String, Option<OwnedFd>) {
        let (mut bytes, mut space) = ([0; 4096], [std::mem::MaybeUninit::uninit(); 256]);
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let parts = &mut [IoSliceMut::new(&mut bytes)];
        let read = recvmsg(&self.socket, parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC).unwrap().bytes;
        let descriptor = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        (String::from_utf8_lossy(&bytes[..read]).trim_end().to_owned(), descriptor)
    }

    fn start<'a>(&self, home: &'a Home, arguments: &[&str], kept: Option<&OwnedFd>) -> Dev<'a> {
        let mut command = home.command(arguments);
        if let Some(kept) = kept {
            // As systemd passes it: descriptor 3, for the process with this pid alone.
            let daemon = command.get_program().to_owned();
            let mut shell = std::process::Command::new("/bin/sh");
            shell.args(["-c", "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\""]);
            shell.arg(daemon).args(command.get_args());
            shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
            command = shell;
            command.stdin(kept.try_clone().unwrap());
        } else {
            command.stdin(std::process::Stdio::null());
        }
        home.launch(command.env("NOTIFY_SOCKET", &self.path))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_by_systemd_leaves_everything_running_and_the_front_s_clients_in_its_queue() {
    let home = Home::new();
    let dir = tempfile::tempdir().unwrap();
    let systemd = FakeSystemd::new(dir.path());
    let config = home.config("");
    let up = ["up", "--config", config.to_str().unwrap()];
    let dev = systemd.start(&home, &up, None);
    home.ok_soon(&dev, &["cluster", "create", "demo"]).await;
    let before = everything(&dev.until("everything to be ready", all_ready).await);
    let kept = systemd.stored();
    systemd.told("kcp on slot a; 1 of 1 clusters ready");

    assert!(dev.terminate().success());
    assert!(before.values().all(|pid| host::is_alive(*pid)), "SIGTERM under systemd stops nobody");
    let clients = clients_of_the_front(&home);
    let dev = systemd.start(&home, &up, Some(&kept));
    assert_eq!(everything(&dev.until("everything to be ready", all_ready).await), before);
    assert!(clients.none_failed().await > 0);

    home.ok(&["down"]);
    assert!(dev.ended().success());
    assert_eq!(host::processes_below(&home.state()), []);
    let listener = TcpListener::from(kept);
    assert_eq!(listener.local_addr().unwrap(), home.front);
}
