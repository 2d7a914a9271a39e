//! Counts TLS records in passing. The relay feeds it every byte of a direction; the drain asks whether the stream stands
//! between two records and whether the client is past its first answer.
//!
//! It decrypts nothing and keeps no byte but the ClientHello's, and that only until its ALPN is known. A stream that does
//! not begin like TLS is [`Kind::Plain`]; one that stops making sense is [`Kind::Broken`] and never at a boundary.

use super::hello::{Alpn, Hello};

const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;
/// Heartbeat, the highest content type there is.
const LAST_TYPE: u8 = 24;
/// RFC 5246: 2^14 of plaintext and at most 2048 of expansion.
const LONGEST_RECORD: usize = (1 << 14) + 2048;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// No byte yet.
    #[default]
    Unseen,
    Tls,
    Plain,
    Broken,
}

/// A part of the stream as [`Records::pass`] meets it.
enum Piece<'a> {
    Header { content: u8, length: usize },
    Body { content: u8, bytes: &'a [u8] },
}

/// One direction of one connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Records {
    kind: Kind,
    header: [u8; 5],
    /// Bytes of `header` seen; back to 0 once it is complete.
    have: usize,
    /// Bytes of the record's body still to come.
    left: usize,
}

impl Records {
    /// Counts the next bytes of the stream; how they are split makes no difference. Returns the length of the longest record that
    /// began in them; where there are no records, that of all.
    pub(super) fn pass(&mut self, bytes: &[u8]) -> usize {
        let mut longest = 0;
        self.walk(bytes, |piece| {
            if let Piece::Header { length, .. } = piece {
                longest = longest.max(length);
            }
        });
        if self.kind == Kind::Tls { longest } else { usize::MAX }
    }

    /// Between two records, or nothing seen at all. A plain stream has no boundaries to wait for.
    pub(super) fn at_boundary(&self) -> bool {
        match self.kind {
            Kind::Unseen | Kind::Plain => true,
            Kind::Tls => self.have == 0 && self.left == 0,
            Kind::Broken => false,
        }
    }

    fn walk<'a>(&mut self, mut bytes: &'a [u8], mut meet: impl FnMut(Piece<'a>)) {
        if let (Kind::Unseen, Some(first)) = (self.kind, bytes.first()) {
            self.kind = if matches!(*first, ALERT | HANDSHAKE) { Kind::Tls } else { Kind::Plain };
        }
        while self.kind == Kind::Tls && !bytes.is_empty() {
            if self.left > 0 {
                let (body, rest) = bytes.split_at(self.left.min(bytes.len()));
                self.left -= body.len();
                bytes = rest;
                meet(Piece::Body { content: self.header[0], bytes: body });
                continue;
            }
            let (part, rest) = bytes.split_at((self.header.len() - self.have).min(bytes.len()));
            self.header[self.have..self.have + part.len()].copy_from_slice(part);
            self.have += part.len();
            bytes = rest;
            if self.have < self.header.len() {
                return;
            }
            self.have = 0;
            let [content, major, _, high, low] = self.header;
            self.left = usize::from(u16::from_be_bytes([high, low]));
            if !(CHANGE_CIPHER_SPEC..=LAST_TYPE).contains(&content)
                || major != 3
                || self.left > LONGEST_RECORD
            {
                self.kind = Kind::Broken;
                return;
            }
            meet(Piece::Header { content, length: self.left });
        }
    }
}

/// Turns with application data that an h1 client has taken once its first answer is over for sure, with the first turn the
/// handshake's own (Finished is of type 23, and a first request may follow it at once).
///
/// Until then the server's last bytes may be session tickets, sent after the first request and before its answer: they look
/// like an answer, and that request would be cut off. Records do not tell it: kube-apiserver asks every client for a
/// certificate, so even a client without one sends two of type 23 before its first request.
const WARM_H1: u64 = 3;
/// The same for h2, where preface, SETTINGS and their acknowledgement can each take a turn before the first answer.
const WARM_H2: u64 = 5;

/// What a client has said so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ClientStream {
    records: Records,
    hello: Hello,
    /// Turns that brought application data. A turn lasts until the server speaks.
    turns: u64,
    in_turn: bool,
}

impl ClientStream {
    pub(super) fn pass(&mut self, bytes: &[u8]) {
        let Self { records, hello, turns, in_turn } = self;
        records.walk(bytes, |piece| match piece {
            Piece::Header { content: APPLICATION_DATA, .. } if !*in_turn => {
                *turns += 1;
                *in_turn = true;
            }
            Piece::Body { content: HANDSHAKE, bytes } => hello.pass(bytes),
            Piece::Header { .. } | Piece::Body { .. } => (),
        });
    }

    /// The server has spoken.
    pub(super) fn end_turn(&mut self) {
        self.in_turn = false;
    }

    /// Bytes that came after our FIN. True when they may be a request that was lost, and are not just the client's goodbye (an
    /// alert; in TLS 1.3 it hides in a record of type 23 with 19 bytes). Records are not counted: one may hold several requests
    /// of HTTP/2, or none.
    pub(super) fn pass_late(&mut self, bytes: &[u8]) -> bool {
        const HIDDEN_ALERT: usize = 19;
        let mut lost = !bytes.is_empty() && (!self.records.at_boundary() && self.records.have == 0);
        self.records.walk(bytes, |piece| {
            if let Piece::Header { content, length } = piece {
                lost |= !(content == ALERT || content == APPLICATION_DATA && length == HIDDEN_ALERT);
            }
        });
        lost || matches!(self.records.kind, Kind::Plain | Kind::Broken) && !bytes.is_empty()
    }

    pub(super) fn at_boundary(&self) -> bool {
        self.records.at_boundary()
    }

    /// Far enough beyond its handshake that the server's last byte is part of an answer. A plain stream has no handshake.
    pub(super) fn is_warm(&self) -> bool {
        match (self.records.kind, self.alpn()) {
            (Kind::Tls, Alpn::WithoutH2) => self.turns >= WARM_H1,
            (Kind::Tls, Alpn::Unknown | Alpn::OffersH2) => self.turns >= WARM_H2,
            (Kind::Plain, _) => true,
            (Kind::Unseen | Kind::Broken, _) => false,
        }
    }

    /// One request at a time for sure. A plain stream may be anything.
    pub(super) fn is_h1(&self) -> bool {
        self.records.kind == Kind::Tls && self.alpn() == Alpn::WithoutH2
    }

    fn alpn(&self) -> Alpn {
        self.hello.alpn()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::hello::tests::client_hello;
    use super::*;
    use proptest::prelude::*;

    pub(in crate::front) fn record(content: u8, length: usize) -> Vec<u8> {
        let [high, low] = u16::try_from(length).unwrap().to_be_bytes();
        let mut bytes = vec![content, 3, 3, high, low];
        bytes.resize(5 + length, 0xaa);
        bytes
    }

    fn after(parts: &[Vec<u8>]) -> ClientStream {
        let mut client = ClientStream::default();
        for part in parts {
            client.pass(part);
        }
        client
    }

    #[test]
    fn a_stream_is_at_a_boundary_only_between_records() {
        let mut records = Records::default();
        let bytes = record(HANDSHAKE, 3);
        let seen: Vec<bool> = bytes
            .iter()
            .map(|byte| {
                records.pass(&[*byte]);
                records.at_boundary()
            })
            .collect();
        assert_eq!(seen, [false, false, false, false, false, false, false, true]);
    }

    #[test]
    fn a_plain_stream_is_always_at_a_boundary_and_garbage_inside_tls_never_again() {
        let mut plain = Records::default();
        plain.pass(b"GET / HTTP/1.1\r\n");
        assert!(plain.at_boundary());
        let mut broken = Records::default();
        broken.pass(&record(HANDSHAKE, 3));
        broken.pass(b"GET / HTTP/1.1\r\n");
        assert!(!broken.at_boundary());
        broken.pass(&record(APPLICATION_DATA, 3));
        assert!(!broken.at_boundary());
    }

    /// The client's side of a conversation: the records of each turn, by length of their bodies.
    fn warm_after(protocols: &[&str], turns: &[&[usize]]) -> Vec<bool> {
        let mut client = after(&[client_hello(protocols)]);
        let mut speak = |turn: &&[usize]| {
            client.end_turn();
            for length in *turn {
                client.pass(&record(APPLICATION_DATA, *length));
            }
            client.is_warm()
        };
        turns.iter().map(&mut speak).collect()
    }

    #[test]
    fn tickets_behind_the_first_request_are_never_taken_for_its_answer() {
        // Certificate, CertificateVerify, Finished, and the request with its body before the server speaks again.
        let at_once: &[&[usize]] = &[&[900, 300, 53, 120, 16_000], &[120], &[120]];
        assert_eq!(warm_after(&["http/1.1"], at_once), [false, false, true]);
        // An empty Certificate and Finished; then tickets; then the request.
        let behind_tickets: &[&[usize]] = &[&[25, 53], &[120], &[120]];
        assert_eq!(warm_after(&[], behind_tickets), [false, false, true]);
    }

    #[test]
    fn an_h2_client_is_warm_only_after_preface_settings_and_first_answer() {
        let turns: &[&[usize]] = &[&[25, 53], &[80], &[33], &[26], &[33]];
        assert_eq!(warm_after(&["h2", "http/1.1"], turns), [false, false, false, false, true]);
    }

    #[test]
    fn a_goodbye_after_our_fin_is_no_lost_request() {
        let start = after(&[record(HANDSHAKE, 3), record(APPLICATION_DATA, 53)]);
        assert!(!start.clone().pass_late(&[]));
        assert!(!start.clone().pass_late(&record(APPLICATION_DATA, 19)));
        assert!(!start.clone().pass_late(&record(ALERT, 2)));
        assert!(start.clone().pass_late(&record(APPLICATION_DATA, 40)));
        let mut split = start.clone();
        let goodbye = record(APPLICATION_DATA, 19);
        assert!(!split.pass_late(&goodbye[..3]));
        assert!(!split.pass_late(&goodbye[3..]));
        let mut midway = after(&[record(HANDSHAKE, 3), vec![APPLICATION_DATA, 3, 3, 0, 40, 1]]);
        assert!(midway.pass_late(&[0; 39]));
        assert!(after(&[b"GET".to_vec()]).pass_late(b"x"));
    }

    /// Streams of records, some of them of impossible types or lengths.
    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            8 => (20u8..=24, 0usize..300).prop_map(|(content, length)| record(content, length)),
            2 => Just(client_hello(&["h2"])),
            1 => proptest::collection::vec(any::<u8>(), 0..20),
        ];
        proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn any_split_of_a_stream_gives_the_same_count(bytes in stream(), cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..20)) {
            let mut whole = ClientStream::default();
            whole.pass(&bytes);
            let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            ends.push(bytes.len());
            ends.sort_unstable();
            let mut split = ClientStream::default();
            let mut from = 0;
            for end in ends {
                split.pass(&bytes[from..end]);
                from = end;
            }
            prop_assert_eq!(split, whole);
        }
    }
}
