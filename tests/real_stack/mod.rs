//! Real components for tests: one tenant's postgres, kine and kube-apiserver in a temporary directory.
//!
//! postgres refuses root, so everything runs as `nobody` when the test runs as root. Each process ends with its value, by
//! its own pid; the directory goes last.
#![allow(dead_code, unreachable_pub)] // each test binary uses its own part

use berth::https::Https;
use berth::log_line;
use berth::testing::components;
use berth_actors::spec::{ProcessSpec, User};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::time::timeout;

/// Every wait on a real process: far above what any of them needs on a busy machine.
pub const DEADLINE: Duration = Duration::from_mins(1);
const NOBODY: User = User { uid: 65534, gid: 65534 };

/// Who runs the components: `nobody` under root, else ourselves.
pub fn user() -> Option<User> {
    rustix::process::geteuid().is_root().then_some(NOBODY)
}

/// A child that does not outlive its test.
pub struct Process {
    child: Child,
    end: rustix::process::Signal,
}

impl Process {
    #[allow(clippy::disallowed_methods)] // a test is no supervisor: its processes end with it
    fn spawn(command: &mut Command, log: &Path, run_as: Option<User>, end: rustix::process::Signal) -> Self {
        let log = fs::File::options().create(true).append(true).open(log).unwrap();
        if let Some(user) = run_as {
            command.uid(user.uid).gid(user.gid);
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|e| panic!("{command:?}: {e}"));
        Self { child, end }
    }

    /// Starts what a blueprint prepared, the way the daemon would.
    pub fn of_spec(spec: &ProcessSpec) -> Self {
        let mut command = Command::new(&spec.program);
        command.args(&spec.args).env_clear().envs(&spec.env).current_dir(&spec.dir);
        Self::spawn(&mut command, &spec.output, spec.user, rustix::process::Signal::KILL)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for the end, off the runtime.
    pub async fn exit_code(mut self) -> Option<i32> {
        let wait = tokio::task::spawn_blocking(move || self.child.wait().unwrap().code());
        timeout(DEADLINE, wait).await.expect("the process did not end").unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let pid = rustix::process::Pid::from_child(&self.child);
            let _ = rustix::process::kill_process(pid, self.end);
            let _ = self.child.wait();
        }
    }
}

/// A directory the components can reach and own.
pub struct Home(tempfile::TempDir);

impl Home {
    pub fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("berth-t").tempdir_in("/tmp").unwrap();
        give(dir.path());
        Self(dir)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The tenant's data directory, made on the first call.
    pub fn data(&self) -> PathBuf {
        let data = self.path().join("data");
        fs::create_dir_all(&data).unwrap();
        give(&data);
        data
    }
}

fn give(path: &Path) {
    if let Some(user) = user() {
        chown(path, Some(user.uid), Some(user.gid)).unwrap();
    }
}

pub async fn line(log: &Path, offset: u64, part: &str) -> String {
    let found = timeout(DEADLINE, log_line::wait_for(log, offset, |line| line.contains(part))).await;
    let Ok(line) = found else {
        panic!("{part:?} did not appear in:\n{}", fs::read_to_string(log).unwrap_or_default())
    };
    line.unwrap()
}

type Connected = tokio::task::JoinHandle<Result<(), tokio_postgres::Error>>;

/// A tenant's postgres with the database and role of kine.
pub struct Postgres {
    home: PathBuf,
    process: Option<Process>,
}

impl Postgres {
    #[allow(clippy::disallowed_methods)] // the same as above
    pub async fn start(home: &Home) -> Self {
        let mut initdb = Command::new(components().postgres_bin.join("initdb"));
        initdb.arg("-D").arg(home.path().join("pg")).args([
            "--username=postgres",
            "--encoding=UTF8",
            "--locale=C",
            "--auth-local=trust",
            "--auth-host=reject",
            "--no-sync",
            "--no-instructions",
        ]);
        let initdb = Process::spawn(
            &mut initdb,
            &home.path().join("initdb.log"),
            user(),
            rustix::process::Signal::KILL,
        );
        assert_eq!(initdb.exit_code().await, Some(0));
        let mut postgres = Self { home: home.path().to_owned(), process: None };
        postgres.resume().await;
        postgres.sql("postgres", "CREATE ROLE kine LOGIN").await;
        postgres.sql("postgres", "CREATE DATABASE kine OWNER kine").await;
        postgres
    }

    pub fn socket_dir(&self) -> &Path {
        &self.home
    }

    pub async fn resume(&mut self) {
        let log = self.home.join("postgres.log");
        let offset = fs::metadata(&log).map_or(0, |meta| meta.len());
        let mut command = Command::new(components().postgres_bin.join("postgres"));
        command.arg("-D").arg(self.home.join("pg")).env_clear().env("TZ", "UTC");
        for setting in ["listen_addresses=", "fsync=off", "max_connections=40", "shared_buffers=16MB"] {
            command.args(["-c", setting]);
        }
        command.arg("-c").arg(format!("unix_socket_directories={}", self.home.display()));
        // SIGQUIT: children and sockets go at once, whoever is connected.
        self.process = Some(Process::spawn(&mut command, &log, user(), rustix::process::Signal::QUIT));
        line(&log, offset, "database system is ready to accept connections").await;
    }

    pub async fn stop(&mut self) {
        let process = self.process.take().unwrap();
        process.signal(rustix::process::Signal::INT);
        process.exit_code().await;
    }

    pub async fn sql(&self, database: &str, statement: &str) {
        let (client, connection) = self.client(database).await;
        client.batch_execute(statement).await.unwrap();
        drop(client);
        connection.await.unwrap().unwrap();
    }

    /// The one text a query gives.
    pub async fn text(&self, database: &str, query: &str) -> String {
        let (client, connection) = self.client(database).await;
        let text = client.query_one(query, &[]).await.unwrap().get(0);
        drop(client);
        connection.await.unwrap().unwrap();
        text
    }

    async fn client(&self, database: &str) -> (tokio_postgres::Client, Connected) {
        let mut config = tokio_postgres::Config::new();
        config.host_path(&self.home).user("postgres").dbname(database);
        let (client, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
        (client, tokio::spawn(connection))
    }
}

/// kine on the tenant's database.
pub struct Kine {
    pub socket: PathBuf,
    process: Process,
}

impl Kine {
    pub async fn start(postgres: &Postgres) -> Self {
        let home = &postgres.home;
        let (socket, log) = (home.join("kine.sock"), home.join("kine.log"));
        let mut command = Command::new(&components().kine.path);
        command
            .arg(format!("--listen-address=unix://{}", socket.display()))
            .args(["--metrics-bind-address=0", "--datastore-max-open-connections=10"])
            .env_clear()
            .env("KINE_ENDPOINT", format!("postgres://kine@/kine?host={}", home.display()));
        let process = Process::spawn(&mut command, &log, user(), rustix::process::Signal::KILL);
        line(&log, 0, "Kine available at").await;
        Self { socket, process }
    }
}

/// A kube-apiserver with its own PKI in `<data>/pki`.
pub struct ApiServer {
    pub address: SocketAddr,
    pub data: PathBuf,
    home: PathBuf,
    process: Process,
}

impl ApiServer {
    pub async fn start(home: &Home, kine: &Kine) -> Self {
        write_pki(&home.data().join("pki"));
        // The API server cannot bind port 0. Nobody else takes a port of the ephemeral range in this moment.
        let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = probe.local_addr().unwrap();
        drop(probe);
        Self::again(home, kine, address).await
    }

    /// On a known port, with the files of an earlier one.
    pub async fn again(home: &Home, kine: &Kine, address: SocketAddr) -> Self {
        let data = home.data();
        let pki = data.join("pki");
        let file = |name: &str| pki.join(name).display().to_string();
        let mut command = Command::new(&components().kube_apiserver.path);
        command.env_clear().current_dir(home.path()).args([
            format!("--etcd-servers=unix://{}", kine.socket.display()),
            format!("--secure-port={}", address.port()),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            format!("--tls-cert-file={}", file("apiserver.crt")),
            format!("--tls-private-key-file={}", file("apiserver.key")),
            format!("--client-ca-file={}", file("client-ca.crt")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", file("sa.pub")),
            format!("--service-account-signing-key-file={}", file("sa.key")),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--profiling=false".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
        ]);
        let log = home.path().join("apiserver.log");
        let process = Process::spawn(&mut command, &log, user(), rustix::process::Signal::KILL);
        let server = Self { address, data, home: home.path().to_owned(), process };
        let ready = timeout(DEADLINE, server.ready()).await;
        assert!(ready.is_ok(), "it is not ready:\n{}", fs::read_to_string(log).unwrap_or_default());
        server
    }

    async fn ready(&self) {
        let https = Https::new(&fs::read(self.data.join("pki/server-ca.crt")).unwrap(), None).unwrap();
        let url = format!("https://{}/readyz", self.address);
        // Only the server knows, and only an answer tells: the interval is between answers.
        let mut turn = tokio::time::interval(Duration::from_millis(100));
        loop {
            turn.tick().await;
            if https.get(&url, Duration::from_secs(2)).await.is_ok_and(|(status, _)| status.is_success()) {
                return;
            }
        }
    }

    pub fn kill(self) {
        drop(self.process);
    }

    /// A client with all rights, for what kubelets and operators do.
    pub fn admin(&self) -> kube::Client {
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        kube::Client::try_from(self.config("admin")).unwrap()
    }

    fn config(&self, name: &str) -> kube::Config {
        use base64::Engine;
        let encode = |file: &str| {
            let bytes = fs::read(self.data.join("pki").join(file)).unwrap();
            base64::engine::general_purpose::STANDARD.encode(bytes)
        };
        let mut config = kube::Config::new(format!("https://{}", self.address).parse().unwrap());
        let ca = fs::read(self.data.join("pki/server-ca.crt")).unwrap();
        config.root_cert = Some(vec![pem_bytes(&ca)]);
        config.auth_info.client_certificate_data = Some(encode(&format!("{name}.crt")));
        config.auth_info.client_key_data = Some(encode(&format!("{name}.key")).into());
        config
    }
}

fn pem_bytes(pem: &[u8]) -> Vec<u8> {
    use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject};
    CertificateDer::from_pem_slice(pem).unwrap().to_vec()
}

/// One tenant's PKI, as the daemon lays it out.
pub fn write_pki(pki: &Path) {
    fs::create_dir_all(pki).unwrap();
    give(pki);
    let write = |name: &str, text: &str| {
        let path = pki.join(name);
        berth::files::write_atomic(&path, text.as_bytes(), user()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    };
    let ca = |name: &str| {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        write(&format!("{name}.crt"), &params.self_signed(&key).unwrap().pem());
        write(&format!("{name}.key"), &key.serialize_pem());
        Issuer::new(params, key)
    };
    let (server_ca, client_ca) = (ca("server-ca"), ca("client-ca"));
    let leaf = |name: &str, issuer: &Issuer<'_, KeyPair>, subject: &[(DnType, &str)], sans: Vec<SanType>| {
        let mut params = CertificateParams::default();
        for (kind, value) in subject {
            params.distinguished_name.push(kind.clone(), *value);
        }
        params.subject_alt_names = sans;
        let key = KeyPair::generate().unwrap();
        write(&format!("{name}.crt"), &params.signed_by(&key, issuer).unwrap().pem());
        write(&format!("{name}.key"), &key.serialize_pem());
    };
    let loopback = vec![SanType::IpAddress(Ipv4Addr::LOCALHOST.into())];
    leaf("apiserver", &server_ca, &[(DnType::CommonName, "apiserver")], loopback);
    let admin = [(DnType::CommonName, "admin"), (DnType::OrganizationName, "system:masters")];
    leaf("admin", &client_ca, &admin, vec![]);
    leaf("stranger", &client_ca, &[(DnType::CommonName, "stranger")], vec![]);
    let accounts = KeyPair::generate().unwrap();
    write("sa.key", &accounts.serialize_pem());
    write("sa.pub", &accounts.public_key_pem());
}
