//! Reads the body of a red /readyz, and knows the one from which a start never recovers. Pure.

use crate::one_line::one_line;
use std::fmt;

/// The checks of one answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Checks {
    pub red: Vec<String>,
    pub green: usize,
}

/// Exactly these stay red for ever when a slot was started too close to the other one's taking of the lease.
const HUNG: [&str; 3] = [
    "poststarthook/crd-informer-synced",
    "poststarthook/kcp-start-informers",
    "poststarthook/kcp-start-openapiv3-controller",
];

impl Checks {
    /// Lines are `[+]name ok` and `[-]name failed: reason withheld`; anything else is prose.
    pub(crate) fn parse(body: &str) -> Self {
        let mut checks = Self::default();
        for line in body.lines() {
            if line.starts_with("[+]") {
                checks.green += 1;
            } else if let Some(rest) = line.strip_prefix("[-]") {
                checks.red.push(one_line(rest.split_whitespace().next().unwrap_or_default()));
            }
        }
        checks
    }

    /// Whether these are the three checks of a hung start, and no other. Alone it proves nothing: a healthy start may pass
    /// through the same state.
    pub(crate) fn look_hung(&self) -> bool {
        self.red.len() == HUNG.len() && HUNG.iter().all(|hook| self.red.iter().any(|red| red == hook))
    }
}

impl fmt::Display for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> =
            self.red.iter().map(|name| name.strip_prefix("poststarthook/").unwrap_or(name)).collect();
        let all = self.red.len() + self.green;
        // Early in a start nearly everything is red; the first names say enough.
        match names.as_slice() {
            [a, b, c, more @ ..] if !more.is_empty() => {
                write!(f, "{} of {all} checks: {a}, {b}, {c} and {} more", self.red.len(), more.len())
            }
            names => write!(f, "{} of {all} checks: {}", self.red.len(), names.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANGING: &str = "[+]ping ok\n[+]log ok\n[+]etcd ok\n\
        [-]poststarthook/crd-informer-synced failed: reason withheld\n\
        [+]poststarthook/rbac/bootstrap-roles ok\n\
        [-]poststarthook/kcp-start-informers failed: reason withheld\n\
        [-]poststarthook/kcp-start-openapiv3-controller failed: reason withheld\n\
        [+]shutdown ok\nreadyz check failed\n";

    #[test]
    fn the_three_red_hooks_of_a_hang_are_told_from_two_and_four() {
        let hanging = Checks::parse(HANGING);
        assert_eq!((hanging.red.len(), hanging.green), (3, 5));
        assert!(hanging.look_hung());

        let two = HANGING.replace("[-]poststarthook/crd-informer-synced failed: reason withheld", "[+]x ok");
        assert!(!Checks::parse(&two).look_hung());
        let four = HANGING.replace("[+]etcd ok", "[-]etcd failed: reason withheld");
        assert!(!Checks::parse(&four).look_hung());
        let others = HANGING.replace("kcp-start-informers", "kcp-start-controllers");
        assert!(!Checks::parse(&others).look_hung());
        assert!(!Checks::parse("").look_hung());
    }

    #[test]
    fn an_operator_reads_which_checks_are_red() {
        assert_eq!(
            Checks::parse(HANGING).to_string(),
            "3 of 8 checks: crd-informer-synced, kcp-start-informers, kcp-start-openapiv3-controller"
        );
        assert_eq!(
            Checks::parse("[-]a failed\n[-]b failed\n[-]c failed\n[-]d failed\n[-]e failed\n[+]f ok\n")
                .to_string(),
            "5 of 6 checks: a, b, c and 2 more"
        );
    }
}
