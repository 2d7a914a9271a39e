//! `berth logs`, which is also `berth cluster logs`.

use super::exit::{CliError, Exit};
use super::terminal::{self, Style, Tone};
use crate::control::api::{DEFAULT_LOG_LINES, LogQuery};
use crate::control::{Client, ClientError};
use crate::layout::Layout;
use crate::{logs, names};
use axum::body::Bytes;
use clap::Args;
use futures::StreamExt;
use futures::stream::{BoxStream, select_all};
use std::io;
use std::path::Path;

#[derive(Debug, Args)]
pub struct Logs {
    /// A cluster, `slot-a`, `slot-b`, `kcp-store`, or a service of `berth supervise`
    #[arg(value_parser = names::chain)]
    pub chain: String,
    #[command(flatten)]
    pub which: Which,
    #[command(flatten)]
    pub how: How,
}

#[derive(Debug, Args)]
pub struct Which {
    /// One of its components; without it, all of them, each line with its component's name
    #[arg(value_parser = names::component)]
    pub component: Option<String>,
    /// The same as an option
    #[arg(long = "component", value_name = "COMPONENT", conflicts_with = "component", value_parser = names::component)]
    pub named: Option<String>,
}

#[derive(Debug, Clone, Copy, Args)]
pub struct How {
    /// Stay and show what is written from now on
    #[arg(short, long)]
    pub follow: bool,
    /// How many lines to begin with, of each component
    #[arg(short = 'n', long, value_name = "N", default_value_t = DEFAULT_LOG_LINES)]
    pub lines: usize,
}

impl From<How> for LogQuery {
    fn from(how: How) -> Self {
        Self { lines: how.lines, follow: how.follow }
    }
}

/// Through the daemon; without one, straight from the files it left.
pub(super) async fn run(client: &Client, layout: &Layout, args: Logs) -> Result<Exit, CliError> {
    let Logs { chain, which: Which { component, named }, how } = args;
    let wanted = component.or(named);
    match show(&Source::Daemon(client), &chain, wanted.as_deref(), how).await {
        Err(CliError::Client(ClientError::NoDaemon { socket })) => {
            let dir = layout.logs(&chain);
            if !tokio::fs::try_exists(&dir).await? {
                return Err(ClientError::NoDaemon { socket }.into());
            }
            terminal::remark(&format!(
                "no daemon answers on {}: reading the files in {}",
                socket.display(),
                dir.display()
            ))?;
            show(&Source::Files(&dir), &chain, wanted.as_deref(), how).await?;
        }
        shown => shown?,
    }
    Ok(Exit::Ok)
}

async fn show(source: &Source<'_>, chain: &str, component: Option<&str>, how: How) -> Result<(), CliError> {
    let mut lines = match component {
        Some(component) => source.chunks(chain, component, how).await?,
        None => all(source, chain, how).await?,
    };
    while let Some(line) = lines.next().await {
        terminal::write(&line?)?;
    }
    Ok(())
}

/// Every component's lines with its name before each.
async fn all(source: &Source<'_>, chain: &str, how: How) -> Result<Chunks, CliError> {
    let components = source.components(chain).await?;
    let width = components.iter().map(String::len).max().unwrap_or(0);
    let style = Style::of(&std::io::stdout());
    let mut logs = Vec::new();
    for component in &components {
        let prefix = style.paint(Tone::Faint, &format!("{component:width$} | "));
        match source.chunks(chain, component, how).await {
            Ok(chunks) => logs.push(prefixed(prefix, chunks)),
            // One that never ran has written nothing; the others have.
            Err(error) if error.exit() == Exit::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    // Followed logs interleave as they are written; finished ones follow each other in the chain's order.
    Ok(if how.follow { select_all(logs).boxed() } else { futures::stream::iter(logs).flatten().boxed() })
}

/// Where logs are read.
enum Source<'a> {
    Daemon(&'a Client),
    /// A chain's log directory.
    Files(&'a Path),
}

impl Source<'_> {
    /// In the chain's order, as far as the source knows it.
    async fn components(&self, chain: &str) -> Result<Vec<String>, CliError> {
        match self {
            Self::Daemon(client) => {
                let status = client.status().await?;
                let mut chains =
                    status.store.iter().chain(&status.slots).chain(&status.tenants).chain(&status.services);
                let found = chains.find(|candidate| candidate.name == chain);
                let found = found
                    .ok_or_else(|| CliError::NotFound(format!("no chain {chain}: see `berth status`")))?;
                Ok(found.children.iter().map(|child| child.name.clone()).collect())
            }
            Self::Files(dir) => {
                let mut components = Vec::new();
                for entry in std::fs::read_dir(dir)? {
                    let name = entry?.file_name();
                    components
                        .extend(name.to_str().and_then(|name| name.strip_suffix(".log")).map(str::to_owned));
                }
                components.sort_unstable();
                Ok(components)
            }
        }
    }

    async fn chunks(&self, chain: &str, component: &str, how: How) -> Result<Chunks, CliError> {
        match self {
            Self::Daemon(client) => {
                let chunks = client.logs(chain, component, how.into()).await?;
                Ok(chunks.map(|chunk| Ok(chunk?)).boxed())
            }
            Self::Files(dir) => {
                let path = dir.join(format!("{component}.log"));
                let failed = |error: io::Error| match error.kind() {
                    io::ErrorKind::NotFound => CliError::NotFound(format!(
                        "{chain}/{component} has written no log ({})",
                        path.display()
                    )),
                    _ => CliError::Log(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
                };
                Ok(if how.follow {
                    let chunks = logs::follow(path.clone(), how.lines).await.map_err(failed)?;
                    chunks.map(|chunk| chunk.map_err(CliError::Log)).boxed()
                } else {
                    let chunks = logs::last_lines(&path, how.lines).await.map_err(failed)?;
                    chunks.map(|chunk| chunk.map_err(CliError::Log)).boxed()
                })
            }
        }
    }
}

type Chunks = BoxStream<'static, Result<Bytes, CliError>>;

fn prefixed(prefix: String, chunks: Chunks) -> Chunks {
    let state = (prefix, chunks, Lines::default());
    futures::stream::unfold(state, |(prefix, mut chunks, mut lines)| async move {
        let text = match chunks.next().await {
            Some(Ok(chunk)) => lines.push(&chunk),
            Some(Err(error)) => return Some((Err(error), (prefix, chunks, lines))),
            None => vec![lines.rest()?],
        };
        let text = text.into_iter().flat_map(|line| [prefix.as_bytes(), &line, b"\n"].concat());
        Some((Ok(text.collect::<Vec<u8>>().into()), (prefix, chunks, lines)))
    })
    .boxed()
}

/// Puts lines together again that arrive in chunks of any size.
#[derive(Debug, Default)]
pub(super) struct Lines {
    unfinished: Vec<u8>,
}

impl Lines {
    /// The lines that `chunk` completes, without their newlines.
    pub(super) fn push(&mut self, chunk: &[u8]) -> Vec<Vec<u8>> {
        let mut parts = chunk.split(|byte| *byte == b'\n');
        self.unfinished.extend_from_slice(parts.next().unwrap_or_default());
        let mut lines = Vec::new();
        for part in parts {
            lines.push(std::mem::replace(&mut self.unfinished, part.to_owned()));
        }
        lines
    }

    /// What is left at the end of the stream, once.
    fn rest(&mut self) -> Option<Vec<u8>> {
        Some(std::mem::take(&mut self.unfinished)).filter(|rest| !rest.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_survive_any_cut_into_chunks() {
        let text = b"one\n\ntwo\nthree";
        for cut in 0..=text.len() {
            let mut lines = Lines::default();
            let mut got = lines.push(&text[..cut]);
            got.extend(lines.push(&text[cut..]));
            assert_eq!(got, [&b"one"[..], b"", b"two"], "cut at {cut}");
            assert_eq!((lines.rest().as_deref(), lines.rest()), (Some(&b"three"[..]), None));
        }
    }

    #[tokio::test]
    async fn every_line_carries_its_components_name_even_an_unfinished_last_one() {
        let chunks = ["a\nb", "c\nd"].map(|chunk| Ok(Bytes::from_static(chunk.as_bytes())));
        let lines = prefixed("kine | ".to_owned(), futures::stream::iter(chunks).boxed());
        let text: Vec<_> = lines.map(|line| line.unwrap()).collect().await;
        assert_eq!(text.concat(), b"kine | a\nkine | bc\nkine | d\n");
    }
}
