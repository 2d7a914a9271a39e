//! What provisioning tells while it works: a moving line per component on a terminal, a plain line per event elsewhere.
//!
//! The caller chooses with [`for_stderr`]; both write to standard error, so that standard output stays for answers.

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::collections::HashMap;
use std::fmt;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How far one component is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advance {
    Bytes {
        done: u64,
        total: u64,
    },
    /// Of a download; not every server says how long it is.
    Fetched {
        done: u64,
        total: Option<u64>,
    },
    Packed {
        done: u64,
        total: u64,
    },
    Note(String),
}

/// Where a component came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The operator named the file.
    Operator,
    /// It lay in the asset store.
    Store,
    /// It rested there, packed.
    Unpacked,
    /// This program brought it along.
    Embedded,
    Fetched,
    /// A file of this host, as the catalogue says.
    Copied,
    Built,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Operator => "the operator's own",
            Self::Store => "from the asset store",
            Self::Unpacked => "unpacked from the asset store",
            Self::Embedded => "unpacked from this program",
            Self::Fetched => "fetched",
            Self::Copied => "taken from its file",
            Self::Built => "built",
        })
    }
}

/// Told by provisioning, from several tasks at once. Must not block for long.
pub trait Progress: Send + Sync {
    /// Only for work that takes a while: a fetch or a build begins.
    fn started(&self, component: &str, what: &str);
    fn advanced(&self, component: &str, advance: Advance);
    fn finished(&self, component: &str, took: Duration, origin: Origin);
    /// Something an operator should know, that stops nothing.
    fn warned(&self, text: &str);
}

/// The one that fits what standard error is connected to.
pub fn for_stderr() -> Box<dyn Progress> {
    if std::io::stderr().is_terminal() {
        Box::new(Bars::default())
    } else {
        Box::new(Lines::new(std::io::stderr()))
    }
}

/// Says nothing.
#[derive(Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn started(&self, _: &str, _: &str) {}
    fn advanced(&self, _: &str, _: Advance) {}
    fn finished(&self, _: &str, _: Duration, _: Origin) {}
    fn warned(&self, _: &str) {}
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A spinner for each component at work.
#[derive(Debug, Default)]
pub struct Bars {
    area: MultiProgress,
    bars: Mutex<HashMap<String, ProgressBar>>,
}

impl Progress for Bars {
    fn started(&self, component: &str, what: &str) {
        let bar = self.area.add(ProgressBar::new_spinner());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix:24} {elapsed:>4} {wide_msg}") {
            bar.set_style(style);
        }
        bar.set_prefix(component.to_owned());
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(120));
        lock(&self.bars).insert(component.to_owned(), bar);
    }

    fn advanced(&self, component: &str, advance: Advance) {
        if let Some(bar) = lock(&self.bars).get(component) {
            bar.set_message(say(&advance));
        }
    }

    fn finished(&self, component: &str, took: Duration, origin: Origin) {
        if let Some(bar) = lock(&self.bars).remove(component) {
            bar.finish_and_clear();
        }
        // An error to write to the terminal has nobody to be told to.
        let _ = self.area.println(finished_line(component, took, origin));
    }

    fn warned(&self, text: &str) {
        let _ = self.area.println(format!("warning: {text}"));
    }
}

/// How often a component at work says so in a log: a build of minutes must not look hung, nor fill the log.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// A line for each event.
#[derive(Debug)]
pub struct Lines<W> {
    out: Mutex<W>,
    last: Mutex<HashMap<String, Instant>>,
}

impl<W: Write + Send> Lines<W> {
    pub fn new(out: W) -> Self {
        Self { out: Mutex::new(out), last: Mutex::default() }
    }

    fn line(&self, text: &str) {
        // A closed standard error must not stop the daemon.
        let _ = writeln!(lock(&self.out), "{text}");
    }
}

impl<W: Write + Send> Progress for Lines<W> {
    fn started(&self, component: &str, what: &str) {
        lock(&self.last).insert(component.to_owned(), Instant::now());
        self.line(&format!("{component}: {what}"));
    }

    fn advanced(&self, component: &str, advance: Advance) {
        let due = lock(&self.last)
            .get_mut(component)
            .filter(|last| last.elapsed() >= HEARTBEAT)
            .map(|last| *last = Instant::now());
        if due.is_some() {
            self.line(&format!("{component}: {}", say(&advance)));
        }
    }

    fn finished(&self, component: &str, took: Duration, origin: Origin) {
        self.line(&finished_line(component, took, origin));
    }

    fn warned(&self, text: &str) {
        self.line(&format!("warning: {text}"));
    }
}

fn finished_line(component: &str, took: Duration, origin: Origin) -> String {
    match origin {
        Origin::Unpacked | Origin::Embedded | Origin::Fetched | Origin::Copied | Origin::Built => {
            format!("{component}: {origin} in {:.1} s", took.as_secs_f64())
        }
        Origin::Operator | Origin::Store => format!("{component}: {origin}"),
    }
}

fn say(advance: &Advance) -> String {
    match advance {
        Advance::Bytes { done, total } => {
            format!("unpacked {} of {} MB", done / 1_000_000, total / 1_000_000)
        }
        Advance::Fetched { done, total: Some(total) } => {
            format!("fetched {} of {} MB", done / 1_000_000, total / 1_000_000)
        }
        Advance::Fetched { done, total: None } => format!("fetched {} MB", done / 1_000_000),
        Advance::Packed { done, total } => format!("packed {} of {} MB", done / 1_000_000, total / 1_000_000),
        Advance::Note(note) => note.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_gets_one_line_per_event_and_no_flood() {
        let lines = Lines::new(Vec::new());
        lines.started("kine", "building v0.17.5");
        for _ in 0..100 {
            lines.advanced("kine", Advance::Note("compiling".into()));
        }
        lines.finished("kine", Duration::from_millis(1234), Origin::Built);
        let text = String::from_utf8(lines.out.into_inner().unwrap()).unwrap();
        assert_eq!(text, "kine: building v0.17.5\nkine: built in 1.2 s\n");
    }
}
