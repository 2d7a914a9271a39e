//! With the feature `embedded`: the packed assets in the directory that `BERTH_EMBEDDED_ASSETS` names become part of the program.
//!
//! `berth assets pack` makes them. What the catalogue does not ask for is carried along and never unpacked.

#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "cargo listens to its output, and its directory is nobody else's"
)]

use std::env;
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

const FROM: &str = "BERTH_EMBEDDED_ASSETS";
/// As `assets::packed` names them.
const ENDING: &str = ".tar.zst";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={FROM}");
    if env::var_os("CARGO_FEATURE_EMBEDDED").is_none() {
        return Ok(());
    }
    let archives = match env::var_os(FROM) {
        Some(dir) => archives(&fs::canonicalize(&dir)?)?,
        // Clippy and documentation of all features need no archives; a program without them says so when it is asked for one.
        None => {
            println!("cargo::warning={FROM} names no directory of packed assets: none is embedded");
            Vec::new()
        }
    };
    let mut table = "const ARCHIVES: &[(&str, &[u8])] = &[\n".to_owned();
    for path in archives {
        println!("cargo::rerun-if-changed={}", path.display());
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let file = path.to_str().ok_or("the directory's name is not UTF-8")?;
        writeln!(table, "    ({name:?}, include_bytes!({file:?})),")?;
    }
    table.push_str("];\n");
    let out = env::var_os("OUT_DIR").ok_or("cargo names no OUT_DIR")?;
    fs::write(Path::new(&out).join("embedded_assets.rs"), table)?;
    Ok(())
}

fn archives(dir: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    println!("cargo::rerun-if-changed={}", dir.display());
    let paths =
        fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, std::io::Error>>()?;
    let mut archives: Vec<_> =
        paths.into_iter().filter(|path| path.to_string_lossy().ends_with(ENDING)).collect();
    if archives.is_empty() {
        return Err(
            format!("{FROM}={} has no *{ENDING}: `berth assets pack` makes them", dir.display()).into()
        );
    }
    archives.sort();
    Ok(archives)
}
