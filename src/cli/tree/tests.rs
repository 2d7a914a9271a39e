//! Golden trees. `BERTH_BLESS=1 cargo test` writes them anew; read the difference before committing it.

use super::*;
use crate::cli::fixture::{healthy, troubled};
use berth_actors::status::TreeStatus;
use std::path::Path;

fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cli/tree/golden").join(name);
    if std::env::var_os("BERTH_BLESS").is_some() {
        crate::files::write_atomic(&path, text.as_bytes(), None).unwrap();
    }
    let wanted = std::fs::read_to_string(&path).unwrap();
    assert!(wanted == text, "{name} differs; it is now:\n{text}");
}

#[test]
fn a_healthy_tree_fits_on_a_screen_and_marks_its_stand_in() {
    golden("healthy.txt", &render(&healthy(), Style::PLAIN));
}

#[test]
fn a_troubled_tree_says_what_waits_what_failed_and_what_it_wrote() {
    golden("troubled.txt", &render(&troubled(), Style::PLAIN));
}

#[test]
fn a_daemon_without_anything_is_one_line() {
    golden("empty.txt", &render(&TreeStatus::default(), Style::PLAIN));
}

#[test]
fn what_even_sigkill_does_not_end_stands_under_the_first_line() {
    let strays = vec!["demo/kine: kine (pid 77) of an earlier daemon outlives SIGKILL".to_owned()];
    let text = render(&TreeStatus { strays, ..healthy() }, Style::PLAIN);
    let second = text.lines().nth(1).unwrap();
    assert_eq!(second, "│    demo/kine: kine (pid 77) of an earlier daemon outlives SIGKILL");
}

#[test]
fn a_single_chain_is_drawn_like_a_tree() {
    golden("chain.txt", &render_chain(&troubled().tenants[1], Style::PLAIN));
}

#[test]
fn colours_change_nothing_but_colours() {
    let coloured = render(&troubled(), Style { colour: true });
    let mut plain = String::new();
    for (index, part) in coloured.split("\x1b[").enumerate() {
        plain.push_str(if index == 0 { part } else { part.split_once('m').unwrap().1 });
    }
    assert_ne!(coloured, plain);
    let trimmed = |text: &str| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    assert_eq!(trimmed(&plain), trimmed(&render(&troubled(), Style::PLAIN)));
}

#[test]
fn a_component_cannot_steer_the_terminal() {
    assert!(!render(&troubled(), Style::PLAIN).contains('\x1b'));
}
