//! What an operator has to see to, in the tree, and how long kcp's certificate still lasts; nothing where there is nothing.

use super::{Branch, Columns};
use crate::cli::terminal::{Style, Tone, harmless};
use berth_actors::status::{Lifetime, Upkeep};

/// kcp's own certificates in one line. Those of single processes are in the JSON.
fn serving(upkeep: &Upkeep) -> Option<String> {
    let of = |name: &str| upkeep.lifetimes.iter().find(|lifetime| lifetime.of == name);
    let date = |lifetime: &Lifetime| harmless(lifetime.not_after.split('T').next().unwrap_or_default());
    let serving = of("kcp serving")?;
    let end = match serving.left_days {
        left @ 0.. => format!("ends on {}, in {left} days", date(serving)),
        _ => format!("ended on {}", date(serving)),
    };
    let authority = of("kcp authority").map(|authority| format!("; its authority on {}", date(authority)));
    Some(format!(
        "kcp's certificate is {} days old and {end}{}",
        serving.age_days,
        authority.unwrap_or_default()
    ))
}

pub(super) fn branches(upkeep: &Upkeep, columns: &Columns, style: Style) -> Vec<Branch> {
    let head = columns.head("upkeep", style);
    let chosen = upkeep
        .chosen_kcp
        .iter()
        .map(|chosen| format!("kcp {} goes over the configured one: berth kcp upgrade", harmless(chosen)));
    let lasts = serving(upkeep).map(|line| style.paint(Tone::Faint, &line));
    let notices = upkeep.notices.iter().map(|notice| style.paint(Tone::Bad, &harmless(notice)));
    chosen
        .chain(lasts)
        .chain(notices)
        .map(|line| Branch { line: format!("{head}{line}"), ..Branch::default() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifetime(of: &str, until: &str, age_days: i64, left_days: i64) -> Lifetime {
        let (of, not_after) = (of.to_owned(), format!("{until}T06:00:00Z"));
        Lifetime { of, not_before: String::new(), not_after, age_days, left_days }
    }

    #[test]
    fn the_age_and_the_end_of_kcps_certificate_stand_in_one_line_whether_due_or_not() {
        let mut upkeep = Upkeep::default();
        assert_eq!(serving(&upkeep), None);
        upkeep.lifetimes = vec![
            lifetime("kcp serving", "2027-11-30", 12, 353),
            lifetime("kcp authority", "2036-11-28", 12, 3638),
            lifetime("slot-b/kcp", "2027-12-01", 11, 354),
        ];
        assert_eq!(
            serving(&upkeep).unwrap(),
            "kcp's certificate is 12 days old and ends on 2027-11-30, in 353 days; its authority on 2036-11-28"
        );
        upkeep.lifetimes = vec![lifetime("kcp serving", "2026-11-30", 366, -1)];
        assert_eq!(serving(&upkeep).unwrap(), "kcp's certificate is 366 days old and ended on 2026-11-30");
    }
}
