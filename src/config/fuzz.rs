//! The configuration file under any bytes: what is taken is shown so that it reads back the same.

use super::{Config, Overrides, Surroundings};
use crate::fuzzing::{assert_refused_by_name, text};
use std::path::Path;

pub fn config(bytes: &[u8]) {
    let surroundings = Surroundings { root: true, cpus: 2, ..Surroundings::default() };
    let parse =
        |text: &str| Config::parse(text, Path::new("/etc/berth.toml"), &Overrides::default(), &surroundings);
    match parse(&text(bytes)) {
        Ok(config) => {
            let shown = config.to_string();
            let again = parse(&shown).map(|again| values(&again));
            assert_eq!(again.ok(), Some(values(&config)), "shown as:\n{shown}");
        }
        Err(refusal) => assert_refused_by_name(&refusal, "/etc/berth.toml:"),
    }
}

/// Without the comments, which say where a value came from.
fn values(config: &Config) -> Vec<String> {
    let shown = config.to_string();
    shown.lines().filter_map(|line| Some(line.rsplit_once("  # ")?.0.trim_end().to_owned())).collect()
}
