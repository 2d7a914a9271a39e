//! What all clients of a run saw, in one place: answers and failures by class, and the book of every write.
//!
//! Clients of either language write here; the report reads. Times are microseconds since the run began.

use super::classes::Class;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// What became of a request that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// A read: nothing to look for afterwards.
    Read,
    /// Its object does not exist: it may be sent again.
    NeverExecuted,
    Executed,
}

#[derive(Debug, Clone)]
pub struct Failure {
    pub at: u64,
    pub why: String,
    /// The object it was to write.
    pub write: Option<String>,
    pub fate: Fate,
}

#[derive(Debug, Clone, Copy)]
pub struct Answer {
    /// When it was complete.
    pub at: u64,
    pub latency: u64,
}

#[derive(Debug, Default)]
pub struct Tally {
    pub answers: Vec<Answer>,
    pub failures: Vec<Failure>,
    pub connections: u64,
    /// Watches only: opened again from the last resource version, or from a new list.
    pub resumed: u64,
    pub relisted: u64,
}

/// What one watch was told of each object: how often it was added, and deleted.
pub type Told = BTreeMap<String, [u8; 2]>;

#[derive(Debug, Default)]
pub struct Books {
    /// Acknowledged, and still there as far as we know; with the time of the answer.
    pub kept: VecDeque<(String, u64)>,
    pub written: BTreeSet<String>,
    pub deleted: BTreeSet<String>,
    /// Acknowledged, and not there.
    pub lost: Vec<String>,
    /// By class of watch.
    pub told: BTreeMap<usize, Told>,
}

pub struct Board {
    pub classes: Vec<Class>,
    /// Marks the objects of this run.
    pub run: String,
    began: Instant,
    began_unix_us: i128,
    tallies: Vec<Mutex<Tally>>,
    books: Mutex<Books>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Board {
    pub fn new(classes: Vec<Class>) -> Self {
        Self {
            run: format!("load-{:08x}", rand::random::<u32>()),
            began: Instant::now(),
            // Only to agree with the clients of another process on when the run began.
            began_unix_us: berth::clock::now().unix_timestamp_nanos() / 1000,
            tallies: classes.iter().map(|_| Mutex::default()).collect(),
            books: Mutex::default(),
            classes,
        }
    }

    pub fn began_unix_us(&self) -> i128 {
        self.began_unix_us
    }

    pub fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    pub fn tally(&self, class: usize) -> MutexGuard<'_, Tally> {
        locked(&self.tallies[class])
    }

    pub fn books(&self) -> MutexGuard<'_, Books> {
        locked(&self.books)
    }

    pub fn answered(&self, class: usize, at: u64, latency: u64) {
        self.tally(class).answers.push(Answer { at, latency });
    }

    pub fn wrote(&self, name: &str) {
        let at = self.now();
        let mut books = self.books();
        books.written.insert(name.to_owned());
        books.kept.push_back((name.to_owned(), at));
    }

    pub fn failed(&self, class: usize, why: impl Into<String>, write: Option<&str>) {
        let (at, write) = (self.now(), write.map(str::to_owned));
        let why = why.into().replace('\n', " ");
        self.tally(class).failures.push(Failure { at, why, write, fate: Fate::Read });
    }

    /// A watch was told that an object was added (`0`) or deleted (`1`).
    pub fn told(&self, class: usize, name: &str, what: usize) {
        let mut books = self.books();
        let of = books.told.entry(class).or_default().entry(name.to_owned()).or_default();
        of[what] = of[what].saturating_add(1);
    }
}
