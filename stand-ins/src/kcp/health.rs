//! /readyz, /livez and /healthz: which checks there are, in kcp's order, and when each one turns green. Pure.

use super::answer::Answer;
use hyper::StatusCode;
use std::fmt::Write;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Probe {
    Readyz,
    Livez,
    Healthz,
}

/// How far the start has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Progress {
    /// Answers, and that is all.
    Serving,
    /// The backend is up and its namespaces exist.
    Bootstrapped,
    Ready,
}

/// What the checks look at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Vitals {
    pub progress: Progress,
    pub hung: bool,
    pub store: bool,
    pub terminating: bool,
}

/// When a hook turns green.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Green {
    AtOnce,
    Bootstrapped,
    /// As `Bootstrapped`, but never in a hung start.
    BootstrappedUnlessHung,
    Last,
}

const HOOKS: &[(&str, Green)] = &[
    ("generic-apiserver-start-informers", Green::AtOnce),
    ("priority-and-fairness-config-consumer", Green::AtOnce),
    ("priority-and-fairness-filter", Green::AtOnce),
    ("storage-object-count-tracker-hook", Green::AtOnce),
    ("start-apiextensions-informers", Green::AtOnce),
    ("start-apiextensions-controllers", Green::AtOnce),
    ("crd-informer-synced", Green::BootstrappedUnlessHung),
    ("start-system-namespaces-controller", Green::AtOnce),
    ("start-cluster-authentication-info-controller", Green::AtOnce),
    ("start-kube-apiserver-identity-lease-controller", Green::Bootstrapped),
    ("start-kube-apiserver-identity-lease-garbage-collector", Green::AtOnce),
    ("start-legacy-token-tracking-controller", Green::AtOnce),
    ("rbac/bootstrap-roles", Green::Bootstrapped),
    ("kcp-start-virtual-workspaces", Green::AtOnce),
    ("kcp-bootstrap-policy", Green::Bootstrapped),
    ("kcp-start-informers", Green::Last),
    ("kcp-start-cache-server", Green::AtOnce),
    ("kcp-start-controllers", Green::AtOnce),
    ("kcp-start-openapiv3-controller", Green::BootstrappedUnlessHung),
];

impl Probe {
    /// The probe a path asks for, and the single check behind it, if any.
    pub(super) fn of(path: &str) -> Option<(Self, Option<&str>)> {
        let (first, check) =
            path.trim_start_matches('/').split_once('/').unwrap_or((path.trim_start_matches('/'), ""));
        let probe = match first {
            "readyz" => Self::Readyz,
            "livez" => Self::Livez,
            "healthz" => Self::Healthz,
            _ => return None,
        };
        Some((probe, Some(check).filter(|check| !check.is_empty())))
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Readyz => "readyz",
            Self::Livez => "livez",
            Self::Healthz => "healthz",
        }
    }

    fn checks(self, vitals: Vitals) -> Vec<(String, bool)> {
        let mut checks: Vec<(String, bool)> = Vec::new();
        let mut add = |name: &str, green: bool| checks.push((name.to_owned(), green));
        add("ping", true);
        add("log", true);
        add("etcd", vitals.store);
        match self {
            Self::Readyz => add("etcd-readiness", vitals.store),
            Self::Livez | Self::Healthz => add("loopback-serving-certificate", true),
        }
        for (hook, green) in HOOKS {
            add(&format!("poststarthook/{hook}"), green.reached(vitals));
        }
        if self == Self::Readyz {
            add("shutdown", !vitals.terminating);
        }
        checks
    }

    /// The whole answer to a probe, and the names of the failed checks for the log.
    pub(super) fn answer(self, vitals: Vitals, verbose: bool) -> (Answer, Vec<String>) {
        let checks = self.checks(vitals);
        let failed: Vec<String> =
            checks.iter().filter(|(_, green)| !green).map(|(name, _)| name.clone()).collect();
        if failed.is_empty() && !verbose {
            return (Answer::text(StatusCode::OK, "ok"), failed);
        }
        let mut body = String::new();
        for (name, green) in checks {
            let (sign, verdict) = if green { ('+', "ok") } else { ('-', "failed: reason withheld") };
            let _ = writeln!(body, "[{sign}]{name} {verdict}");
        }
        let (status, verdict) = if failed.is_empty() {
            (StatusCode::OK, "passed")
        } else {
            (StatusCode::INTERNAL_SERVER_ERROR, "failed")
        };
        let _ = writeln!(body, "{} check {verdict}", self.name());
        (Answer::text(status, body), failed)
    }

    /// One check by its name, as `/readyz/etcd` asks.
    pub(super) fn single(self, vitals: Vitals, check: &str) -> Answer {
        match self.checks(vitals).into_iter().find(|(name, _)| name == check) {
            Some((_, true)) => Answer::text(StatusCode::OK, "ok"),
            Some((_, false)) => {
                Answer::text(StatusCode::INTERNAL_SERVER_ERROR, "internal server error: reason withheld\n")
            }
            None => Answer::page_not_found(),
        }
    }
}

impl Green {
    fn reached(self, vitals: Vitals) -> bool {
        match self {
            Self::AtOnce => true,
            Self::Bootstrapped => vitals.progress >= Progress::Bootstrapped,
            Self::BootstrappedUnlessHung => vitals.progress >= Progress::Bootstrapped && !vitals.hung,
            Self::Last => vitals.progress >= Progress::Ready && !vitals.hung,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: Vitals = Vitals { progress: Progress::Ready, hung: false, store: true, terminating: false };

    fn red(probe: Probe, vitals: Vitals) -> Vec<String> {
        let (answer, failed) = probe.answer(vitals, false);
        assert_eq!(answer.status == StatusCode::OK, failed.is_empty());
        failed
    }

    #[test]
    fn a_ready_process_answers_two_bytes() {
        for probe in [Probe::Readyz, Probe::Livez, Probe::Healthz] {
            assert_eq!(probe.answer(READY, false).0, Answer::text(StatusCode::OK, "ok"));
        }
    }

    #[test]
    fn both_probes_are_red_until_the_informers_have_synced() {
        let vitals = Vitals { progress: Progress::Bootstrapped, ..READY };
        for probe in [Probe::Readyz, Probe::Livez] {
            assert_eq!(red(probe, vitals), ["poststarthook/kcp-start-informers"]);
        }
        let body = Probe::Readyz.answer(vitals, false).0.body;
        assert!(body.starts_with("[+]ping ok\n[+]log ok\n[+]etcd ok\n[+]etcd-readiness ok\n"));
        assert!(body.contains("[-]poststarthook/kcp-start-informers failed: reason withheld\n"));
        assert!(body.ends_with("[+]shutdown ok\nreadyz check failed\n"), "{body}");
        assert!(Probe::Livez.answer(vitals, false).0.body.ends_with("livez check failed\n"));
    }

    #[test]
    fn a_hung_start_stays_on_exactly_three_hooks() {
        let vitals = Vitals { hung: true, ..READY };
        assert_eq!(
            red(Probe::Readyz, vitals),
            [
                "poststarthook/crd-informer-synced",
                "poststarthook/kcp-start-informers",
                "poststarthook/kcp-start-openapiv3-controller"
            ]
        );
    }

    #[test]
    fn a_lost_store_is_red_in_both_and_a_shutdown_only_in_readyz() {
        let lost = Vitals { store: false, ..READY };
        assert_eq!(red(Probe::Readyz, lost), ["etcd", "etcd-readiness"]);
        assert_eq!(red(Probe::Livez, lost), ["etcd"]);
        let ending = Vitals { terminating: true, ..READY };
        assert_eq!(red(Probe::Readyz, ending), ["shutdown"]);
        assert!(red(Probe::Livez, ending).is_empty());
    }

    #[test]
    fn a_single_check_is_found_by_its_name() {
        assert_eq!(Probe::of("/readyz/poststarthook/x"), Some((Probe::Readyz, Some("poststarthook/x"))));
        assert_eq!(Probe::Readyz.single(READY, "etcd").status, StatusCode::OK);
        assert_eq!(Probe::Readyz.single(READY, "nonsense").status, StatusCode::NOT_FOUND);
    }
}
