//! A load from its first object to the last account: starts every class, sets the speed, and at the end makes sure that
//! whatever was acknowledged was there, and that every watch was told of it once.

use super::board::{Board, Fate};
use super::classes::{Asks, By, Class, Protocol};
use super::gate::{Gate, Speed};
use super::go::GoClients;
use super::line::{Ask, Line};
use super::target::Target;
use super::{kube_rs, requests, watching};
use hyper::Method;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// For everyone to end: longer than the longest patience of one request.
const END: Duration = Duration::from_secs(120);
/// For the last events to arrive; the other slot's come up to a second late.
const LAST_EVENTS: Duration = Duration::from_secs(20);

pub struct Load {
    pub board: Arc<Board>,
    target: Arc<Target>,
    speed: watch::Sender<Speed>,
    deleters_speed: watch::Sender<Speed>,
    clients: Vec<JoinHandle<()>>,
    deleters: Vec<JoinHandle<()>>,
    watches: Vec<JoinHandle<()>>,
    go: Option<GoClients>,
}

impl Load {
    pub async fn start(target: Target, classes: Vec<Class>) -> Result<Self, String> {
        let (board, target) = (Arc::new(Board::new(classes)), Arc::new(target));
        requests::prepare(&board, &target).await?;
        let from = watching::current(&target, &Line::new(Arc::clone(&target), Protocol::H1)).await?;
        let (speed, gate) = Gate::new();
        let (deleters_speed, deleters_gate) = Gate::new();
        let (mut clients, mut deleters, mut watches) = (Vec::new(), Vec::new(), Vec::new());
        for (number, class) in board.classes.iter().enumerate().filter(|(_, class)| class.by == By::Rust) {
            let (board, target, gate) = (Arc::clone(&board), Arc::clone(&target), gate.clone());
            match class.asks {
                Asks::Watch => {
                    watches.push(tokio::spawn(watching::run(board, target, number, from.clone())));
                }
                Asks::KubeRs => clients.push(tokio::spawn(kube_rs::run(board, target, number, gate))),
                Asks::Delete => deleters.extend(requests::start(&board, &target, number, &deleters_gate)),
                _ => clients.extend(requests::start(&board, &target, number, &gate)),
            }
        }
        let go = if board.classes.iter().any(|class| class.by == By::Go) {
            Some(GoClients::start(&board, &target, &from).await?)
        } else {
            None
        };
        Ok(Self { board, target, speed, deleters_speed, clients, deleters, watches, go })
    }

    pub async fn speed(&mut self, speed: Speed) {
        self.speed.send_replace(speed);
        if let Some(go) = &mut self.go {
            go.speed(speed).await;
        }
    }

    /// Ends the load and does the accounts.
    pub async fn finish(mut self) -> Result<Arc<Board>, String> {
        self.speed(Speed::Over).await;
        let clients = std::mem::take(&mut self.clients);
        let over = async {
            for client in clients {
                client.await.map_err(|error| error.to_string())?;
            }
            if let Some(go) = &mut self.go {
                go.over().await?;
            }
            self.deleters_speed.send_replace(Speed::Over);
            for deleter in std::mem::take(&mut self.deleters) {
                deleter.await.map_err(|error| error.to_string())?;
            }
            Ok::<_, String>(())
        };
        timeout(END, over).await.map_err(|_| "the clients did not end".to_owned())??;
        let last = Instant::now() + LAST_EVENTS;
        while !super::report::untold(&self.board).is_empty() && Instant::now() < last {
            sleep(Duration::from_millis(250)).await;
        }
        for watch in &self.watches {
            watch.abort();
        }
        drop(self.go.take());
        self.inquest().await?;
        requests::clean(&self.board, &self.target).await;
        Ok(self.board)
    }

    /// What became of each write that failed: its object is there, or it is not. All of it is long over by now.
    async fn inquest(&self) -> Result<(), String> {
        let line = Line::new(Arc::clone(&self.target), Protocol::H1);
        for class in 0..self.board.classes.len() {
            let failures = self.board.tally(class).failures.clone();
            for (number, failure) in failures.iter().enumerate() {
                let Some(name) = &failure.write else { continue };
                let ask = Ask::new(Method::GET, format!("{}/{name}", self.target.config_maps()));
                let fate = match line.ask(&ask).await {
                    Ok(_) => Fate::Executed,
                    Err(why) if why.starts_with("404") => Fate::NeverExecuted,
                    Err(why) => return Err(format!("what became of {name} cannot be told: {why}")),
                };
                self.board.tally(class).failures[number].fate = fate;
            }
        }
        Ok(())
    }
}
