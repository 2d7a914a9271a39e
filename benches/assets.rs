//! What bringing an asset from rest costs beside `zstd -d` and `sha256sum` on the same file, in the same run.
//!
//! `cargo bench --bench assets [-- FILE]`: FILE is a program of about the size of kcp; without it, this benchmark's own. A
//! measurement, never a test: nothing here fails because it was slow.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "it measures or it ends; its table goes to the terminal"
)]

use berth::assets::{Recipe, Store};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;
const QUIET: &dyn Fn(u64, u64) = &|_, _| ();

fn main() {
    // cargo adds arguments of its own.
    let file = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let file = file.map_or_else(|| std::env::current_exe().unwrap(), Into::into);
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(&root.path().join("assets")).unwrap();
    let staged = store.stage().unwrap();
    std::fs::copy(&file, staged.tree.join("program")).unwrap();
    let recipe = Recipe {
        component: "program".into(),
        version: "v1".into(),
        key: "k".into(),
        made_by: "a benchmark".into(),
    };
    store.install(&staged, recipe, None).unwrap();
    let record = store.reread("k").unwrap().unwrap();
    let began = Instant::now();
    let packed = store.pack(&record, QUIET).unwrap();
    let took = began.elapsed();
    println!(
        "{}: {} bytes, packed {} in {:.1} s\n",
        file.display(),
        record.size(),
        packed.metadata().unwrap().len(),
        took.as_secs_f64()
    );

    // The peer's archive is of the program alone, at the same level.
    let (plain, out) = (root.path().join("program.zst"), root.path().join("program"));
    run(Command::new("zstd").args(["-q", "-19", "--long=27"]).arg(&file).arg("-o").arg(&plain));
    let decompress = |out: &Path| {
        run(Command::new("zstd").args(["-q", "-f", "-d", "--long=27"]).arg(&plain).arg("-o").arg(out));
    };
    let sum = |out: &Path| run(Command::new("sha256sum").arg(out).stdout(Stdio::null()));
    let (mut ours, mut theirs, mut durable) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(timed(|| drop(Store::verify_packed(&packed, QUIET).unwrap())));
        store.remove(&record).unwrap();
        // With what makes it durable and fit to run.
        durable.push(timed(|| drop(store.restore("k", QUIET).unwrap().unwrap())));
        theirs.push(timed(|| {
            decompress(&out);
            sum(&out);
        }));
    }
    let synced = timed(|| {
        decompress(&out);
        sum(&out);
        run(Command::new("sync").arg(&out));
    });
    let (ours, theirs, durable) = (median(ours), median(theirs), median(durable));
    println!("| what | ms | to `zstd -d` and `sha256sum` |\n|---|---|---|");
    for (what, took) in [
        ("`zstd -d`, then `sha256sum`", theirs),
        ("the same, then `sync`", synced),
        ("the store: decompressed and hashed", ours),
        ("the store: unpacked, hashed, synced, published", durable),
    ] {
        println!("| {what} | {} | {:.2} |", took.as_millis(), took.as_secs_f64() / theirs.as_secs_f64());
    }
}

fn run(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
}

fn timed(work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
