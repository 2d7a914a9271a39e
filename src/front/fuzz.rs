//! A client's stream as the front reads it in passing, under any bytes: how it is split makes no difference.

use super::tls::ClientStream;

/// The first byte says how large the pieces are.
pub fn tls_stream(bytes: &[u8]) {
    let Some((piece, stream)) = bytes.split_first() else { return };
    let mut whole = ClientStream::default();
    whole.pass(stream);
    let mut split = ClientStream::default();
    for piece in stream.chunks(usize::from(*piece).max(1)) {
        split.pass(piece);
    }
    assert_eq!(split, whole);
    assert!(!(whole.is_h1() && !whole.is_warm() && stream.is_empty()));
    let (mut once, mut twice) = (whole.clone(), whole);
    let (head, tail) = stream.split_at(stream.len() / 2);
    let lost_in_parts = twice.pass_late(head) | twice.pass_late(tail);
    // A request lost in one piece is lost in two; a header cut in half may only be judged late, never missed.
    assert!(!once.pass_late(stream) || lost_in_parts || !twice.at_boundary());
}
