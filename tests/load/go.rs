//! The Go clients: one program beside us, built from `tests/load/go` with the ordinary `go build`, that is told a job and a
//! speed and says a line for everything it saw.

use super::board::{Answer, Board};
use super::classes::{Asks, By};
use super::gate::Speed;
use super::requests;
use super::target::Target;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinHandle;

pub struct GoClients {
    _program: Child,
    orders: ChildStdin,
    /// Ends once every client but the watches has.
    over: JoinHandle<Result<(), String>>,
}

/// Builds the program below the target directory; quick when nothing has changed.
async fn build() -> Result<PathBuf, String> {
    let exe = std::env::current_exe().map_err(|error| error.to_string())?;
    let of_profile = exe.ancestors().nth(2).ok_or("this program lies in no target directory")?;
    let program = of_profile.join("load-go-clients");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/load/go");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(".").current_dir(source).stdin(Stdio::null());
    let output = build.output().await.map_err(|error| format!("go build ({error}): the load needs Go"))?;
    if output.status.success() {
        return Ok(program);
    }
    Err(format!("go build in {source}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn job(board: &Board, target: &Target, from: &str) -> Value {
    let classes = board.classes.iter().enumerate().filter(|(_, class)| class.by == By::Go);
    let classes: Vec<Value> = classes
        .map(|(number, class)| {
            let mut value = serde_json::to_value(class).unwrap();
            value["number"] = number.into();
            let only = |of: &[Asks], number: usize| if of.contains(&class.asks) { number } else { 0 };
            value["list_bytes"] = only(&[Asks::List, Asks::SlowRead], requests::LIST_BYTES).into();
            value["read_at_once"] = only(&[Asks::SlowRead], requests::SLOW_BYTES).into();
            value["data_bytes"] = only(&[Asks::Upload], requests::UPLOAD_BYTES).max(10).into();
            value["body_bytes"] = only(&[Asks::LargeUpload], requests::LARGE_UPLOAD_BYTES).into();
            value["pieces"] = only(&[Asks::Upload, Asks::LargeUpload], requests::PIECES).into();
            value["piece_pause_ms"] =
                u64::try_from(requests::PIECE_PAUSE.as_millis()).unwrap_or_default().into();
            value["delay_ms"] = if class.asks == Asks::SlowAnswer { requests::SLOW_MS } else { 0 }.into();
            value["calm_factor"] = super::gate::CALMER.into();
            value
        })
        .collect();
    json!({
        "front": target.front.to_string(),
        "config_maps": target.config_maps(),
        "ca": target.ca,
        "token": target.token,
        "run": board.run,
        "seed": requests::seed(board),
        "from": from,
        "began_unix_us": i64::try_from(board.began_unix_us()).unwrap_or_default(),
        "calm_ms": u64::try_from(super::gate::CALM.as_millis()).unwrap_or_default(),
        "classes": classes,
    })
}

impl GoClients {
    /// Watches begin at the resource version `from`.
    pub async fn start(board: &Arc<Board>, target: &Target, from: &str) -> Result<Self, String> {
        let program = build().await?;
        let mut command = Command::new(&program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| format!("{}: {error}", program.display()))?;
        let (Some(mut orders), Some(said)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("no pipe to the Go clients".to_owned());
        };
        let job = format!("{}\n", job(board, target, from));
        orders.write_all(job.as_bytes()).await.map_err(|error| error.to_string())?;
        let board = Arc::clone(board);
        let over = tokio::spawn(async move {
            let mut lines = BufReader::new(said).lines();
            let mut over = None;
            // What the watches see goes on for as long as the program lives.
            while let Ok(Some(line)) = lines.next_line().await {
                if line == "over" {
                    over = Some(());
                    tokio::spawn(listen(board.clone(), lines));
                    break;
                }
                note(&board, &line);
            }
            over.ok_or_else(|| "the Go clients ended early".to_owned())
        });
        Ok(Self { _program: child, orders, over })
    }

    pub async fn speed(&mut self, speed: Speed) {
        let word = match speed {
            Speed::Calm => "calm\n",
            Speed::Full => "full\n",
            Speed::Over => "over\n",
        };
        // A program that is gone is reported by `over`.
        let _ = self.orders.write_all(word.as_bytes()).await;
    }

    pub async fn over(&mut self) -> Result<(), String> {
        (&mut self.over).await.map_err(|error| error.to_string())?
    }
}

async fn listen(board: Arc<Board>, mut lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>) {
    while let Ok(Some(line)) = lines.next_line().await {
        note(&board, &line);
    }
}

fn note(board: &Board, line: &str) {
    let words: Vec<&str> = line.split('\t').collect();
    let number = |word: &str| word.parse::<u64>().unwrap_or_default();
    let class = words.get(1).and_then(|word| word.parse::<usize>().ok());
    let Some(class) = class.filter(|class| *class < board.classes.len()) else { return };
    match words[..] {
        ["a", _, at, latency] => {
            board.tally(class).answers.push(Answer { at: number(at), latency: number(latency) });
        }
        ["w", _, name] => board.wrote(name),
        ["f", _, name, why] => board.failed(class, why, (!name.is_empty()).then_some(name)),
        ["c", _, opened] => board.tally(class).connections = number(opened),
        ["t", _, name, what] => board.told(class, name, usize::from(what == "1")),
        ["r", _, "resumed"] => board.tally(class).resumed += 1,
        ["r", _, "relisted"] => board.tally(class).relisted += 1,
        _ => board.failed(class, format!("a line nobody knows: {line}"), None),
    }
}
