//! A child's output, line by line, so that a test waits for an event instead of a time.

use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::sync::mpsc;

/// Longer than anything these processes do on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(90);

#[derive(Debug)]
pub struct Lines {
    receiver: mpsc::UnboundedReceiver<String>,
    seen: Vec<String>,
}

impl Lines {
    /// Reads to the end whether anybody waits or not: a full pipe would stop the child.
    pub fn of(output: impl AsyncRead + Unpin + Send + 'static) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut lines = BufReader::new(output).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { receiver, seen: Vec::new() }
    }

    /// The first line with `needle`, among those already read or yet to come.
    pub async fn until(&mut self, needle: &str) -> String {
        if let Some(line) = self.seen.iter().find(|line| line.contains(needle)) {
            return line.clone();
        }
        let wait = async {
            while let Some(line) = self.receiver.recv().await {
                self.seen.push(line);
                if let Some(line) = self.seen.last().filter(|line| line.contains(needle)) {
                    return Some(line.clone());
                }
            }
            None
        };
        let found = tokio::time::timeout(PATIENCE, wait).await.unwrap_or_default();
        found.unwrap_or_else(|| panic!("no line with {needle:?} in:\n{}", self.seen.join("\n")))
    }

    /// All lines, once the output has ended.
    pub async fn all(&mut self) -> &[String] {
        while let Some(line) = self.receiver.recv().await {
            self.seen.push(line);
        }
        &self.seen
    }
}
