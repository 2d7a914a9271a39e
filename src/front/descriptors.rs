//! How many connections the limit of open files allows, and the line that clients' sockets never pass: what lies beyond is
//! the daemon's, which has to answer its operator and start a dead kcp again while the front is flooded. Pure but for one look.

use super::config::FrontConfig;
use rustix::process::{Resource, getrlimit};
use std::os::fd::RawFd;

/// A client's socket and a slot's.
const PER_CONNECTION: u64 = 2;
/// What the daemon has open itself: logs, pidfds, probes, connections to a hundred databases. Half of a limit that is small.
const OWN: u64 = 1024;
/// The part of them that clients cannot take even where the daemon has more open than was thought.
const BEYOND_THE_LINE: u64 = 4;

/// The limit of open files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptors {
    pub limit: u64,
}

/// The front admits fewer connections than it was told to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "max_connections {wanted} does not fit into the limit of {limit} open files: {fitting} are admitted at one time, two files \
     each; raise the limit to {needed} (LimitNOFILE= of the unit, ulimit -n), or lower [front] max_connections"
)]
pub struct Misfit {
    wanted: usize,
    fitting: usize,
    limit: u64,
    needed: u64,
}

impl Descriptors {
    /// The soft limit of this process. The daemon has raised it to the hard one.
    pub fn of_this_process() -> Self {
        Self { limit: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) }
    }

    /// What the hard limit allows, which a daemon raises itself to.
    pub fn allowed() -> Self {
        Self { limit: getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX) }
    }

    /// Connections at one time.
    pub fn connections(self) -> usize {
        usize::try_from((self.limit - self.own()) / PER_CONNECTION).unwrap_or(usize::MAX)
    }

    /// Descriptors are given out from the lowest on: one with this number or above means that the daemon's own are all that is left.
    pub(super) fn line(self) -> RawFd {
        RawFd::try_from(self.limit - self.own() / BEYOND_THE_LINE).unwrap_or(RawFd::MAX)
    }

    fn own(self) -> u64 {
        OWN.min(self.limit / 2)
    }
}

impl FrontConfig {
    /// Keeps the caps within what `descriptors` allow. The parts of a cap that was lowered become smaller with it.
    #[must_use]
    pub fn within(self, descriptors: Descriptors) -> (Self, Option<Misfit>) {
        let (wanted, fitting) = (self.max_connections, descriptors.connections().max(1));
        let config = Self { descriptor_line: descriptors.line(), ..self };
        if wanted <= fitting {
            return (config, None);
        }
        let config = Self {
            max_connections: fitting,
            max_per_peer: config.max_per_peer.min(Self::share_of_one_peer(fitting)),
            max_parked: config.max_parked.min(Self::share_of_parked(fitting)),
            ..config
        };
        let needed = PER_CONNECTION * wanted as u64 + OWN;
        (config, Some(Misfit { wanted, fitting, limit: descriptors.limit, needed }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_left_as_it_is() {
        let (config, misfit) = FrontConfig::default().within(Descriptors { limit: 524_288 });
        assert_eq!((config.max_connections, config.max_per_peer, config.max_parked), (10_000, 7500, 5000));
        assert_eq!((config.descriptor_line, misfit), (524_032, None));
        let (config, misfit) = FrontConfig::default().within(Descriptors { limit: u64::MAX });
        assert_eq!((config.descriptor_line, misfit), (RawFd::MAX, None));
    }

    #[test]
    fn a_cap_that_does_not_fit_is_lowered_with_its_parts_and_says_the_way_out() {
        let (config, misfit) = FrontConfig::default().within(Descriptors { limit: 4096 });
        assert_eq!((config.max_connections, config.max_per_peer, config.max_parked), (1536, 1152, 768));
        assert_eq!(config.descriptor_line, 3840);
        let text = misfit.unwrap().to_string();
        assert!(text.contains("max_connections 10000 does not fit into the limit of 4096"), "{text}");
        assert!(text.contains("1536 are admitted") && text.contains("raise the limit to 21024"), "{text}");
        let (strict, _) = FrontConfig { max_per_peer: 10, max_parked: 20, ..FrontConfig::default() }
            .within(Descriptors { limit: 4096 });
        assert_eq!((strict.max_per_peer, strict.max_parked), (10, 20));
    }

    #[test]
    fn full_of_connections_the_daemon_still_has_its_own_descriptors() {
        for limit in [8, 64, 256, 1024, 1025, 4096, 20_000, 1 << 20] {
            let descriptors = Descriptors { limit };
            let taken = PER_CONNECTION * descriptors.connections() as u64;
            assert!(limit - taken >= OWN.min(limit / 2), "{limit}");
            assert!(u64::try_from(descriptors.line()).unwrap() > taken, "{limit}");
        }
    }
}
