//! A tree that is watched while it changes: redrawn in place on a terminal, one line per change everywhere else.
//!
//! `dev` shows its own tree with it while it comes up; commands that take long show the part they work on.

use super::changes::changes;
use super::terminal::{Style, harmless};
use super::tree;
use berth_actors::status::TreeStatus;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal, Write};
use std::pin::pin;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// Often enough to look alive, seldom enough to cost nothing.
const REFRESH: Duration = Duration::from_millis(250);

/// Which of the two streams is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    Stdout,
    Stderr,
}

/// The display. What it last showed stays on the screen when it is dropped.
#[derive(Debug)]
pub struct Live {
    output: Output,
    style: Style,
    /// Present where the screen can be redrawn.
    screen: Option<ProgressBar>,
    shown: TreeStatus,
    /// Only this chain, and the handover and front not at all.
    only: Option<String>,
}

impl Live {
    /// Everything the tree has.
    pub fn new(output: Output) -> Self {
        let (terminal, style, target) = match output {
            Output::Stdout => (
                io::stdout().is_terminal(),
                Style::of(&io::stdout()),
                ProgressDrawTarget::stdout as fn() -> _,
            ),
            Output::Stderr => (
                io::stderr().is_terminal(),
                Style::of(&io::stderr()),
                ProgressDrawTarget::stderr as fn() -> _,
            ),
        };
        let screen = terminal.then(|| {
            let template =
                ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::with_draw_target(None, target()).with_style(template)
        });
        Self { output, style, screen, shown: TreeStatus::default(), only: None }
    }

    /// One chain of it.
    pub fn of_chain(output: Output, chain: &str) -> Self {
        Self { only: Some(chain.to_owned()), ..Self::new(output) }
    }

    /// What is there already is not told as news.
    #[must_use]
    pub fn since(mut self, status: &TreeStatus) -> Self {
        self.shown = self.part(status);
        self
    }

    /// Shows `status` in place of what was shown before.
    pub fn show(&mut self, status: &TreeStatus) -> io::Result<()> {
        let status = self.part(status);
        if let Some(screen) = &self.screen {
            let text = match (&self.only, status.tenants.first()) {
                (Some(_), Some(chain)) => tree::render_chain(chain, self.style),
                (Some(_), None) => String::new(),
                (None, _) => tree::render(&status, self.style),
            };
            let text = text.trim_end();
            // Each drawing clears the lines first: without a difference it would only flicker.
            if screen.message() != text {
                screen.set_message(text.to_owned());
            }
        } else {
            for line in changes(&self.shown, &status) {
                self.write(&harmless(&line))?;
            }
        }
        self.shown = status;
        Ok(())
    }

    /// A line that stays, above the tree where there is one.
    pub fn note(&self, line: &str) -> io::Result<()> {
        match &self.screen {
            Some(screen) => {
                screen.println(line);
                Ok(())
            }
            None => self.write(line),
        }
    }

    /// Shows what `fetch` gets until `work` is done, and once more then. A status that cannot be had is passed over: the
    /// outcome of `work` says what is wrong. Cancel-safe.
    pub async fn during<T, F>(
        &mut self,
        work: impl Future<Output = T>,
        mut fetch: impl FnMut() -> F,
    ) -> io::Result<T>
    where
        F: Future<Output = Option<TreeStatus>>,
    {
        let mut work = pin!(work);
        let mut tick = tokio::time::interval(REFRESH);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let outcome = loop {
            let next = async {
                tick.tick().await;
                fetch().await
            };
            tokio::select! {
                outcome = work.as_mut() => break outcome,
                status = next => if let Some(status) = status {
                    self.show(&status)?;
                },
            }
        };
        if let Some(status) = fetch().await {
            self.show(&status)?;
        }
        self.finish();
        Ok(outcome)
    }

    /// Leaves the tree as it is on the screen; what follows is written below it.
    pub fn finish(&self) {
        if let Some(screen) = &self.screen {
            screen.finish();
        }
    }

    fn part(&self, status: &TreeStatus) -> TreeStatus {
        match &self.only {
            None => status.clone(),
            Some(only) => TreeStatus {
                tenants: status.tenants.iter().filter(|tenant| tenant.name == *only).cloned().collect(),
                ..TreeStatus::default()
            },
        }
    }

    fn write(&self, line: &str) -> io::Result<()> {
        match self.output {
            Output::Stdout => writeln!(io::stdout(), "{line}"),
            Output::Stderr => writeln!(io::stderr(), "{line}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fixture::healthy;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::sync::oneshot;

    /// Nothing of a test belongs on a screen.
    fn quiet() -> Live {
        Live { screen: Some(ProgressBar::hidden()), ..Live::new(Output::Stderr) }
    }

    #[tokio::test(start_paused = true)]
    async fn the_tree_is_fetched_until_the_work_is_done_and_once_more_then() {
        let fetched = AtomicU32::new(0);
        let (finish, work) = oneshot::channel();
        let finish = std::sync::Mutex::new(Some(finish));
        let mut live = quiet();
        let outcome = live
            .during(work, || async {
                // The second look fails, as while a daemon is busy; looking goes on.
                match fetched.fetch_add(1, Ordering::Relaxed) {
                    1 => None,
                    3 => {
                        let _ = finish.lock().unwrap().take().unwrap().send("done");
                        std::future::pending().await
                    }
                    _ => Some(healthy()),
                }
            })
            .await
            .unwrap();
        assert_eq!((outcome, fetched.load(Ordering::Relaxed)), (Ok("done"), 5));
        assert_eq!(live.shown, healthy());
    }

    #[test]
    fn a_chain_alone_is_shown_without_the_rest() {
        let mut live = Live { only: Some("demo".to_owned()), ..quiet() };
        live.show(&healthy()).unwrap();
        assert_eq!(live.shown.tenants, healthy().tenants);
        assert!(live.shown.slots.is_empty() && live.shown.front == TreeStatus::default().front);
    }
}
