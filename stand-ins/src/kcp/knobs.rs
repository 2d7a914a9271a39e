//! Misbehaviour on demand, by environment. The table is in the module above; nothing else reads these variables.

use super::lease;
use std::env;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hang {
    Never,
    Always,
    /// On the first start of a root only, so that a kill and a second start get through.
    Once,
}

#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one switch of the environment, and goes with none of the others"
)]
pub(super) struct Knobs {
    pub kube_apiserver: Option<PathBuf>,
    pub ready_after: Duration,
    pub hang: Hang,
    pub crash_after_ready: Option<Duration>,
    pub ignore_sigterm: bool,
    pub second_listener: bool,
    pub silent_watches: Option<PathBuf>,
    pub no_default_route: bool,
    /// Between two renewals of the lease, and between a candidate's looks.
    pub lease_retry: Duration,
    pub half_close: bool,
}

impl Knobs {
    pub(super) fn from_env() -> Result<Self, String> {
        Self::read(|name| env::var(name).ok())
    }

    fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let get = |name: &str| get(name).filter(|value| !value.is_empty());
        let switch = |name: &str| get(name).is_some_and(|value| value != "0");
        let seconds = |name: &str| match get(name) {
            None => Ok(None),
            Some(text) => text
                .parse::<f64>()
                .ok()
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                .map(Some)
                .ok_or_else(|| format!("{name}={text:?} is not a number of seconds")),
        };
        let hang = match get("KCP_STANDIN_HANG").as_deref() {
            None | Some("0") => Hang::Never,
            Some("once") => Hang::Once,
            Some(_) => Hang::Always,
        };
        Ok(Self {
            kube_apiserver: get("KCP_STANDIN_KUBE_APISERVER").map(PathBuf::from),
            ready_after: seconds("KCP_STANDIN_READY_AFTER")?.unwrap_or_default(),
            hang,
            crash_after_ready: seconds("KCP_STANDIN_CRASH_AFTER_READY")?,
            ignore_sigterm: switch("KCP_STANDIN_IGNORE_SIGTERM"),
            second_listener: switch("KCP_STANDIN_SECOND_LISTENER"),
            silent_watches: get("KCP_STANDIN_SILENT_WATCHES").map(PathBuf::from),
            no_default_route: switch("KCP_STANDIN_NO_DEFAULT_ROUTE"),
            lease_retry: seconds("KCP_STANDIN_LEASE_RETRY")?.unwrap_or(lease::RETRY),
            half_close: switch("KCP_STANDIN_HALF_CLOSE"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_environment_misbehaves_in_nothing() {
        let knobs = Knobs::read(|_| None).unwrap();
        assert_eq!(knobs.hang, Hang::Never);
        assert_eq!((knobs.ready_after, knobs.lease_retry), (Duration::ZERO, lease::RETRY));
        assert!(
            !knobs.ignore_sigterm && !knobs.second_listener && !knobs.no_default_route && !knobs.half_close
        );
    }

    #[test]
    fn seconds_that_are_no_number_are_refused_by_name() {
        let error = Knobs::read(|name| name.ends_with("READY_AFTER").then(|| "soon".to_owned())).unwrap_err();
        assert_eq!(error, "KCP_STANDIN_READY_AFTER=\"soon\" is not a number of seconds");
    }
}
