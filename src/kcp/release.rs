//! Which kcp is newer, and whether one may be started on a store that another has bootstrapped (K8). Pure.
//!
//! kcp's bootstrap goes one way: it changes what lies in the store, and an older one reads what it never wrote. Each program
//! says who it is; a build that was made without its version says nothing that could be compared.

use semver::Version;

/// Why a kcp may not be started on this store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Downgrade {
    #[error("kcp {said} is older than {newest}, which has bootstrapped this store")]
    Older { said: String, newest: String },
    #[error(
        "whether kcp {said} is older than {newest}, which has bootstrapped this store, cannot be told: that is no release's version"
    )]
    Unordered { said: String, newest: String },
}

/// `v1.36.0+kcp-v0.33.0` is kcp 0.33.0; what was built without its version is none.
fn kcp_of(said: &str) -> Option<Version> {
    let (_, kcp) = said.split_once("+kcp-v")?;
    Version::parse(kcp).ok()
}

/// `newest` is the newest that ever bootstrapped the store, as it calls itself.
pub(crate) fn may_start(said: &str, newest: Option<&str>) -> Result<(), Downgrade> {
    let Some(newest) = newest.filter(|newest| *newest != said) else { return Ok(()) };
    let both = || (said.to_owned(), newest.to_owned());
    match (kcp_of(said), kcp_of(newest)) {
        (Some(one), Some(other)) if one >= other => Ok(()),
        (Some(_), Some(_)) => {
            let (said, newest) = both();
            Err(Downgrade::Older { said, newest })
        }
        // A release on what no release has made: nobody can tell, and forward is the way to go.
        (Some(_), None) => Ok(()),
        (None, _) => {
            let (said, newest) = both();
            Err(Downgrade::Unordered { said, newest })
        }
    }
}

/// The newer of both; what cannot be compared gives way to what can.
pub(crate) fn newer(said: &str, newest: Option<&str>) -> String {
    let is_older = newest.is_some_and(|newest| match (kcp_of(said), kcp_of(newest)) {
        (Some(one), Some(other)) => one < other,
        (None, _) => true,
        (Some(_), None) => false,
    });
    newest.filter(|_| is_older).unwrap_or(said).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNSTAMPED: &str = "v0.0.0-master+$Format:%H$";
    const OLD: &str = "v1.36.0+kcp-v0.33.0";
    const NEW: &str = "v1.36.0+kcp-v0.33.1";
    const NEXT: &str = "v1.37.2+kcp-v0.34.0";

    #[test]
    fn the_same_or_a_newer_one_may_start_and_an_older_one_may_not() {
        for (said, newest) in
            [(OLD, None), (OLD, Some(OLD)), (NEW, Some(OLD)), (NEXT, Some(NEW)), (NEXT, Some(UNSTAMPED))]
        {
            assert_eq!(may_start(said, newest), Ok(()), "{said} on {newest:?}");
        }
        for (said, newest) in [(OLD, NEW), (NEW, NEXT), ("v1.36.0+kcp-v0.33.0-rc.1", OLD)] {
            let error = may_start(said, Some(newest)).unwrap_err();
            assert!(matches!(error, Downgrade::Older { .. }), "{error}");
            assert!(error.to_string().contains(said) && error.to_string().contains(newest), "{error}");
        }
    }

    #[test]
    fn a_build_without_a_version_starts_where_it_or_nobody_was_and_is_not_guessed_about_elsewhere() {
        assert_eq!(may_start(UNSTAMPED, None), Ok(()));
        assert_eq!(may_start(UNSTAMPED, Some(UNSTAMPED)), Ok(()));
        let error = may_start(UNSTAMPED, Some(OLD)).unwrap_err();
        assert!(matches!(error, Downgrade::Unordered { .. }), "{error}");
        assert!(error.to_string().contains("no release's version"), "{error}");
    }

    #[test]
    fn the_newest_is_never_forgotten() {
        assert_eq!(newer(OLD, None), OLD);
        assert_eq!(newer(OLD, Some(NEW)), NEW);
        assert_eq!(newer(NEXT, Some(NEW)), NEXT);
        assert_eq!(newer(UNSTAMPED, Some(NEW)), NEW);
        assert_eq!(newer(NEW, Some(UNSTAMPED)), NEW);
    }
}
