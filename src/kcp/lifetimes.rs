//! How old the certificates of the API servers are, and when they end (K10): kcp's, which both slots serve with, and the one that
//! every API server makes for itself when it starts. The status shows them at all times; [`super::upkeep`] complains when one is due.
//!
//! Blocking.

use super::authority;
use super::defaults::LOOPBACK_LIFETIME;
use super::material::{CERTIFICATE, validities_of};
use super::renewal::Places;
use super::upkeep::is_api_server;
use crate::files;
use crate::layout::Layout;
use crate::process::age_of;
use berth_actors::status::{Lifetime, TreeStatus};
use std::path::Path;
use std::time::Duration;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

pub(super) fn of(layout: &Layout, status: &TreeStatus, now: OffsetDateTime) -> Vec<Lifetime> {
    let mut all = kcps(layout, now);
    for chain in status.slots.iter().chain(&status.tenants) {
        for child in chain.children.iter().filter(|child| is_api_server(child)) {
            let age = child.pid.and_then(age_of);
            all.extend(age.map(|age| own(&format!("{}/{}", chain.name, child.name), age, now)));
        }
    }
    all
}

/// The leaf that kcp serves with, what signed it, and the authority that will sign the next one.
fn kcps(layout: &Layout, now: OffsetDateTime) -> Vec<Lifetime> {
    let places = Places::new(layout);
    // What cannot be read is reported by whoever needs it.
    let read = |path: &Path| files::read_optional(path).ok().flatten().unwrap_or_default();
    let (serving, next) = (
        validities_of(&read(&places.shared.join(CERTIFICATE))),
        validities_of(&read(&authority::certificate(&places.authority))),
    );
    let signed_it = serving.get(1).copied();
    let named = ["kcp serving", "kcp authority"].into_iter().zip(serving);
    let to_come = next
        .into_iter()
        .take(1)
        .filter(|next| Some(*next) != signed_it)
        .map(|next| ("kcp next authority", next));
    named.chain(to_come).map(|(of, (from, until))| lifetime(of, from, until, now)).collect()
}

/// The one of a process that has run for so long.
fn own(of: &str, age: Duration, now: OffsetDateTime) -> Lifetime {
    let from = now - age;
    lifetime(of, from, from + LOOPBACK_LIFETIME, now)
}

fn lifetime(of: &str, from: OffsetDateTime, until: OffsetDateTime, now: OffsetDateTime) -> Lifetime {
    // It cannot fail for a date within the next eight thousand years.
    let written =
        |at: OffsetDateTime| at.replace_nanosecond(0).unwrap_or(at).format(&Rfc3339).unwrap_or_default();
    Lifetime {
        of: of.to_owned(),
        not_before: written(from),
        not_after: written(until),
        age_days: days(now - from),
        left_days: days(until - now),
    }
}

/// Whole ones that have passed; of what has ended a moment ago, one less than none.
fn days(time: time::Duration) -> i64 {
    time.whole_seconds().div_euclid(24 * 60 * 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kcp::fixture::Fixture;

    const DAY: time::Duration = time::Duration::days(1);

    fn told(layout: &Layout, now: OffsetDateTime) -> Vec<(String, i64, i64)> {
        let all = of(layout, &TreeStatus::default(), now).into_iter();
        all.map(|lifetime| (lifetime.of, lifetime.age_days, lifetime.left_days)).collect()
    }

    #[test]
    fn the_serving_certificate_is_told_long_before_and_after_its_end_and_the_authority_once_there_is_one() {
        let state = tempfile::tempdir().unwrap();
        let layout = Layout::new(state.path().to_owned(), None);
        let now = crate::clock::now();
        assert_eq!(told(&layout, now), [], "nothing before the first slot");

        Fixture::expiring(now + DAY * 300 + DAY / 2).write(&layout.kcp_shared());
        let of_serving = |now| {
            let all = told(&layout, now);
            (all[0].0.clone(), all[0].2)
        };
        assert_eq!(of_serving(now), ("kcp serving".to_owned(), 300));
        assert_eq!(of_serving(now + DAY * 301), ("kcp serving".to_owned(), -1));
        assert_eq!(of_serving(now + DAY * 310), ("kcp serving".to_owned(), -10));

        let places = Places::new(&layout);
        authority::prepare(&places.authority, now).unwrap();
        let last = told(&layout, now + DAY / 2).pop().unwrap();
        assert_eq!(last, ("kcp next authority".to_owned(), 0, 3649));
        places.renew(berth_actors::identity::SlotName::B, now).unwrap();
        places.promote(berth_actors::identity::SlotName::B).unwrap();
        let rotated = told(&layout, now + DAY * 3 / 2);
        let expected = [("kcp serving", 1, 363), ("kcp authority", 1, 3648)];
        assert_eq!(rotated, expected.map(|(of, age, left)| (of.to_owned(), age, left)));
    }

    #[test]
    fn what_an_api_server_made_for_itself_ends_a_year_after_its_start() {
        let now = OffsetDateTime::from_unix_timestamp(1_796_000_000).unwrap();
        let lifetime = own("demo/kube-apiserver", Duration::from_hours(24 * 100), now);
        assert_eq!((lifetime.age_days, lifetime.left_days), (100, 265));
        assert_eq!(lifetime.not_after, "2027-08-22T00:53:20Z");
    }
}
