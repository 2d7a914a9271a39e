//! Takes a backup of a cluster that serves: its files, then its database as of one moment, as a stream of frames.
//!
//! The copy is physical (`pg_basebackup`): kine's and OpenBao's databases are in one database cluster, and only its log has one
//! order for both. A temporary slot keeps that log until it was copied; it goes with its session, whoever dies. Nothing is
//! written on this host.

use super::archive::Archive;
use super::contents::{self, Contents};
use super::manifest::{FORMAT, Header, Manifest};
use super::wire::Frame;
use crate::files::{self, FileError};
use crate::guard::{self, Record};
use crate::off_thread::off_thread;
use crate::process::tool::{self, Tool, ToolError};
use crate::tenant::Tenant;
use crate::tenant::pki::Pki;
use crate::tenant::postgres::{self, BACKUP, SUPERUSER, databases};
use crate::tenant::stack::KINE_DATABASE;
use crate::{clock, fault};
use berth_actors::message::Refusal;
use rustix::pipe::{PipeFlags, pipe_with};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_postgres::Client;

/// From the first byte to the last. Whoever takes the bytes sets the pace, and the database keeps its log for that long.
pub const DEADLINE: Duration = Duration::from_hours(1);
/// One answer of the database.
const ANSWER: Duration = Duration::from_secs(30);
/// Frames ahead of their reader, of up to [`CHUNK`] each.
const AHEAD: usize = 4;
const CHUNK: usize = 256 << 10;
/// The database's directory, in the backup and in the cluster.
const DATABASE: &str = "pg";

/// Encoded frames, in order.
pub type Stream = mpsc::Receiver<Vec<u8>>;

type Written = Archive<Frames>;

/// Begins a backup. It goes on for as long as the stream is read, and ends at once when that is dropped.
/// `hold` is dropped with its end.
pub fn begin(tenant: Tenant, hold: impl Send + 'static) -> Stream {
    let (frames, stream) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        let too_late = || Err(format!("not done after {} s", DEADLINE.as_secs()));
        let taken = tokio::select! {
            taken = tokio::time::timeout(DEADLINE, take(&tenant, frames.clone())) => taken.unwrap_or_else(|_| too_late()),
            () = frames.closed() => return,
        };
        drop(hold);
        let last = match taken {
            Ok(()) => Frame::Done,
            Err(reason) => {
                Frame::Failed(Refusal::Failed(format!("{} was not backed up: {reason}", tenant.name())))
            }
        };
        // A reader that is gone needs no last word.
        let _ = frames.send(last.encode()).await;
    });
    stream
}

async fn take(tenant: &Tenant, frames: mpsc::Sender<Vec<u8>>) -> Result<(), String> {
    let seat = tenant.seat();
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let client = answered(databases::connect(&seat.sockets, SUPERUSER, KINE_DATABASE)).await?;
    let before = identity(tenant, &client).await?;
    let server: String = answered(client.query_one("SHOW server_version", &[])).await?.get(0);
    if has_own_uid(tenant) {
        answered(databases::ensure_backup_role(&client)).await?;
    }
    // Reserved at once, and gone with this session. A name that nobody can have taken before.
    let slot = format!("berth_backup_{}", uuid::Uuid::new_v4().simple());
    let reserve = "SELECT pg_create_physical_replication_slot($1, true, true)";
    answered(client.query_one(reserve, &[&slot])).await?;

    let (data, read) = (seat.data.clone(), Arc::new(AtomicU64::new(0)));
    let bytes = off_thread(move || contents::size_of(&data)).await.map_err(|e| text(&e))?;
    let header = Header {
        format: FORMAT,
        berth: env!("CARGO_PKG_VERSION").to_owned(),
        cluster: tenant.name().to_owned(),
        made: clock::stamp(),
        bytes,
    };
    let manifest = manifest(tenant, &header, before.clone(), server);
    let (copied, copy) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| text(&e))?;
    let sink = Frames { frames: frames.clone(), chunk: Vec::new(), read: Arc::clone(&read) };
    let _ = frames.send(Frame::Total(bytes).encode()).await;
    let (data, pki) = (seat.data.clone(), tenant.pki());
    let pack = off_thread(move || pack(sink, &header, &data, &pki, copied.into(), read));
    let (copied, packed) = tokio::join!(tool::run_into(base_backup(tenant), DEADLINE, copy), pack);
    // A tool that was cut off because nothing more could be packed says less than whoever cut it off.
    let archive = match (copied, packed) {
        (
            Err(error @ (ToolError::Failed { .. } | ToolError::Start { .. } | ToolError::TooLate { .. })),
            Ok(_),
        ) => {
            return Err(text(&error));
        }
        (_, Err(error)) => return Err(text(&error)),
        (Ok(()), Ok(archive)) => archive,
    };
    if identity(tenant, &client).await? != before {
        return Err("its identity changed meanwhile: say it again".to_owned());
    }
    fault::point("backup-copied");
    off_thread(move || archive.finish(manifest)?.send_rest()).await.map_err(|e| text(&e))
}

/// Everything but the manifest. Blocking, for as long as the copy takes.
fn pack(
    sink: Frames,
    header: &Header,
    data: &Path,
    pki: &Pki,
    copy: File,
    read: Arc<AtomicU64>,
) -> io::Result<Written> {
    let mut archive = Archive::begin(sink, header, read)?;
    let (contents, keys) = still(data, pki)?;
    pack_files(&mut archive, &header.cluster, data, &contents, &keys)?;
    archive.dir(DATABASE)?;
    archive.members_of(DATABASE, copy)?;
    Ok(archive)
}

/// What there is, and the content of all in `pki/`, which is small. A component that starts may have a certificate made anew with
/// its key: they are read while nobody does, and written at whatever pace the reader has.
fn still(data: &Path, pki: &Pki) -> Result<(Contents, BTreeMap<String, Vec<u8>>), FileError> {
    pki.hold_still(|| {
        let contents = contents::of(data)?;
        let keys = contents.files.iter().filter(|name| data.join(name).starts_with(&pki.dir));
        let read = |name: &String| Ok((name.clone(), files::read(&data.join(name))?));
        let keys = keys.map(read).collect::<Result<_, FileError>>()?;
        Ok((contents, keys))
    })
}

/// What is gone since it was listed, or is no plain file, is left out; but not where the cluster could not be had back without it.
fn pack_files<W: Write>(
    archive: &mut Archive<W>,
    cluster: &str,
    data: &Path,
    contents: &Contents,
    keys: &BTreeMap<String, Vec<u8>>,
) -> io::Result<()> {
    for odd in &contents.odd {
        tracing::warn!(cluster, path = ?odd, "it is no plain file, and not in the backup");
    }
    for dir in &contents.dirs {
        archive.dir(dir)?;
    }
    for name in &contents.files {
        if let Some(key) = keys.get(name) {
            archive.file(name, key.len() as u64, key.as_slice())?;
            continue;
        }
        let path = data.join(name);
        let failed = |source| FileError { action: "read", path: path.clone(), source };
        let opened = files::open_to_read(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
        match opened {
            Ok((size, file)) => archive.file(name, size, file)?,
            Err(error) if contents::is_essential(name) => return Err(failed(error).into()),
            Err(error) => tracing::warn!(cluster, path = ?name, %error, "it is not in the backup"),
        }
    }
    Ok(())
}

async fn identity(tenant: &Tenant, client: &Client) -> Result<Record, String> {
    let record = tokio::time::timeout(ANSWER, guard::recorded(client)).await.map_err(|_| no_answer())??;
    if record.owner.uid == tenant.uid() {
        return Ok(record);
    }
    Err(format!("its database belongs to {}", record.owner))
}

async fn answered<T, E: std::fmt::Display>(query: impl Future<Output = Result<T, E>>) -> Result<T, String> {
    let answer = tokio::time::timeout(ANSWER, query).await.map_err(|_| no_answer())?;
    answer.map_err(|error| format!("its database: {error}"))
}

fn no_answer() -> String {
    format!("its database gave no answer within {} s", ANSWER.as_secs())
}

fn manifest(tenant: &Tenant, header: &Header, identity: Record, postgres: String) -> Manifest {
    let components = tenant.components();
    let named = |name: &str, path: &PathBuf| (name.to_owned(), path.display().to_string());
    let programs = BTreeMap::from([
        named("postgres", &components.postgres_bin),
        named("openbao", &components.openbao.path),
        named("kine", &components.kine.path),
        named("kube-apiserver", &components.kube_apiserver.path),
    ]);
    Manifest {
        format: FORMAT,
        berth: header.berth.clone(),
        cluster: header.cluster.clone(),
        made: header.made.clone(),
        distribution: tenant.distribution(),
        postgres,
        programs,
        identity,
        members: BTreeMap::new(),
    }
}

/// Whether its postgres takes nobody's word but the daemon's for the superuser's.
fn has_own_uid(tenant: &Tenant) -> bool {
    tenant.accounts().maker.is_some()
}

/// The log that makes the copy consistent comes with it (`fetch`: a tar on a pipe can hold no second stream). Berth's own
/// manifest has the digests; the server need not make them too.
///
/// It talks to a socket that the cluster may have replaced. So it has the cluster's uid and not the daemon's, stands in no
/// directory of the cluster's, and has no file of settings, passwords or keys to find.
fn base_backup(tenant: &Tenant) -> Tool {
    let seat = tenant.seat();
    let role = if has_own_uid(tenant) { BACKUP } else { SUPERUSER };
    let mut args = vec![format!("--host={}", seat.sockets.display()), format!("--username={role}")];
    let rest = [
        "--pgdata=-",
        "--format=tar",
        "--wal-method=fetch",
        "--checkpoint=fast",
        "--label=berth",
        "--no-manifest",
        "--no-password",
    ];
    args.extend(rest.map(str::to_owned));
    let nothing = [
        ("PGPASSFILE", "/dev/null"),
        ("PGSERVICEFILE", "/dev/null"),
        ("PGSSLMODE", "disable"),
        ("PGGSSENCMODE", "disable"),
    ];
    let nothing = nothing.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Tool {
        program: tenant.components().postgres_bin.join("pg_basebackup"),
        args,
        env: postgres::tool_environment().into_iter().chain(nothing).collect(),
        dir: "/".into(),
        user: seat.owner,
    }
}

/// What is compressed, on its way to the reader.
struct Frames {
    frames: mpsc::Sender<Vec<u8>>,
    chunk: Vec<u8>,
    read: Arc<AtomicU64>,
}

impl Frames {
    fn send_rest(mut self) -> io::Result<()> {
        self.send()
    }

    fn send(&mut self) -> io::Result<()> {
        let gone = |_| io::Error::other("whoever asked for it is gone");
        let data = Frame::Data(std::mem::take(&mut self.chunk));
        let progress = Frame::Progress(self.read.load(Ordering::Relaxed));
        [data, progress].iter().try_for_each(|frame| self.frames.blocking_send(frame.encode()).map_err(gone))
    }
}

impl Write for Frames {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.chunk.extend_from_slice(bytes);
        if self.chunk.len() >= CHUNK {
            self.send()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn header() -> Header {
        Header {
            format: FORMAT,
            berth: String::new(),
            cluster: "demo".to_owned(),
            made: String::new(),
            bytes: 0,
        }
    }

    fn names_in(packed: &[u8]) -> Vec<String> {
        let mut tar = tar::Archive::new(packed);
        tar.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string()).collect()
    }

    /// The names in the archive, or why there is none. `meanwhile` comes between listing and reading.
    fn packed(data: &Path, meanwhile: impl FnOnce()) -> Result<Vec<String>, String> {
        let mut archive = Archive::begin(Vec::new(), &header(), Arc::default()).unwrap();
        let pki = Pki { cluster: "demo".to_owned(), dir: data.join("pki"), owner: None };
        let (contents, keys) = still(data, &pki).unwrap();
        meanwhile();
        pack_files(&mut archive, "demo", data, &contents, &keys).map_err(|error| error.to_string())?;
        let bytes = zstd::decode_all(archive.abandon().as_slice()).unwrap();
        Ok(names_in(&bytes).into_iter().skip(1).collect())
    }

    /// The socket it talks to may be anybody's who has the cluster's uid.
    #[test]
    fn the_copy_is_made_with_the_clusters_uid_and_finds_nothing_of_its_making() {
        use crate::components::{Components, Program};
        use crate::tenant::Accounts;
        use berth_actors::host::Distribution;
        use berth_actors::spec::User;
        let program = || Program::real("/bin/x");
        let components = Components {
            postgres_bin: "/bin".into(),
            openbao: program(),
            kine: program(),
            kube_apiserver: program(),
            kube_controller_manager: program(),
            k3s: None,
            kcp: program(),
            ccm: program(),
        };
        let common = User { uid: 65_534, gid: 65_534 };
        let own = User { uid: 7, gid: 7 };
        let shared =
            Accounts { owner: Some(common), component: "c".into(), daemon: "root".into(), maker: None };
        let layout = crate::layout::Layout::new("/s".into(), Some("/r".into()));
        for (accounts, user, role) in
            [(shared.with_own(own), own, "--username=berth_backup"), (shared, common, "--username=postgres")]
        {
            let kind = Distribution::Kubernetes;
            let tenant = Tenant::new(&layout, "demo", "u", kind, components.clone(), accounts, 1).unwrap();
            let tool = base_backup(&tenant);
            assert_eq!((tool.user, tool.dir.as_path()), (Some(user), Path::new("/")));
            assert!(tool.args.iter().any(|argument| argument == role), "{:?}", tool.args);
            assert_eq!(tool.env["PGPASSFILE"], "/dev/null");
            assert!(!tool.env.contains_key("HOME"));
        }
    }

    fn cluster() -> tempfile::TempDir {
        let data = tempfile::tempdir().unwrap();
        for path in ["bao/unseal.key", "pki/sa.key", "nodes.json", "passing", "tmp/passing"] {
            let path = data.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            files::write_atomic(&path, b"some", None).unwrap();
        }
        data
    }

    #[test]
    fn what_goes_between_listing_and_reading_ends_no_backup_but_a_key_does() {
        let data = cluster();
        let gone = |path: &'static str| {
            let path = data.path().join(path);
            move || fs::remove_file(path).unwrap()
        };
        assert_eq!(
            packed(data.path(), gone("passing")).unwrap(),
            ["bao", "pki", "bao/unseal.key", "nodes.json", "pki/sa.key"]
        );
        let error = packed(data.path(), gone("bao/unseal.key")).unwrap_err();
        assert!(error.contains("bao/unseal.key"), "{error}");
        let all = packed(data.path(), gone("pki/sa.key")).unwrap();
        assert!(all.contains(&"pki/sa.key".to_owned()), "keys are read at once: {all:?}");
    }

    #[test]
    fn a_large_file_is_streamed_and_an_odd_one_left_out() {
        let data = cluster();
        let large = data.path().join("large");
        fs::File::create(&large).unwrap().set_len(40 << 20).unwrap();
        assert!(files::read(&large).is_err(), "more than is ever read at once");
        fs::hard_link(data.path().join("passing"), data.path().join("twice")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", data.path().join("link")).unwrap();
        assert_eq!(
            packed(data.path(), || ()).unwrap(),
            ["bao", "pki", "bao/unseal.key", "large", "nodes.json", "pki/sa.key"]
        );
    }
}
