//! `berth cluster backup`, `restore` and `verify`. The file is this command's own: the daemon never sees its path.

use super::{CliError, Named, shown, terminal};
use crate::backup::verify::free_space;
use crate::backup::wire::{Frame, Frames};
use crate::backup::{BackupError, Manifest, verify};
use crate::control::{Client, ClientError};
use crate::files::{FileError, NewFile, open_to_read};
use crate::off_thread::off_thread;
use berth_actors::message::Refusal;
use clap::Args;
use futures::StreamExt;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::pin::pin;
use tokio_util::io::ReaderStream;

/// Pieces of a file on its way to the daemon.
const PIECE: usize = 256 << 10;

#[derive(Debug, Args)]
pub struct OneFile {
    #[command(flatten)]
    cluster: Named,
    /// The backup
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

#[derive(Debug, Args)]
pub struct Verify {
    /// The backup
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(super) async fn back_up(client: &Client, args: OneFile) -> Result<(), CliError> {
    let OneFile { cluster: Named { name }, file: path } = args;
    let mut new = NewFile::create(&path)?;
    let failed = |source| FileError { action: "write", path: path.clone(), source };
    let bar = bar();
    let (mut frames, mut whole) = (Frames::default(), false);
    let mut stream = pin!(client.back_up(&name).await?);
    'frames: while let Some(chunk) = stream.next().await {
        let arrived = frames.push(&chunk?).map_err(|error| foreign(client, &error))?;
        for frame in arrived {
            match frame {
                Frame::Total(bytes) => {
                    room_for(bytes, &path)?;
                    bar.set_length(bytes);
                }
                Frame::Progress(bytes) => bar.set_position(bytes),
                // It waits for this file alone.
                Frame::Data(bytes) => new.file.write_all(&bytes).map_err(failed)?,
                Frame::Failed(refusal) => return Err(ClientError::Refused(refusal).into()),
                Frame::Done => {
                    whole = true;
                    break 'frames;
                }
            }
        }
    }
    bar.finish_and_clear();
    if !whole {
        let reason = "the backup is not whole, and nothing was kept".to_owned();
        return Err(ClientError::Broken { socket: client.socket().to_owned(), reason }.into());
    }
    new.publish()?;
    let size = path.metadata().map_or(0, |meta| meta.len());
    Ok(terminal::say(&format!(
        "{name} is backed up in {} ({} kB, with all its keys)",
        path.display(),
        size.div_ceil(1000)
    ))?)
}

/// What is compressed needs less; how much less is known too late.
fn room_for(bytes: u64, path: &Path) -> Result<(), CliError> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let free = free_space(dir)?;
    if bytes <= free {
        return Ok(());
    }
    let text = format!(
        "{} has {free} bytes free, and the backup may need {bytes}: choose another directory",
        dir.display()
    );
    Err(ClientError::Refused(Refusal::Conflict(text)).into())
}

pub(super) async fn restore(client: &Client, args: OneFile) -> Result<(), CliError> {
    let OneFile { cluster: Named { name }, file: path } = args;
    if client.clusters().await?.iter().any(|cluster| cluster.name == name) {
        let text = format!(
            "there is a cluster {name} already: restore under another name, or delete that one first"
        );
        return Err(ClientError::Refused(Refusal::AlreadyExists(text)).into());
    }
    // Here as well, where it costs nobody anything; the daemon believes only itself.
    let manifest = verified(&path).await?;
    let file = tokio::fs::File::from_std(open(&path)?);
    let pieces = ReaderStream::with_capacity(file, PIECE);
    shown(client, &name, client.restore(&name, pieces)).await?;
    Ok(terminal::say(&format!(
        "{name} is restored from {} of {}, and ready: `berth cluster kubeconfig {name}` lets kubectl in",
        manifest.cluster, manifest.made
    ))?)
}

/// Needs no daemon.
pub(super) async fn check(args: Verify) -> Result<(), CliError> {
    let Manifest { cluster, made, berth, distribution, postgres, members, identity, .. } =
        verified(&args.file).await?;
    let bytes: u64 = members.values().map(|member| member.size).sum();
    Ok(terminal::say(&format!(
        "{}: whole; {cluster} (uid {}, epoch {}) of {made}, by berth {berth}, {distribution} on postgres {postgres}, {} files, {} kB",
        args.file.display(),
        identity.owner.uid,
        identity.epoch,
        members.len(),
        bytes.div_ceil(1000)
    ))?)
}

async fn verified(path: &Path) -> Result<Manifest, CliError> {
    let file = open(path)?;
    let bar = bar();
    bar.set_length(file.metadata().map_or(0, |meta| meta.len()));
    let reader = bar.wrap_read(BufReader::new(file));
    let verified = off_thread(move || verify(reader)).await;
    bar.finish_and_clear();
    verified.map_err(|error: BackupError| {
        let text = format!("{}: {error}", path.display());
        ClientError::Refused(Refusal::BadRequest(text)).into()
    })
}

fn open(path: &Path) -> Result<File, FileError> {
    open_to_read(path).map_err(|source| FileError { action: "read", path: path.to_owned(), source })
}

fn foreign(client: &Client, error: &dyn std::fmt::Display) -> CliError {
    ClientError::Foreign { socket: client.socket().to_owned(), reason: error.to_string() }.into()
}

/// On a terminal only.
fn bar() -> ProgressBar {
    let template = "{bar:40} {bytes} of about {total_bytes}";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr()).with_style(style)
}
