//! A backup that arrives over the control socket, unpacked while it does.

use super::staging::{self, Staged};
use super::verify::BackupError;
use crate::off_thread::off_thread;
use axum::body::Bytes;
use berth_actors::spec::User;
use futures::StreamExt;
use futures::stream::BoxStream;
use std::io::{self, Read};
use std::path::PathBuf;
use tokio::sync::mpsc;

/// A file in pieces.
pub type Pieces = BoxStream<'static, io::Result<Bytes>>;

/// Pieces ahead of the disk.
const AHEAD: usize = 8;

/// Takes all of `pieces`, also of a backup that is refused at its first: its sender reads no answer before it has sent it.
pub async fn stage(
    mut pieces: Pieces,
    clusters: PathBuf,
    owner: Option<User>,
) -> Result<Staged, BackupError> {
    let (sender, received) = mpsc::channel(AHEAD);
    let pump = async move {
        while let Some(piece) = pieces.next().await {
            let _not_wanted_any_more = sender.send(piece).await;
        }
    };
    let stage = off_thread(move || {
        let mut arriving = Arriving { received, piece: Bytes::new() };
        staging::stage(&mut arriving, &clusters, owner)
    });
    tokio::join!(pump, stage).1
}

struct Arriving {
    received: mpsc::Receiver<io::Result<Bytes>>,
    piece: Bytes,
}

impl Read for Arriving {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.received.blocking_recv() {
                Some(piece) => self.piece = piece?,
                None => return Ok(0),
            }
        }
        let length = self.piece.len().min(buffer.len());
        buffer[..length].copy_from_slice(&self.piece.split_to(length));
        Ok(length)
    }
}
