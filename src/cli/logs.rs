//! `berth logs`, which is also `berth cluster logs`.

use super::exit::{CliError, Exit};
use super::terminal::{self, Style, Tone};
use crate::control::api::{DEFAULT_LOG_LINES, LogQuery};
use crate::control::{Client, ClientError};
use crate::names;
use axum::body::Bytes;
use berth_actors::message::Refusal;
use clap::Args;
use futures::stream::{BoxStream, select_all};
use futures::{StreamExt, pin_mut};

#[derive(Debug, Args)]
pub struct Logs {
    /// A cluster, `slot-a`, `slot-b`, `kcp-store`, or a service of `berth supervise`
    #[arg(value_parser = names::chain)]
    pub chain: String,
    /// One of its components; without it, all of them, each line with its component's name
    #[arg(value_parser = names::component)]
    pub component: Option<String>,
    #[command(flatten)]
    pub how: How,
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

pub(super) async fn run(client: &Client, args: &Logs) -> Result<Exit, CliError> {
    match &args.component {
        Some(component) => {
            let chunks = client.logs(&args.chain, component, args.how.into()).await?;
            pin_mut!(chunks);
            while let Some(chunk) = chunks.next().await {
                terminal::write(&chunk?)?;
            }
        }
        None => all(client, &args.chain, args.how).await?,
    }
    Ok(Exit::Ok)
}

async fn all(client: &Client, chain: &str, how: How) -> Result<(), CliError> {
    let components = components(client, chain).await?;
    let width = components.iter().map(String::len).max().unwrap_or(0);
    let style = Style::of(&std::io::stdout());
    let mut logs = Vec::new();
    for component in &components {
        let prefix = style.paint(Tone::Faint, &format!("{component:width$} | "));
        match client.logs(chain, component, how.into()).await {
            Ok(chunks) => logs.push(prefixed(prefix, chunks.boxed())),
            // One that never ran has written nothing; the others have.
            Err(ClientError::Refused(Refusal::NotFound(_))) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // Followed logs interleave as they are written; finished ones follow each other in the chain's order.
    let mut lines =
        if how.follow { select_all(logs).boxed() } else { futures::stream::iter(logs).flatten().boxed() };
    while let Some(line) = lines.next().await {
        terminal::write(&line?)?;
    }
    Ok(())
}

async fn components(client: &Client, chain: &str) -> Result<Vec<String>, CliError> {
    let status = client.status().await?;
    let mut chains = status.store.iter().chain(&status.slots).chain(&status.tenants).chain(&status.services);
    let found = chains.find(|candidate| candidate.name == chain);
    let found = found.ok_or_else(|| CliError::NotFound(format!("no chain {chain}: see `berth status`")))?;
    Ok(found.children.iter().map(|child| child.name.clone()).collect())
}

type Chunks = BoxStream<'static, Result<Bytes, ClientError>>;

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
