//! The classes that ask and are answered, on hyper.

use super::board::Board;
use super::classes::{Asks, Class, Protocol};
use super::gate::Gate;
use super::line::{Ask, Line, PATIENCE};
use super::target::Target;
use hyper::Method;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// The large list: this many objects, this large.
const BULK: usize = 16;
const BULK_BYTES: usize = 64 << 10;
pub const LIST_BYTES: usize = BULK * BULK_BYTES;
/// What a stand-in is asked to take for a slow answer: longer than the longest hold.
pub const SLOW_MS: u64 = 700;
/// A slow reader takes so much, and rests: a megabyte takes it more than a second.
pub const SLOW_BYTES: usize = 16 << 10;
pub const UPLOAD_BYTES: usize = 200_000;
/// An API server refuses a body of 3 MiB.
pub const LARGE_UPLOAD_BYTES: usize = 5 << 19;
/// An upload comes in so many pieces, with this pause before each.
pub const PIECES: usize = 10;
pub const PIECE_PAUSE: Duration = Duration::from_millis(40);
/// Nobody deletes what a watch may not have been told of yet.
const OLD_ENOUGH_US: u64 = 3_000_000;

/// The name of the object every GET asks for.
pub fn seed(board: &Board) -> String {
    format!("{}-seed", board.run)
}

pub fn config_map(board: &Board, name: &str, bytes: usize) -> String {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"load": board.run}},
        "data": {"key": "x".repeat(bytes)},
    })
    .to_string()
}

/// The same with white space behind it, up to so many bytes in all.
fn padded(config_map: String, bytes: usize) -> String {
    let missing = bytes.saturating_sub(config_map.len());
    config_map + &" ".repeat(missing)
}

/// What the reads read. Left behind with the namespace.
pub async fn prepare(board: &Board, target: &Arc<Target>) -> Result<(), String> {
    let line = Line::new(Arc::clone(target), Protocol::H1);
    let mut ask = Ask::new(Method::POST, target.config_maps());
    let object = |name: String, label: &str, bytes| {
        let text = config_map(board, &name, bytes);
        text.replace(
            &format!("{{\"load\":\"{}\"}}", board.run),
            &format!("{{\"{label}\":\"{}\"}}", board.run),
        )
    };
    ask.json = object(seed(board), "load-seed", 100);
    line.ask(&ask).await?;
    for number in 0..BULK {
        ask.json = object(format!("{}-bulk-{number}", board.run), "load-bulk", BULK_BYTES);
        line.ask(&ask).await?;
    }
    Ok(())
}

pub async fn clean(board: &Board, target: &Arc<Target>) {
    let line = Line::new(Arc::clone(target), Protocol::H1);
    for label in ["load-seed", "load-bulk", "load"] {
        let path = format!("{}?labelSelector={label}%3D{}", target.config_maps(), board.run);
        // Whoever runs the load against a cluster of their own finds nothing left; if it cannot be asked, nothing is wrong.
        let _ = line.ask(&Ask::new(Method::DELETE, path)).await;
    }
}

pub fn start(board: &Arc<Board>, target: &Arc<Target>, class: usize, gate: &Gate) -> Vec<JoinHandle<()>> {
    let of = &board.classes[class];
    let line = Arc::new(Line::new(Arc::clone(target), of.protocol));
    let stream = |number| {
        let client = Client {
            board: Arc::clone(board),
            target: Arc::clone(target),
            line: if of.asks == Asks::Delete && of.protocol == Protocol::H1 {
                Arc::new(Line::new(Arc::clone(target), of.protocol))
            } else {
                Arc::clone(&line)
            },
            class,
            number,
        };
        let gate = gate.clone();
        tokio::spawn(async move {
            match client.of().asks {
                Asks::Delete => client.delete(gate).await,
                _ => client.run(gate).await,
            }
        })
    };
    (0..of.streams).map(stream).collect()
}

/// One loop of a class.
struct Client {
    board: Arc<Board>,
    target: Arc<Target>,
    line: Arc<Line>,
    class: usize,
    number: usize,
}

impl Client {
    fn of(&self) -> &Class {
        &self.board.classes[self.class]
    }

    async fn run(self, mut gate: Gate) {
        let mut count = 0u64;
        let mut began = Instant::now();
        while gate.next(self.of(), began).await {
            began = Instant::now();
            if self.of().fresh {
                self.line.close().await;
            }
            count += 1;
            let name = format!("{}-{}-{}-{count}", self.board.run, self.class, self.number);
            let (ask, writes) = self.next(&name);
            let result = match self.of().asks {
                Asks::HalfClosed => self.half_closed(&ask).await,
                _ => self.line.ask(&ask).await.and_then(|answer| self.whole(&answer)),
            };
            self.board.tally(self.class).connections = self.line.opened.load(Ordering::Relaxed);
            match result {
                Ok(()) => {
                    let latency = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
                    self.board.answered(self.class, self.board.now(), latency);
                    if writes {
                        self.board.wrote(&name);
                    }
                }
                Err(why) => self.board.failed(self.class, why, writes.then_some(&name)),
            }
        }
    }

    fn next(&self, name: &str) -> (Ask, bool) {
        let path = self.target.config_maps();
        let get = || Ask::new(Method::GET, format!("{path}/{}", seed(&self.board)));
        let list = || Ask::new(Method::GET, format!("{path}?labelSelector=load-bulk%3D{}", self.board.run));
        let post = |bytes| Ask {
            json: config_map(&self.board, name, bytes),
            ..Ask::new(Method::POST, path.clone())
        };
        match self.of().asks {
            Asks::Post | Asks::HalfClosed => (post(10), true),
            Asks::Upload => (Ask { pieces: PIECES, pause: PIECE_PAUSE, ..post(UPLOAD_BYTES) }, true),
            Asks::LargeUpload => {
                let post = post(10);
                let json = padded(post.json.clone(), LARGE_UPLOAD_BYTES);
                (Ask { pieces: PIECES, pause: PIECE_PAUSE, json, ..post }, true)
            }
            Asks::List => (list(), false),
            Asks::SlowRead => (Ask { read_at_once: SLOW_BYTES, ..list() }, false),
            Asks::SlowAnswer => (Ask { delay_ms: SLOW_MS, ..get() }, false),
            Asks::Get | Asks::Watch | Asks::KubeRs | Asks::Delete => (get(), false),
        }
    }

    fn whole(&self, answer: &[u8]) -> Result<(), String> {
        let is_list = matches!(self.of().asks, Asks::List | Asks::SlowRead);
        if is_list && answer.len() < LIST_BYTES {
            return Err(format!("a list of {} bytes is not whole", answer.len()));
        }
        Ok(())
    }

    /// The whole request and the end of our direction, and only then the answer.
    async fn half_closed(&self, ask: &Ask) -> Result<(), String> {
        let exchange = async {
            self.line.opened.fetch_add(1, Ordering::Relaxed);
            let mut stream = self.target.connect(b"http/1.1").await?;
            let request = format!(
                "POST {} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
                 Content-Length: {}\r\nConnection: close\r\n\r\n{}",
                ask.path,
                self.target.front,
                self.target.token,
                ask.json.len(),
                ask.json
            );
            stream.write_all(request.as_bytes()).await?;
            stream.shutdown().await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            Ok::<_, std::io::Error>(answer)
        };
        let answer = timeout(PATIENCE, exchange).await.map_err(|_| "no answer".to_owned())?;
        let answer = String::from_utf8_lossy(&answer.map_err(|error| error.to_string())?).into_owned();
        if answer.starts_with("HTTP/1.1 201") {
            return Ok(());
        }
        Err(format!("answered {:?}", answer.lines().next().unwrap_or_default()))
    }

    /// Deletes what was acknowledged a while ago: an object that is not there was lost. Ends when the others have.
    async fn delete(self, mut gate: Gate) {
        loop {
            let next = {
                let (now, mut books) = (self.board.now(), self.board.books());
                let old = books.kept.front().is_some_and(|(_, at)| at + OLD_ENOUGH_US < now);
                if old { books.kept.pop_front() } else { None }
            };
            let Some((name, _)) = next else {
                if gate.is_over() && self.board.books().kept.is_empty() {
                    return;
                }
                tokio::select! {
                    () = sleep(Duration::from_millis(50)) => {}
                    () = gate.changed() => {}
                }
                continue;
            };
            self.delete_one(name).await;
        }
    }

    async fn delete_one(&self, name: String) {
        let ask = Ask::new(Method::DELETE, format!("{}/{name}", self.target.config_maps()));
        let mut unsure = false;
        loop {
            let began = Instant::now();
            let result = self.line.ask(&ask).await;
            self.board.tally(self.class).connections = self.line.opened.load(Ordering::Relaxed);
            match result {
                Ok(_) => {
                    let latency = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
                    self.board.answered(self.class, self.board.now(), latency);
                    self.board.books().deleted.insert(name);
                    return;
                }
                Err(why) if why.starts_with("404") => {
                    let mut books = self.board.books();
                    // After an attempt without an answer, it may have been that one.
                    if unsure {
                        books.deleted.insert(name)
                    } else {
                        books.lost.push(name);
                        true
                    };
                    return;
                }
                Err(why) => {
                    unsure = true;
                    self.board.failed(self.class, why, None);
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
}
