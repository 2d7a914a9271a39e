//! Named places where a test may have this process die, freeze, or find its disk full.
//!
//! Adapters call [`point`] between two acts that a crash may separate, and [`storage`] where a file is written. A storm
//! (tests/chaos) arms one of them, or the n-th of all, in the file that `BERTH_FAULT` names. In a build without debug
//! assertions both are empty: a release has no fault point, whatever its environment says.
//!
//! Nothing is unwound and nothing is flushed: a fault is SIGKILL to oneself, as the kernel's OOM killer would send it.

/// The variable that names the file a fault is armed in.
pub const ARMED_IN: &str = "BERTH_FAULT";
/// What is armed when any place will do.
pub const ANY: &str = "*";
/// Whether this build has fault points at all.
pub const EXIST: bool = cfg!(debug_assertions);

/// Dies or freezes here, if this place is armed.
#[inline]
pub fn point(name: &str) {
    #[cfg(debug_assertions)]
    if let Some(armed) = armed::here(name) {
        armed.strike();
    }
    #[cfg(not(debug_assertions))]
    let _ = name;
}

/// The same; and fails as a full disk does, if that is what is armed.
#[inline]
pub fn storage(name: &str) -> std::io::Result<()> {
    #[cfg(debug_assertions)]
    if let Some(armed) = armed::here(name) {
        if armed.is_full_disk() {
            return Err(rustix::io::Errno::NOSPC.into());
        }
        armed.strike();
    }
    #[cfg(not(debug_assertions))]
    let _ = name;
    Ok(())
}

/// How far a storm has turned the wall clock. Turning the host's own would take everything else on it along.
#[inline]
pub fn clock_turned_by() -> time::Duration {
    #[cfg(debug_assertions)]
    return armed::clock_turned_by();
    #[cfg(not(debug_assertions))]
    time::Duration::ZERO
}

#[cfg(debug_assertions)]
mod armed {
    //! `<place> <skip> <act>` in the armed file: `act` is `die`, `freeze` or `full`, and the first `skip` passes are let
    //! go. A place that struck leaves its name in `<file>.struck`; but for `full`, which lasts as long as the file, the
    //! file is gone then, so that the next daemon does not die of it again. `<file>.clock` holds the seconds by which the wall
    //! clock is turned, for as long as it is there.

    use rustix::process::{Signal, getpid, kill_process};
    use std::path::{Path, PathBuf};
    use std::sync::{Mutex, OnceLock, PoisonError};

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Act {
        Die,
        Freeze,
        Full,
    }

    #[derive(Debug)]
    pub(super) struct Armed(Act);

    /// What was armed when last looked, and how often it was passed since.
    static PASSED: Mutex<(String, u64)> = Mutex::new((String::new(), 0));

    fn file() -> Option<&'static Path> {
        static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
        FILE.get_or_init(|| std::env::var_os(super::ARMED_IN).map(PathBuf::from)).as_deref()
    }

    pub(super) fn clock_turned_by() -> time::Duration {
        let seconds =
            file().and_then(|file| seconds(&crate::files::trusted::text(file.with_extension("clock")).ok()?));
        time::Duration::seconds(seconds.unwrap_or_default())
    }

    fn seconds(order: &str) -> Option<i64> {
        order.trim().parse().ok()
    }

    pub(super) fn here(name: &str) -> Option<Armed> {
        let file = file()?;
        let mut passed = PASSED.lock().unwrap_or_else(PoisonError::into_inner);
        let order = crate::files::trusted::text(file).ok()?;
        let (skip, act) = parse(&order, name)?;
        if passed.0 != order {
            *passed = (order, 0);
        }
        passed.1 += 1;
        if passed.1 <= skip {
            return None;
        }
        let (struck, aside) = (file.with_extension("struck"), file.with_extension("striking"));
        #[allow(clippy::disallowed_methods, reason = "nobody needs it after a crash of the host")]
        let _ = std::fs::write(&aside, name).and_then(|()| std::fs::rename(&aside, &struck));
        if act != Act::Full {
            let _ = std::fs::remove_file(file);
        }
        Some(Armed(act))
    }

    fn parse(order: &str, name: &str) -> Option<(u64, Act)> {
        let mut words = order.split_whitespace();
        let place = words.next()?;
        if place != name && place != super::ANY {
            return None;
        }
        let skip = words.next()?.parse().ok()?;
        let act = match words.next()? {
            "die" => Act::Die,
            "freeze" => Act::Freeze,
            "full" => Act::Full,
            _ => return None,
        };
        Some((skip, act))
    }

    impl Armed {
        pub(super) fn is_full_disk(&self) -> bool {
            self.0 == Act::Full
        }

        pub(super) fn strike(&self) {
            let signal = match self.0 {
                Act::Die => Signal::KILL,
                Act::Freeze => Signal::STOP,
                Act::Full => return,
            };
            // To oneself: there is nobody else it could reach, and nothing that could refuse it.
            let _ = kill_process(getpid(), signal);
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_place_is_armed_by_its_name_or_by_any() {
            assert_eq!(parse("spawn-born 2 die 1", "spawn-born"), Some((2, Act::Die)));
            assert_eq!(parse("* 0 full 1", "spawn-born"), Some((0, Act::Full)));
            for order in ["", "spawn-born", "spawn-born x die", "spawn-born 0 dance", "other 0 die"] {
                assert_eq!(parse(order, "spawn-born"), None, "{order}");
            }
        }

        #[test]
        fn the_clock_is_turned_both_ways_and_by_nothing_that_is_no_number() {
            assert_eq!(
                [seconds("7200\n"), seconds("-86400"), seconds("later")],
                [Some(7200), Some(-86400), None]
            );
        }
    }
}
