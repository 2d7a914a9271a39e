//! The threads that bear children.
//!
//! A birth stops its thread until the child executes its program, so the arbiter cannot do it. A few threads of their own do:
//! they are there when a dead child is to be replaced (starting a thread takes longer than a birth), they never wake for
//! nothing, and a thousand starts at once do not make hundreds of threads. The host waits for its [`Births::turn`] first.

use super::raw;
use crate::off_thread::off_thread;
use std::collections::VecDeque;
use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Two keep a second CPU busy while one waits for an exec; more than four would only queue in the kernel.
const THREADS: (usize, usize) = (2, 4);
/// A birth takes a millisecond. Where no thread was done with one for this long, programs lie on a dead file system, and the
/// others shall not wait for them.
const PATIENCE: Duration = Duration::from_secs(1);
/// So many births leave holes in the heap that are worth giving back, and the tree has settled when none came for this long.
const BURST: usize = 100;
const SETTLED: Duration = Duration::from_secs(1);

type Job = Box<dyn FnOnce() + Send>;

/// One job wakes one thread. (Threads that take turns at a channel's receiver wake the next in turn for nothing.)
#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Jobs since memory was given back.
    since: usize,
    is_closed: bool,
}

pub(super) struct Births {
    queue: Arc<Queue>,
    free: Arc<Semaphore>,
    /// Counts, so that a long queue is not taken for births that hang.
    done: Arc<AtomicU64>,
}

impl fmt::Debug for Births {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Births").field("free", &self.free.available_permits()).finish_non_exhaustive()
    }
}

impl Births {
    /// The threads end when this is dropped. `bound`: no child will be root's ([`raw::bind_this_thread`]).
    pub(super) fn new(bound: bool) -> Self {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let queue = Arc::<Queue>::default();
        let started = (0..cpus.clamp(THREADS.0, THREADS.1)).filter(|_| {
            let queue = Arc::clone(&queue);
            let thread = thread::Builder::new().name("berth-births".to_owned());
            let work = move || {
                if bound {
                    raw::bind_this_thread();
                }
                queue.work_off();
            };
            thread.spawn(work).is_ok()
        });
        let free = Arc::new(Semaphore::new(started.count()));
        Self { queue, free, done: Arc::default() }
    }

    /// Waits for a free thread; the turn is over with the work. Whoever waits here should hold little: a thousand may.
    pub(super) async fn turn(&self) -> Turn<'_> {
        Turn { births: self, permit: self.permit().await }
    }

    /// A free thread; `None` when all of them hang.
    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        let mut turn = pin!(Arc::clone(&self.free).acquire_owned());
        loop {
            let before = self.done.load(Ordering::Relaxed);
            match tokio::time::timeout(PATIENCE, turn.as_mut()).await {
                Ok(permit) => return permit.ok(),
                Err(_) if self.done.load(Ordering::Relaxed) == before => return None,
                Err(_) => {}
            }
        }
    }
}

/// The right to one birth.
pub(super) struct Turn<'a> {
    births: &'a Births,
    permit: Option<OwnedSemaphorePermit>,
}

impl Turn<'_> {
    /// Runs `work` on one of the threads, inside the caller's runtime. Dropping the future does not end it.
    pub(super) async fn run<T: Send + 'static>(self, work: Box<dyn FnOnce() -> T + Send>) -> T {
        let Some(permit) = self.permit else { return off_thread(work).await };
        let done = Arc::clone(&self.births.done);
        let (runtime, (answer, wait)) = (Handle::current(), oneshot::channel());
        let job = move || {
            let _inside = runtime.enter();
            let result = work();
            done.fetch_add(1, Ordering::Relaxed);
            drop(permit);
            // Whoever asked may have gone away.
            let _ = answer.send(result);
        };
        // A permit is a thread that waits for a job, so it is done at once.
        self.births.queue.put(Box::new(job));
        match wait.await {
            Ok(result) => result,
            Err(_) => std::panic::resume_unwind(Box::new("a birth panicked")),
        }
    }
}

impl Drop for Births {
    fn drop(&mut self) {
        self.queue.state().is_closed = true;
        self.queue.changed.notify_all();
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, job: Job) {
        self.state().jobs.push_back(job);
        self.changed.notify_one();
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.state();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                state.since += 1;
                return Some(job);
            }
            if state.is_closed {
                return None;
            }
            if state.since < BURST {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.changed.wait_timeout(state, SETTLED).unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            if waited.1.timed_out() && state.jobs.is_empty() && state.since >= BURST {
                state.since = 0;
                drop(state);
                raw::give_memory_back();
                state = self.state();
            }
        }
    }

    fn work_off(&self) {
        while let Some(job) = self.next() {
            job();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test(start_paused = true)]
    async fn births_that_hang_hold_up_nobody_for_long() {
        let births = Arc::new(Births::new(false));
        let (hung, release) = (births.free.available_permits(), mpsc::channel::<()>());
        let gate = Arc::new(Mutex::new(release.1));
        let waiting: Vec<_> = (0..hung)
            .map(|_| {
                let (births, gate) = (Arc::clone(&births), Arc::clone(&gate));
                tokio::spawn(async move {
                    births.turn().await.run(Box::new(move || gate.lock().unwrap().recv().is_ok())).await
                })
            })
            .collect();
        while births.free.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(births.turn().await.run(Box::new(|| 7)).await, 7);
        drop(release.0);
        for task in waiting {
            assert!(!task.await.unwrap());
        }
        let name = || thread::current().name().map(str::to_owned);
        assert_eq!(births.turn().await.run(Box::new(name)).await.unwrap(), "berth-births");
    }
}
