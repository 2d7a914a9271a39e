//! What a child says in the log: at once, but for a death and what follows it. That is held until the successor is born, which
//! shall not wait for whoever reads the log (a terminal, a pipe); or until [`super::perform`] says that it takes too long.

use crate::child::Life;
use crate::identity::ComponentId;

/// Nothing is lost or comes out of order: whatever may not be held takes with it what is.
#[derive(Debug, Default)]
pub(super) struct Words {
    held: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    warns: bool,
    what: String,
}

impl Words {
    pub(super) fn say(&mut self, of: &ComponentId, life: &Life, what: &str) {
        let warns = matches!(
            life,
            Life::Dead { .. } | Life::Failed { .. } | Life::Red | Life::Unguarded | Life::Blocked { .. }
        );
        if self.may_hold(life) {
            self.held.push(Line { warns, what: what.to_owned() });
        } else {
            self.say_held(of);
            log(of, warns, what);
        }
    }

    /// A restart at once goes from its death over these to its birth.
    fn may_hold(&self, life: &Life) -> bool {
        match life {
            Life::Dead { .. } => true,
            Life::Due | Life::Starting => !self.held.is_empty(),
            _ => false,
        }
    }

    pub(super) fn say_held(&mut self, of: &ComponentId) {
        for Line { warns, what } in std::mem::take(&mut self.held) {
            log(of, warns, &what);
        }
    }
}

fn log(of: &ComponentId, warns: bool, what: &str) {
    if warns {
        tracing::warn!(component = %of, "{what}");
    } else {
        tracing::info!(component = %of, "{what}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_death_is_told_with_what_follows_it_and_in_order() {
        let (of, mut words) = (ComponentId::new("demo", "kine"), Words::default());
        let held = |words: &Words| words.held.iter().map(|line| line.what.clone()).collect::<Vec<_>>();
        words.say(&of, &Life::Starting, "starting");
        assert!(held(&words).is_empty(), "a first start holds nothing");
        words.say(&of, &Life::Dead { failure: String::new() }, "killed");
        words.say(&of, &Life::Due, "due");
        words.say(&of, &Life::Starting, "starting");
        assert_eq!(held(&words), ["killed", "due", "starting"]);
        words.say_held(&of);
        assert!(held(&words).is_empty(), "the successor is born");
    }

    #[test]
    fn an_end_takes_with_it_what_is_held() {
        for end in [Life::Down, Life::Stopping, Life::Failed { reason: String::new(), refused: false }] {
            let (of, mut words) = (ComponentId::new("demo", "kine"), Words::default());
            words.say(&of, &Life::Dead { failure: String::new() }, "killed");
            words.say(&of, &end, "over");
            assert!(words.held.is_empty(), "{end:?}");
        }
    }
}
