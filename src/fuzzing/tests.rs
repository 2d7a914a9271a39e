//! Every target against its kept corpus, as it is and with a bounded number of mutations of it.
//!
//! `fuzz/corpus/<target>/` holds what was once of interest: real values, and the input of each fault that was fixed. What
//! is not text is kept as hex (`*.hex`). A failure names the target and prints the input; save it there once it is fixed.

use super::{TARGETS, Target};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Enough to meet a careless index or slice again, and under 10 s for all targets in a debug build.
const MUTATIONS: u32 = 300;
/// A corpus is read by people and replayed on every test run.
const LARGEST_INPUT: usize = 16 << 10;

fn fuzz_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let dir = fuzz_dir().join("corpus").join(target);
    let mut files: Vec<PathBuf> = fs::read_dir(&dir)
        .unwrap_or_else(|error| panic!("{}: {error}", dir.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), input(&path))).collect()
}

fn input(path: &Path) -> Vec<u8> {
    let bytes = fs::read(path).unwrap();
    if path.extension().is_some_and(|extension| extension == "hex") {
        let digits: Vec<u8> = bytes.into_iter().filter(|byte| !byte.is_ascii_whitespace()).collect();
        return hex::decode(digits).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    bytes
}

/// What a fuzzer would do to an input, in small.
#[derive(Debug, Clone)]
enum Mutation {
    Flip(Index, u8),
    Cut(Index, Index),
    Repeat(Index, Index, u8),
    Insert(Index, Vec<u8>),
    /// Takes the rest from another input of the same corpus.
    Cross(Index, Index),
}

/// What parsers stumble over: ends, escapes, path steps, lengths, half a character.
const PIECES: &[&[u8]] = &[
    b"\n",
    b"\0",
    b"\"",
    b"\\u0000",
    b"\\n",
    b"../",
    b"..",
    b"/",
    b"{",
    b"}",
    b"[",
    b"]",
    b"=",
    b":",
    b" ",
    b"-1",
    b"0",
    b"99999999999999999999",
    b"null",
    b"1e309",
    b"\xff\xff\xff\xff",
    b"\xc3",
    b"\x1b[2J",
    "\u{2028}".as_bytes(),
];

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Mutation::Flip(at, byte)),
        any::<(Index, Index)>().prop_map(|(from, to)| Mutation::Cut(from, to)),
        any::<(Index, Index, u8)>().prop_map(|(from, to, times)| Mutation::Repeat(from, to, times)),
        (any::<Index>(), proptest::sample::select(PIECES))
            .prop_map(|(at, piece)| Mutation::Insert(at, piece.to_vec())),
        (any::<Index>(), proptest::collection::vec(any::<u8>(), 1..9))
            .prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        any::<(Index, Index)>().prop_map(|(at, other)| Mutation::Cross(at, other)),
    ]
}

fn mutated(mut bytes: Vec<u8>, mutations: &[Mutation], corpus: &[(PathBuf, Vec<u8>)]) -> Vec<u8> {
    for mutation in mutations {
        let place = |index: &Index| index.index(bytes.len() + 1);
        let span = |one: &Index, other: &Index| place(one).min(place(other))..place(one).max(place(other));
        match mutation {
            Mutation::Flip(at, byte) => {
                let at = place(at);
                if let Some(place) = bytes.get_mut(at) {
                    *place = *byte;
                }
            }
            Mutation::Cut(from, to) => drop(bytes.drain(span(from, to))),
            Mutation::Repeat(from, to, times) => {
                let (end, piece) = (span(from, to).end, bytes[span(from, to)].to_vec());
                let room = LARGEST_INPUT.saturating_sub(bytes.len()) / piece.len().max(1);
                let again = piece.repeat(usize::from(*times).min(room));
                bytes.splice(end..end, again);
            }
            Mutation::Insert(at, piece) => {
                let at = place(at);
                bytes.splice(at..at, piece.iter().copied());
            }
            Mutation::Cross(at, other) => {
                let (_, other) = other.get(corpus);
                bytes.truncate(place(at));
                let begin = other.len() - other.len().min(bytes.len());
                bytes.extend_from_slice(&other[begin..]);
            }
        }
    }
    bytes
}

fn survives(name: &str, target: Target, bytes: &[u8]) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| target(bytes))).map_err(|panic| {
        let why = panic.downcast_ref::<String>().map(String::as_str);
        let why = why.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
        format!("{name}: {why}\ninput: {}\nhex: {}", bytes.escape_ascii(), hex::encode(bytes))
    })
}

#[test]
fn every_target_survives_its_corpus() {
    let mut faults = Vec::new();
    for (name, target) in TARGETS {
        for (path, bytes) in corpus(name) {
            assert!(bytes.len() <= LARGEST_INPUT, "{} is too large to be kept", path.display());
            faults.extend(
                survives(name, target, &bytes).err().map(|fault| format!("{}: {fault}", path.display())),
            );
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

#[test]
fn every_target_survives_mutations_of_its_corpus() {
    let cases =
        std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(MUTATIONS);
    let seed =
        std::env::var("BERTH_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
    let mut faults = Vec::new();
    for (name, target) in TARGETS {
        let corpus = corpus(name);
        let inputs = (any::<Index>(), proptest::collection::vec(mutation(), 1..5));
        let config = Config { cases, failure_persistence: None, ..Config::default() };
        let mut runner =
            TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed_of(seed)));
        let run = runner.run(&inputs, |(start, mutations)| {
            let (_, bytes) = start.get(&corpus);
            survives(name, target, &mutated(bytes.clone(), &mutations, &corpus)).map_err(TestCaseError::fail)
        });
        faults.extend(run.err().map(|fault| fault.to_string()));
    }
    assert!(faults.is_empty(), "with BERTH_FUZZ_SEED={seed}:\n{}", faults.join("\n\n"));
}

fn seed_of(number: u64) -> [u8; 32] {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&number.to_le_bytes());
    seed
}

#[test]
fn every_target_has_a_fuzzer_and_a_corpus_and_nothing_else_has() {
    let names: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let listed = |dir: &str| -> BTreeSet<String> {
        let entries = fs::read_dir(fuzz_dir().join(dir)).unwrap();
        entries.map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect()
    };
    assert_eq!(listed("fuzz_targets"), names);
    assert_eq!(listed("corpus"), names);
    let manifest = fs::read_to_string(fuzz_dir().join("Cargo.toml")).unwrap();
    for name in &names {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "fuzz/Cargo.toml does not build {name}");
    }
}
