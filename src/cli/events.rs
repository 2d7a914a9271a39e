//! `berth events`

use super::exit::{CliError, Exit};
use super::logs::Lines;
use super::terminal::{self, Style, Tone, harmless};
use crate::control::Client;
use crate::control::api::{EventQuery, StampedEvent};
use clap::Args;
use futures::StreamExt;
use std::pin::pin;

#[derive(Debug, Args)]
pub struct Events {
    /// Stay and show what happens from now on
    #[arg(short, long)]
    pub follow: bool,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}

pub(super) async fn run(client: &Client, args: Events) -> Result<Exit, CliError> {
    let mut chunks = pin!(client.events(EventQuery { follow: args.follow }).await?);
    let style = Style::of(&std::io::stdout());
    let mut lines = Lines::default();
    while let Some(chunk) = chunks.next().await {
        for line in lines.push(&chunk?) {
            terminal::say(&show(&line, args.json, style))?;
        }
    }
    Ok(Exit::Ok)
}

/// A line that is no event is shown as it is: a newer daemon may know more.
fn show(line: &[u8], json: bool, style: Style) -> String {
    match serde_json::from_slice::<StampedEvent>(line) {
        Ok(StampedEvent { at, event }) if !json => {
            // To the second: the rest is for machines.
            let at = at.split_once('.').map_or(at.clone(), |(seconds, _)| format!("{seconds}Z"));
            let subject = style.paint(Tone::Strong, &harmless(&event.subject));
            format!("{}  {subject}  {}", style.paint(Tone::Faint, &harmless(&at)), harmless(&event.what))
        }
        _ => String::from_utf8_lossy(line).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_with_its_time_to_the_second() {
        let line = br#"{"at":"2024-05-06T07:08:09.123456789Z","subject":"demo/kine","what":"ready"}"#;
        assert_eq!(show(line, false, Style::PLAIN), "2024-05-06T07:08:09Z  demo/kine  ready");
        assert_eq!(show(line, true, Style::PLAIN).as_bytes(), line);
        assert_eq!(show(b"other", false, Style::PLAIN), "other");
    }
}
