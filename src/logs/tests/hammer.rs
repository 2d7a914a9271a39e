//! A component that writes as fast as it can, hundreds of rotations, and readers that come and go.

use super::super::follow;
use super::super::rotate::make_room;
use super::*;
use crate::log_line;
use futures::StreamExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const LINES: usize = 400_000;

/// Each line in one write, as programs write them, some in two.
fn write(mut log: File) {
    for number in 0..LINES {
        let line = line(number);
        let cut = if number % 13 == 0 { line.len() / 2 } else { line.len() };
        log.write_all(&line[..cut]).unwrap();
        log.write_all(&line[cut..]).unwrap();
    }
}

/// Judges every line, in chunks of any size.
#[derive(Default)]
struct Judge {
    next: usize,
    partial: Vec<u8>,
}

impl Judge {
    fn hear(&mut self, chunk: &[u8]) {
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            self.partial.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                assert!(self.partial == line(self.next), "line {}: {:?}", self.next, self.heard());
                self.partial.clear();
                self.next += 1;
            }
        }
    }

    fn heard(&self) -> String {
        String::from_utf8_lossy(&self.partial).into_owned()
    }
}

/// Reads with a new reader every so often, which knows nothing but its offset.
fn read_with_restarts(path: &Path) {
    let (mut judge, mut offset) = (Judge::default(), 0);
    let mut buffer = vec![0; 50_000];
    while judge.next < LINES {
        let mut log = Log::at(path);
        for _ in 0..rand::random_range(1..40) {
            let size = rand::random_range(1..buffer.len());
            let piece = log.read_at(offset, &mut buffer[..size]).unwrap();
            assert!(piece.length == 0 || piece.offset == offset, "{piece:?} instead of {offset}");
            judge.hear(&buffer[..piece.length]);
            offset += piece.length as u64;
        }
    }
}

async fn follow_all(path: &Path) {
    let mut chunks = Box::pin(follow(path.to_owned(), usize::MAX).await.unwrap());
    let mut judge = Judge::default();
    while judge.next < LINES {
        judge.hear(&chunks.next().await.unwrap().unwrap());
    }
}

/// As a gate reads.
async fn wait_for_last(path: &Path) {
    let mut next = 0;
    log_line::wait_for(path, 0, |text| {
        assert_eq!(text.as_bytes(), line(next).strip_suffix(b"\n").unwrap(), "line {next}");
        next += 1;
        next == LINES
    })
    .await
    .unwrap();
}

fn hammer(bench: &Bench) {
    let path = bench.log();
    let writer = bench.writer();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers = [scope.spawn(|| read_with_restarts(&path)), scope.spawn(|| read_with_restarts(&path))];
        let rotator = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                make_room(&path, ALL).unwrap();
            }
        });
        scope.spawn(move || write(writer));
        let followers = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            runtime.block_on(async { tokio::join!(follow_all(&path), wait_for_last(&path)) });
        });
        let heard = [readers.map(|reader| reader.join().is_ok()), [followers.join().is_ok(); 2]];
        done.store(true, Ordering::Relaxed);
        rotator.join().unwrap();
        assert_eq!(heard, [[true; 2]; 2], "every reader heard every line");
    });
    make_room(&path, ALL).unwrap();
    assert!(bench.archives().len() >= 200, "{} rotations", bench.archives().len());
}

#[test]
fn no_line_is_lost_torn_or_repeated_while_the_head_collapses() {
    hammer(&Bench::new());
}

#[test]
fn no_line_is_lost_torn_or_repeated_while_holes_are_punched() {
    hammer(&Bench::in_memory());
}
