//! One direction of a connection: bytes read from one wire and written to the other, in order, once. Mostly they go through
//! without being kept; what the receiver does not take at once, or what a drain holds back, waits here.

use super::wire::Wire;
use std::cell::RefCell;
use std::task::Poll;

/// Bytes per read. Kept once per thread, so an idle connection costs no buffer. Large answers move in few calls, and what one
/// call brings still lies in the CPU's first caches when the next takes it: 64 KiB cost a tenth to a quarter more CPU a byte.
pub(super) const CHUNK: usize = 32 << 10;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; CHUNK]);
}

#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact about one end that never changes back; all combinations occur"
)]
pub(super) struct Flow {
    waiting: Vec<u8>,
    /// How many of `waiting` are written.
    written: usize,
    /// How many of the last bytes are kept back. At most these and one chunk wait.
    tail: usize,
    /// The source has sent its FIN, or is gone.
    ended: bool,
    /// A FIN follows what waits; whatever else the source sends is read and dropped.
    closing: bool,
    /// The FIN is out.
    finished: bool,
    /// The sink is gone: what comes for it is read and dropped.
    lost: bool,
}

impl Flow {
    /// A flow whose first bytes were read before there was a sink.
    pub(super) fn starting_with(early: Vec<u8>) -> Self {
        Self { waiting: early, ..Self::default() }
    }

    /// From now on keeps back the last bytes, so many of them; 0 lets them go.
    pub(super) fn keep_back(&mut self, tail: usize) {
        self.tail = tail;
    }

    /// Nothing of the source goes on after what waits now.
    pub(super) fn close(&mut self) {
        self.closing = true;
        self.tail = 0;
    }

    pub(super) fn lose_sink(&mut self) {
        self.lost = true;
        self.waiting = Vec::new();
        self.written = 0;
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len() - self.written
    }

    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    /// Nothing will be written any more.
    pub(super) fn settled(&self) -> bool {
        self.finished || self.lost
    }

    /// Both ends of this direction are done.
    pub(super) fn over(&self) -> bool {
        self.ended && self.settled()
    }

    /// Moves what can be moved without waiting; false when there was nothing: then a wire has to change first. `seen` meets
    /// each byte once, as it is read. An error on the source ends the flow and is reported to the caller, since the other
    /// direction has lost its sink.
    pub(super) fn shift(
        &mut self,
        from: &mut impl Wire,
        to: &mut impl Wire,
        seen: impl FnMut(&[u8]),
    ) -> Shifted {
        let wrote = self.write(to);
        let read = self.read(from, to, seen);
        let finished = self.pass_fin(to);
        Shifted { progress: wrote || finished || read.is_some(), source_failed: read == Some(Read::Failed) }
    }

    fn write(&mut self, to: &mut impl Wire) -> bool {
        let mut moved = false;
        while self.waiting() > self.tail {
            let due = self.waiting.len() - self.tail;
            match to.write(&self.waiting[self.written..due], false) {
                Poll::Ready(Ok(count)) => self.written += count,
                Poll::Ready(Err(_)) => self.lose_sink(),
                Poll::Pending => return moved,
            }
            moved = true;
        }
        if moved && self.waiting() == 0 {
            (self.waiting, self.written) = (Vec::new(), 0);
        } else if moved {
            self.waiting.drain(..self.written);
            self.written = 0;
        }
        moved
    }

    fn read(
        &mut self,
        from: &mut impl Wire,
        to: &mut impl Wire,
        mut seen: impl FnMut(&[u8]),
    ) -> Option<Read> {
        let has_room = self.closing || self.lost || self.waiting() <= self.tail;
        if self.ended || !has_room {
            return None;
        }
        SCRATCH.with_borrow_mut(|scratch| match from.read(scratch) {
            Poll::Pending => None,
            Poll::Ready(Ok(0)) => {
                self.ended = true;
                Some(Read::Moved)
            }
            Poll::Ready(Ok(count)) => {
                let bytes = &scratch[..count];
                seen(bytes);
                if !(self.closing || self.lost) {
                    self.take(bytes, to, from.at_end());
                }
                Some(Read::Moved)
            }
            Poll::Ready(Err(_)) => {
                self.ended = true;
                Some(Read::Failed)
            }
        })
    }

    /// Writes `bytes` straight through if nothing is before them, and keeps the rest. `last`: the FIN follows them.
    fn take(&mut self, bytes: &[u8], to: &mut impl Wire, last: bool) {
        let mut rest = bytes;
        if self.waiting() == 0 && self.tail == 0 {
            match to.write(bytes, last) {
                Poll::Ready(Ok(count)) => rest = &bytes[count..],
                Poll::Ready(Err(_)) => return self.lose_sink(),
                Poll::Pending => (),
            }
        }
        self.waiting.extend_from_slice(rest);
    }

    fn pass_fin(&mut self, to: &mut impl Wire) -> bool {
        let due = (self.ended || self.closing) && self.waiting() == 0 && !self.settled();
        if due {
            to.finish();
            self.finished = true;
        }
        due
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Read {
    Moved,
    Failed,
}

/// What one [`Flow::shift`] did.
#[derive(Debug)]
pub(super) struct Shifted {
    pub progress: bool,
    pub source_failed: bool,
}
