//! Who waits for the tree to arrive somewhere. Each is answered once: on arrival, on a give-up, or when another command
//! makes the arrival impossible.

use crate::message::Refusal;
use crate::status::ChainState;
use crate::supervisor::ChainNews;
use tokio::sync::oneshot;

pub(crate) type Arrival = Result<(), Refusal>;
pub(crate) type Wait = oneshot::Receiver<Arrival>;

#[derive(Debug)]
struct Waiter {
    chain: String,
    want: ChainState,
    reply: oneshot::Sender<Arrival>,
}

#[derive(Debug, Default)]
pub(crate) struct Waiters {
    of_chains: Vec<Waiter>,
    loaded: Vec<oneshot::Sender<Arrival>>,
    all_ready: Vec<oneshot::Sender<Arrival>>,
    all_down: Vec<oneshot::Sender<Arrival>>,
}

/// A wait that is over before it began.
pub(crate) fn answered(arrival: Arrival) -> Wait {
    let (reply, wait) = oneshot::channel();
    // The receiver is in our hand.
    let _ = reply.send(arrival);
    wait
}

pub(crate) fn stopping() -> Refusal {
    Refusal::Conflict("the daemon is stopping, or was never started".to_owned())
}

impl Waiters {
    pub(crate) fn for_chain(&mut self, chain: &str, want: ChainState) -> Wait {
        let (reply, wait) = oneshot::channel();
        self.of_chains.push(Waiter { chain: chain.to_owned(), want, reply });
        wait
    }

    /// Until the durable records are read, and every chain is known.
    pub(crate) fn for_load(&mut self) -> Wait {
        let (reply, wait) = oneshot::channel();
        self.loaded.push(reply);
        wait
    }

    pub(crate) fn for_all_ready(&mut self) -> Wait {
        let (reply, wait) = oneshot::channel();
        self.all_ready.push(reply);
        wait
    }

    pub(crate) fn for_all_down(&mut self) -> Wait {
        let (reply, wait) = oneshot::channel();
        self.all_down.push(reply);
        wait
    }

    /// A chain changed: whoever waited for that state has arrived; whoever waited for `Ready` hears of a give-up.
    pub(crate) fn hear(&mut self, news: &ChainNews) {
        let gave_up = news.state.needs_an_operator();
        self.answer(|waiter| {
            if waiter.chain != news.chain {
                None
            } else if waiter.want == news.state {
                Some(Ok(()))
            } else if gave_up && waiter.want == ChainState::Ready {
                let reason = news.reason.clone().unwrap_or_default();
                Some(Err(Refusal::Failed(format!("{}: {reason}", news.chain))))
            } else {
                None
            }
        });
    }

    /// `chain` goes elsewhere from now on: whoever waited for `want` waits in vain.
    pub(crate) fn overrule(&mut self, chain: &str, want: ChainState, refusal: &Refusal) {
        self.answer(|waiter| (waiter.chain == chain && waiter.want == want).then(|| Err(refusal.clone())));
    }

    /// Everything goes down: nothing will be ready any more.
    pub(crate) fn stop(&mut self) {
        self.answer(|waiter| (waiter.want == ChainState::Ready).then(|| Err(stopping())));
        self.ready(&Err(stopping()));
    }

    pub(crate) fn wants_all_ready(&self) -> bool {
        !self.all_ready.is_empty()
    }

    pub(crate) fn loaded(&mut self, arrival: &Arrival) {
        for reply in self.loaded.drain(..) {
            let _ = reply.send(arrival.clone());
        }
    }

    pub(crate) fn ready(&mut self, arrival: &Arrival) {
        for reply in self.all_ready.drain(..) {
            let _ = reply.send(arrival.clone());
        }
    }

    pub(crate) fn down(&mut self, arrival: &Arrival) {
        for reply in self.all_down.drain(..) {
            let _ = reply.send(arrival.clone());
        }
    }

    /// Somebody who has gone away meanwhile is not missed.
    fn answer(&mut self, verdict: impl Fn(&Waiter) -> Option<Arrival>) {
        for waiter in std::mem::take(&mut self.of_chains) {
            match verdict(&waiter) {
                Some(arrival) => drop(waiter.reply.send(arrival)),
                None => self.of_chains.push(waiter),
            }
        }
    }
}
