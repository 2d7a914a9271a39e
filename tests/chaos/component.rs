//! The stand-in of every component: a program that owns a port or a socket and either keeps lines in a file or passes them
//! on to whoever does. Its misbehaviour is asked for by files in its working directory.
//!
//! A write is acknowledged once it is in the file: SIGKILL of anything cannot take it back.

use super::line::{self, Place};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Mutex;

pub const ROLE: &str = "component";
/// The first word of a child that a keeper starts, as postgres starts its workers: it must never outlive it.
const WORKER: &str = "worker";
/// `<component>.<knob>` in its working directory.
pub const EXIT_AT_START: &str = "exit-at-start";
pub const MUTE_AT_START: &str = "mute-at-start";
pub const IGNORE_TERM: &str = "ignore-term";
/// Where each writes its name when it ends on SIGTERM, from the working directory of any of them.
const ENDS: &str = "../../ends";
/// Between two tries to become the leader.
const CAMPAIGN: Duration = Duration::from_millis(100);
/// A lease nobody renews for this long is anybody's, as kcp's is after a minute.
const EXPIRY: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Words {
    name: String,
    listen: Option<Place>,
    keep: Option<PathBuf>,
    onto: Option<Place>,
    leads: Option<PathBuf>,
    mute: bool,
}

pub fn main(words: &[String]) -> ExitCode {
    if words.first().is_some_and(|word| word == WORKER) {
        loop {
            std::thread::park();
        }
    }
    let mut parsed = Words::default();
    for pair in words.chunks(2) {
        let [flag, value] = pair else { panic!("{pair:?}") };
        match flag.as_str() {
            "--name" => parsed.name.clone_from(value),
            "--listen" => parsed.listen = Some(value.parse().unwrap()),
            "--keep" => parsed.keep = Some(value.into()),
            "--onto" => parsed.onto = Some(value.parse().unwrap()),
            "--leads" => parsed.leads = Some(value.into()),
            other => panic!("{other}"),
        }
    }
    if std::fs::remove_file(format!("{}.{EXIT_AT_START}", parsed.name)).is_ok() {
        return ExitCode::FAILURE;
    }
    parsed.mute = std::fs::remove_file(format!("{}.{MUTE_AT_START}", parsed.name)).is_ok();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(live(parsed))
}

async fn live(words: Words) -> ExitCode {
    let mut asked = signal(SignalKind::terminate()).unwrap();
    let answers = match (&words.keep, &words.onto) {
        (Some(file), _) => {
            employ_a_worker();
            Answers::Kept(Mutex::new(Kept::open(file)))
        }
        (None, Some(onto)) => Answers::Onto(onto.clone()),
        (None, None) => panic!("{} has nothing to say", words.name),
    };
    let answers = Arc::new(answers);
    if let Some(file) = &words.leads {
        let identity = format!("{}_{}", words.name, uuid::Uuid::new_v4().simple());
        // Not as the daemon writes: what this one leaves aside when it is killed is none of the daemon's.
        let aside = file.with_extension("new");
        std::fs::write(&aside, &identity).and_then(|()| std::fs::rename(&aside, file)).unwrap();
        tokio::spawn(campaign(Arc::clone(&answers), identity));
    }
    let Err(error) = (match words.listen.unwrap() {
        Place::Port(address) => match TcpListener::bind(address).await {
            Ok(listener) => {
                tokio::spawn(async move {
                    loop {
                        let (stream, _) = listener.accept().await.unwrap();
                        tokio::spawn(serve(stream, words.mute, Arc::clone(&answers)));
                    }
                });
                Ok(())
            }
            Err(error) => Err(error),
        },
        Place::Socket(path) => {
            let _ = std::fs::remove_file(&path);
            match UnixListener::bind(&path) {
                Ok(listener) => {
                    tokio::spawn(async move {
                        loop {
                            let (stream, _) = listener.accept().await.unwrap();
                            tokio::spawn(serve(stream, words.mute, Arc::clone(&answers)));
                        }
                    });
                    Ok(())
                }
                Err(error) => Err(error),
            }
        }
    }) else {
        loop {
            asked.recv().await;
            if std::fs::remove_file(format!("{}.{IGNORE_TERM}", words.name)).is_err() {
                tell_of_end(&words.name);
                return ExitCode::SUCCESS;
            }
        }
    };
    println!("{}: cannot listen: {error}", words.name);
    ExitCode::FAILURE
}

/// One line for all to see, as what was asked of it last. Where there is no room for it, nobody will miss it.
fn tell_of_end(name: &str) {
    let here = std::env::current_dir().unwrap();
    let chain = here.file_name().unwrap().to_string_lossy();
    if let Ok(mut ends) = std::fs::File::options().create(true).append(true).open(here.join(ENDS)) {
        let _ = ends.write_all(format!("{chain}/{name}\n").as_bytes());
    }
}

/// In a process group of its own, so that only the search for its mark or its cgroup finds it.
fn employ_a_worker() {
    use std::os::unix::process::CommandExt;
    let mut worker = std::process::Command::new(std::env::current_exe().unwrap());
    worker.args([ROLE, WORKER]).process_group(0).stdin(std::process::Stdio::null());
    drop(worker.spawn().unwrap());
}

async fn campaign(answers: Arc<Answers>, identity: String) {
    loop {
        let _ = answers.to(&format!("take lease {identity}")).await;
        tokio::time::sleep(CAMPAIGN).await;
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, mute: bool, answers: Arc<Answers>) {
    if mute {
        // The connection stays open.
        std::future::pending::<()>().await;
    }
    let mut stream = BufReader::new(stream);
    let mut request = String::new();
    while stream.read_line(&mut request).await.is_ok_and(|length| length > 0) {
        let answer = match request.trim() {
            "whoami" => Ok(std::process::id().to_string()),
            other => answers.to(other).await,
        };
        let line = answer.unwrap_or_else(|reason| format!("!{reason}"));
        if stream.write_all(format!("{line}\n").as_bytes()).await.is_err() {
            return;
        }
        request.clear();
    }
}

enum Answers {
    Kept(Mutex<Kept>),
    Onto(Place),
}

impl Answers {
    async fn to(&self, request: &str) -> Result<String, String> {
        match self {
            Self::Kept(kept) => kept.lock().await.answer(request),
            Self::Onto(place) => line::ask(place, request).await,
        }
    }
}

/// Keys and values, each change a line at the end of one file; a key without a value is gone.
struct Kept {
    file: std::fs::File,
    values: BTreeMap<String, String>,
    /// When the lease was last taken or held on to.
    renewed: Instant,
}

impl Kept {
    fn open(path: &Path) -> Self {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path.parent().unwrap()).unwrap();
        let text = std::fs::read_to_string(path).unwrap_or_default();
        // What was not written to its end was not acknowledged.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let file = std::fs::File::options().create(true).append(true).open(path).unwrap();
        file.set_len(whole as u64).unwrap();
        let mut kept = Self { file, values: BTreeMap::new(), renewed: Instant::now() };
        text[..whole].lines().for_each(|line| kept.apply(line));
        kept
    }

    fn apply(&mut self, line: &str) {
        match line.split_once(' ') {
            Some((key, value)) => drop(self.values.insert(key.to_owned(), value.to_owned())),
            None => drop(self.values.remove(line)),
        }
    }

    fn change(&mut self, line: &str) -> Result<(), String> {
        let whole = self.file.metadata().map_err(|error| error.to_string())?.len();
        if let Err(error) = self.file.write_all(format!("{line}\n").as_bytes()) {
            // A full disk may have taken half of it, to which the next line must not be joined.
            self.file.set_len(whole).unwrap();
            return Err(error.to_string());
        }
        self.apply(line);
        Ok(())
    }

    fn answer(&mut self, request: &str) -> Result<String, String> {
        let words: Vec<&str> = request.split(' ').collect();
        match words[..] {
            ["put", key, value] => {
                self.change(&format!("{key} {value}"))?;
                Ok("ok".to_owned())
            }
            ["take", key, value] => {
                let free = self.renewed.elapsed() > EXPIRY || !self.values.contains_key(key);
                if free {
                    self.change(&format!("{key} {value}"))?;
                }
                if self.values[key] == value {
                    self.renewed = Instant::now();
                }
                Ok(self.values[key].clone())
            }
            ["drop", key, value] => {
                if self.values.get(key).is_some_and(|present| present == value) {
                    self.change(key)?;
                }
                Ok("ok".to_owned())
            }
            ["get", key] => Ok(self.values.get(key).cloned().unwrap_or_else(|| "-".to_owned())),
            ["keys"] => Ok(self.values.keys().cloned().collect::<Vec<_>>().join(" ")),
            _ => Err(format!("{request:?} is not understood")),
        }
    }
}
