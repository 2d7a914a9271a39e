//! The relay against a byte-exact model, without sockets: random bytes, windows, ends and time.

use crate::front::config::FrontConfig;
use crate::front::flow::CHUNK;
use crate::front::hello::tests::client_hello;
use crate::front::hold::Cut;
use crate::front::pace::Pace;
use crate::front::relay::{Connection, Ending, Pumped};
use crate::front::slots::{Order, Traffic};
use crate::front::tls::tests::record;
use crate::front::wire::Wire;
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::Instant;

const LIMIT: Duration = Duration::from_secs(4);

/// One end as its peer would see it.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "what a peer can observe, each by itself")]
struct End {
    queue: VecDeque<u8>,
    fin_queued: bool,
    reset: bool,
    /// Bytes it still takes.
    window: usize,
    got: Vec<u8>,
    got_fin: bool,
    corked: bool,
    /// It was told that the FIN follows what it took last.
    fin_due: bool,
}

#[derive(Debug, Clone, Default)]
struct Fake(Rc<RefCell<End>>);

impl Wire for Fake {
    fn read(&mut self, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut end = self.0.borrow_mut();
        if end.reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if end.queue.is_empty() {
            return if end.fin_queued { Poll::Ready(Ok(0)) } else { Poll::Pending };
        }
        let count = into.len().min(end.queue.len());
        into.iter_mut().zip(end.queue.drain(..count)).for_each(|(to, byte)| *to = byte);
        Poll::Ready(Ok(count))
    }

    fn at_end(&self) -> bool {
        let end = self.0.borrow();
        end.queue.is_empty() && end.fin_queued && !end.reset
    }

    fn write(&mut self, bytes: &[u8], then_finish: bool) -> Poll<io::Result<usize>> {
        let mut end = self.0.borrow_mut();
        assert!(!end.got_fin, "a byte after the FIN");
        assert!(!end.fin_due, "a byte where the FIN was announced");
        let count = bytes.len().min(end.window);
        if end.reset {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if count == 0 {
            return Poll::Pending;
        }
        end.window -= count;
        end.got.extend_from_slice(&bytes[..count]);
        end.fin_due = then_finish && count == bytes.len();
        Poll::Ready(Ok(count))
    }

    fn finish(&mut self) {
        let mut end = self.0.borrow_mut();
        assert!(!end.got_fin, "a second FIN");
        (end.got_fin, end.fin_due) = (true, false);
    }

    fn cork(&mut self) {
        self.0.borrow_mut().corked = true;
    }

    fn is_silent(&self) -> bool {
        let end = self.0.borrow();
        end.queue.is_empty() && !end.fin_queued && !end.reset
    }
}

#[derive(Debug, Clone)]
enum Op {
    /// So many of its next bytes arrive.
    Client(usize),
    Server(usize),
    ClientTakes(usize),
    ServerTakes(usize),
    ClientFin,
    ServerFin,
    ClientReset,
    ServerReset,
    Drain,
    Pass(u64),
}

/// What happened, by the model's own books.
struct Model {
    connection: Connection<Fake>,
    client: Fake,
    server: Fake,
    /// Everything each side has sent; what is still to send.
    asked: Vec<u8>,
    answered: Vec<u8>,
    to_ask: VecDeque<u8>,
    to_answer: VecDeque<u8>,
    /// How much of what the server and the client got was compared already.
    checked: [usize; 2],
    now: Instant,
    drained_at: Option<Instant>,
    /// Lengths of `asked` and `answered` when our FIN was seen first.
    cut_at: Option<(usize, usize)>,
    next: Option<Instant>,
    ended: Option<Ending>,
    config: FrontConfig,
}

impl Model {
    fn new((to_ask, to_answer): (Vec<u8>, Vec<u8>), window: usize) -> Self {
        let (client, server) = (Fake::default(), Fake::default());
        client.0.borrow_mut().window = window;
        server.0.borrow_mut().window = window;
        let (config, now) = (FrontConfig::default(), Instant::now());
        let connection = Connection::new(
            client.clone(),
            server.clone(),
            Vec::new(),
            Arc::<Traffic>::default(),
            Arc::new(config.clone()),
            now,
        );
        Self {
            connection,
            client,
            server,
            asked: Vec::new(),
            answered: Vec::new(),
            to_ask: to_ask.into(),
            to_answer: to_answer.into(),
            checked: [0; 2],
            now,
            drained_at: None,
            cut_at: None,
            next: None,
            ended: None,
            config,
        }
    }

    fn run(&mut self, op: &Op) {
        let sends = |end: &Fake, from: &mut VecDeque<u8>, book: &mut Vec<u8>, count: usize| {
            let mut end = end.0.borrow_mut();
            if end.fin_queued || end.reset {
                return;
            }
            let bytes: Vec<u8> = from.drain(..count.min(from.len())).collect();
            end.queue.extend(&bytes);
            book.extend(&bytes);
        };
        match *op {
            Op::Client(count) => sends(&self.client, &mut self.to_ask, &mut self.asked, count),
            Op::Server(count) => sends(&self.server, &mut self.to_answer, &mut self.answered, count),
            Op::ClientTakes(count) => self.client.0.borrow_mut().window += count,
            Op::ServerTakes(count) => self.server.0.borrow_mut().window += count,
            Op::ClientFin => self.client.0.borrow_mut().fin_queued = true,
            Op::ServerFin => self.server.0.borrow_mut().fin_queued = true,
            Op::ClientReset => self.client.0.borrow_mut().reset = true,
            Op::ServerReset => self.server.0.borrow_mut().reset = true,
            Op::Drain => {
                self.drained_at.get_or_insert(self.now);
                let pace = Arc::new(Pace::new(self.config.drain.pace, LIMIT, 1));
                let order = Order { epoch: 1, limit: LIMIT, pace, usual_answer: Duration::ZERO };
                self.connection.drain(&order, self.now);
            }
            Op::Pass(ms) => return self.pass(Duration::from_millis(ms)),
        }
        self.pump();
    }

    /// Time goes by; the relay is woken whenever it asked for it, and at least a millisecond apart.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(next) = self.next.filter(|next| *next <= until && self.ended.is_none()) {
            assert!(next > self.now, "the relay spins");
            self.now = next;
            self.pump();
        }
        self.now = until;
        self.pump();
    }

    fn pump(&mut self) {
        if self.ended.is_some() {
            return;
        }
        match self.connection.pump(self.now) {
            Pumped::Wait(next) => self.next = next,
            Pumped::Ended(ending) => self.ended = Some(ending),
            Pumped::Again => return self.pump(),
        }
        assert!(!(self.client.0.borrow().fin_due || self.server.0.borrow().fin_due), "a FIN is kept waiting");
        self.check();
    }

    fn check(&mut self) {
        let (client, server) = (self.client.0.borrow(), self.server.0.borrow());
        let books = [(&self.asked, &server.got), (&self.answered, &client.got)];
        for ((sent, got), checked) in books.into_iter().zip(&mut self.checked) {
            assert!(sent[*checked..].starts_with(&got[*checked..]), "bytes lost, doubled or out of order");
            *checked = got.len();
        }
        let nobody_ended = !(client.fin_queued || server.fin_queued || client.reset || server.reset);
        let kept = self.connection.kept();
        assert!(kept <= self.config.drain.tail + CHUNK, "{kept} bytes kept");
        if nobody_ended && server.got_fin && self.cut_at.is_none() {
            self.cut_at = Some((self.asked.len(), self.answered.len()));
        }
        if nobody_ended && self.drained_at.is_none() {
            assert_eq!(self.ended, None, "an open connection was ended");
        }
        if let Some(began) = self.drained_at {
            let over = self.now >= began + LIMIT + self.config.linger;
            assert!(self.ended.is_some() || !over, "a connection outlived its drain");
        }
        if let (Some(Ending::Drained { cut: Cut::Held | Cut::Idle, raced }), Some((asked, answered))) =
            (self.ended, self.cut_at)
        {
            assert_eq!(server.got.len(), asked, "a request was cut off");
            if !client.reset {
                assert_eq!(client.got.len(), answered, "an answer was cut off");
                assert!(client.got_fin);
            }
            assert!(!raced || self.asked.len() > asked, "a race nobody ran");
        }
    }
}

/// The lengths of both sides' records: a conversation that never ends by itself.
#[derive(Debug, Clone)]
struct Script {
    protocol: Protocol,
    asks: Vec<usize>,
    answers: Vec<usize>,
}

#[derive(Debug, Clone, Copy)]
enum Protocol {
    Plain,
    Tls,
    TlsWithH2,
}

impl Script {
    /// All bytes of the client and of the server.
    fn bytes(&self) -> (Vec<u8>, Vec<u8>) {
        let data = |lengths: &[usize]| -> Vec<u8> {
            let numbered = |(number, length): (usize, &usize)| {
                let mut bytes = record(23, *length);
                // No two stretches alike, so that a byte in the wrong place is seen.
                (5..bytes.len()).for_each(|at| bytes[at] = (at * at + 31 * number).to_le_bytes()[at % 2]);
                bytes
            };
            lengths.iter().enumerate().flat_map(numbered).collect()
        };
        let hello = match self.protocol {
            Protocol::Plain => return (data(&self.asks)[1..].to_vec(), data(&self.answers)[1..].to_vec()),
            Protocol::Tls => client_hello(&[]),
            Protocol::TlsWithH2 => client_hello(&["h2"]),
        };
        let ask = [hello, record(20, 1), record(23, 53), data(&self.asks)].concat();
        let answer = [record(22, 90), record(20, 1), record(23, 1000), data(&self.answers)].concat();
        (ask, answer)
    }
}

fn script() -> impl Strategy<Value = Script> {
    let protocol = prop_oneof![Just(Protocol::Plain), Just(Protocol::Tls), Just(Protocol::TlsWithH2)];
    let records = || proptest::collection::vec(1..4000_usize, 4..60);
    (protocol, records(), records()).prop_map(|(protocol, asks, answers)| Script { protocol, asks, answers })
}

fn op(endings: u32) -> impl Strategy<Value = Op> {
    prop_oneof![
        20 => (1..6000_usize).prop_map(Op::Client),
        20 => (1..6000_usize).prop_map(Op::Server),
        2 => (1..400_000_usize).prop_map(Op::Server),
        6 => (1..200_000_usize).prop_map(Op::ClientTakes),
        6 => (1..200_000_usize).prop_map(Op::ServerTakes),
        endings => prop_oneof![Just(Op::ClientFin), Just(Op::ServerFin), Just(Op::ClientReset), Just(Op::ServerReset)],
        3 => Just(Op::Drain),
        20 => (0..20_u64).prop_map(Op::Pass),
        6 => (0..600_u64).prop_map(Op::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn no_byte_is_lost_doubled_or_reordered_and_every_drain_ends(
        script in script(),
        window in prop_oneof![Just(usize::MAX / 2), 0..100_000_usize],
        ops in proptest::collection::vec(op(1), 1..120),
    ) {
        let mut model = Model::new(script.bytes(), window);
        for op in &ops {
            model.run(op);
        }
        model.run(&Op::Drain);
        model.pass(2 * LIMIT);
        prop_assert!(model.ended.is_some());
    }

    #[test]
    fn a_connection_that_nobody_ends_stays_open_for_ever_without_a_drain(
        script in script(),
        ops in proptest::collection::vec(op(0), 1..60),
    ) {
        let mut model = Model::new(script.bytes(), usize::MAX / 2);
        ops.iter().filter(|op| !matches!(op, Op::Drain)).for_each(|op| model.run(op));
        model.pass(Duration::from_hours(1000));
        prop_assert_eq!(model.next, None);
        prop_assert_eq!(model.ended, None);
    }

    #[test]
    fn both_ends_see_everything_when_they_end_it_themselves(
        script in script(),
        ops in proptest::collection::vec(op(0), 1..60),
        client_first in any::<bool>(),
    ) {
        let mut model = Model::new(script.bytes(), usize::MAX / 2);
        ops.iter().filter(|op| !matches!(op, Op::Drain)).for_each(|op| model.run(op));
        let ends = if client_first { [Op::ClientFin, Op::ServerFin] } else { [Op::ServerFin, Op::ClientFin] };
        for op in &ends {
            model.run(op);
        }
        prop_assert_eq!(model.ended, Some(Ending::Itself));
        prop_assert!(model.client.0.borrow().got == model.answered && model.server.0.borrow().got == model.asked);
    }
}

/// A client whose third request waits for its answer.
fn asking() -> Model {
    let (hello, flight) = (client_hello(&[]), [record(20, 1), record(23, 53)].concat());
    let ask = [hello.clone(), flight.clone(), record(23, 100).repeat(4)].concat();
    let answer = [record(22, 90), record(23, 1000), record(23, 200).repeat(4)].concat();
    let mut model = Model::new((ask, answer), usize::MAX / 2);
    for op in [Op::Client(hello.len()), Op::Server(95 + 1005), Op::Client(flight.len())] {
        model.run(&op);
    }
    for op in [Op::Client(105), Op::Server(205), Op::Client(105), Op::Server(205), Op::Client(105)] {
        model.run(&op);
    }
    model
}

#[test]
fn a_drain_holds_the_answer_and_sends_it_corked_with_the_fin() {
    let mut model = asking();
    model.run(&Op::Drain);
    let before = model.client.0.borrow().got.len();
    model.run(&Op::Server(205));
    assert_eq!(model.client.0.borrow().got.len(), before);
    model.pass(model.config.drain.quiet_short);
    let client = model.client.0.borrow();
    assert!(client.corked && client.got_fin && client.got.len() == before + 205);
    assert!(model.server.0.borrow().got_fin);
}

/// A window update of HTTP/2, or `100 Continue`: the request goes on behind it.
#[test]
fn leave_to_send_on_is_not_held_and_the_answer_behind_it_is() {
    let (hello, flight) = (client_hello(&[]), [record(20, 1), record(23, 53)].concat());
    let ask = [hello.clone(), flight.clone(), record(23, 100).repeat(3), record(23, 16_000)].concat();
    let answer =
        [record(22, 90), record(23, 1000), record(23, 200).repeat(2), record(23, 35), record(23, 200)];
    let mut model = Model::new((ask, answer.concat()), usize::MAX / 2);
    for op in [Op::Client(hello.len()), Op::Server(95 + 1005), Op::Client(flight.len())] {
        model.run(&op);
    }
    for op in [Op::Client(105), Op::Server(205), Op::Client(105), Op::Server(205), Op::Client(105)] {
        model.run(&op);
    }
    model.run(&Op::Drain);
    let before = model.client.0.borrow().got.len();
    model.run(&Op::Server(40));
    assert_eq!(model.client.0.borrow().got.len(), before + 40, "the leave went through");
    model.pass(model.config.drain.quiet_long);
    assert!(!model.client.0.borrow().got_fin, "however long the client takes to send on");
    model.run(&Op::Client(16_005));
    model.run(&Op::Server(205));
    assert_eq!(model.client.0.borrow().got.len(), before + 40, "the answer is held");
    model.pass(model.config.drain.quiet_short);
    assert!(model.client.0.borrow().got == model.answered && model.client.0.borrow().got_fin);
    assert!(model.server.0.borrow().got == model.asked);
}

#[test]
fn a_request_into_our_fin_is_dropped_and_reported() {
    let mut model = asking();
    model.run(&Op::Server(205));
    model.run(&Op::Drain);
    model.pass(LIMIT / 2);
    assert!(model.client.0.borrow().got_fin);
    let before = model.server.0.borrow().got.len();
    for op in [Op::Client(105), Op::ClientFin, Op::ServerFin] {
        model.run(&op);
    }
    assert_eq!(model.server.0.borrow().got.len(), before);
    assert_eq!(model.ended, Some(Ending::Drained { cut: Cut::Idle, raced: true }));
}

#[test]
fn a_half_closed_connection_idles_out_only_when_the_other_half_is_silent() {
    let mut model = asking();
    let idle = model.config.half_closed_idle;
    model.run(&Op::ClientFin);
    assert!(model.server.0.borrow().got_fin);
    model.pass(idle * 3 / 4);
    model.run(&Op::Server(205));
    model.pass(idle * 3 / 4);
    assert!(!model.client.0.borrow().got_fin);
    model.pass(idle / 4);
    assert!(model.client.0.borrow().got_fin);
    model.pass(model.config.linger);
    assert_eq!(model.ended, Some(Ending::IdledOut));
}

#[test]
fn a_held_answer_still_goes_out_when_the_server_resets() {
    let mut model = asking();
    model.run(&Op::Drain);
    model.run(&Op::Server(205));
    model.run(&Op::ServerReset);
    let client = model.client.0.borrow();
    assert!(client.got == model.answered && client.got_fin);
}

#[test]
fn of_a_long_answer_only_the_end_is_held() {
    let answer = record(23, 16_000).repeat(20);
    let length = answer.len();
    let mut model = Model::new((vec![b'?'], answer), usize::MAX / 2);
    model.run(&Op::Client(1));
    model.run(&Op::Drain);
    model.run(&Op::Server(length));
    assert_eq!(model.client.0.borrow().got.len(), length - model.config.drain.tail);
    model.pass(model.config.drain.quiet_long);
    assert!(model.client.0.borrow().got == model.answered && model.client.0.borrow().got_fin);
}
