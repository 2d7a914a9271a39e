//! What an operator has to see to while everything runs: certificates that end, and API servers that have run for too long
//! (K10). Shown in the status, and told once a day as an event.

use crate::control::ClusterFiles;
use crate::files;
use crate::kcp::material::{CERTIFICATE, expiry_of};
use crate::kcp::{KcpConfig, defaults, lifetimes};
use crate::process::age_of;
use berth_actors::message::{Command, Reply, TreeEvent};
use berth_actors::status::{ChainStatus, ChildStatus, TreeStatus, Upkeep};
use std::sync::Arc;
use std::time::Duration;
use time::OffsetDateTime;
use tokio::sync::broadcast;

/// Between two looks: what is looked for takes days.
const LOOK: Duration = Duration::from_hours(1);

/// Those whose certificate for themselves lives as long as they do, and no longer than a year.
const API_SERVERS: [&str; 3] = ["kcp", "kube-apiserver", "k3s"];

/// Blocking.
pub fn of(config: &KcpConfig, status: &TreeStatus) -> Upkeep {
    let mut notices = Vec::new();
    let read = files::read_optional(&config.layout.kcp_shared().join(CERTIFICATE)).ok().flatten();
    if let Some(ends) = read.and_then(|pem| expiry_of(&pem)) {
        notices.extend(certificate(ends, crate::clock::now()));
    }
    let chains = status.slots.iter().chain(&status.tenants);
    let servers = chains.flat_map(|chain| chain.children.iter().map(move |child| (chain, child)));
    notices.extend(servers.filter_map(|(chain, child)| loopback(chain, child, age_of(child.pid?)?)));
    let chosen = config.releases.chosen();
    Upkeep {
        chosen_kcp: chosen.map(|chosen| format!("{} ({})", chosen.version, chosen.program.display())),
        newest_kcp: config.releases.newest(),
        lifetimes: lifetimes::of(&config.layout, status, crate::clock::now()),
        notices,
    }
}

fn certificate(ends: OffsetDateTime, now: OffsetDateTime) -> Option<String> {
    let (left, date) = (ends - now, ends.date());
    if left <= time::Duration::ZERO {
        return Some(format!("kcp's certificate has expired on {date}: `berth kcp rotate-certs` renews it"));
    }
    (left < defaults::EXPIRY_NOTICE).then(|| {
        let days = left.whole_days();
        format!("kcp's certificate expires on {date}, in {days} days: `berth kcp rotate-certs` renews it")
    })
}

/// A stand-in for kcp makes no such certificate.
pub(super) fn is_api_server(child: &ChildStatus) -> bool {
    API_SERVERS.contains(&child.name.as_str()) && !(child.stand_in.is_some() && child.name == "kcp")
}

fn loopback(chain: &ChainStatus, child: &ChildStatus, age: Duration) -> Option<String> {
    if !is_api_server(child) {
        return None;
    }
    let left = defaults::LOOPBACK_LIFETIME.saturating_sub(age);
    let cure = if child.name == "kcp" {
        "berth kcp handover".to_owned()
    } else {
        format!("berth cluster restart {}", chain.name)
    };
    (left < defaults::EXPIRY_NOTICE).then(|| {
        format!(
            "{}/{} has run for {} days, and its certificate for itself ends 365 days after its start: `{cure}` in the next {} days",
            chain.name,
            child.name,
            age.as_secs() / 86_400,
            left.as_secs() / 86_400
        )
    })
}

/// Tells of every notice once a day. Never resolves.
pub async fn tell(
    files: Arc<dyn ClusterFiles>,
    tree: actix::Recipient<Command>,
    events: broadcast::Sender<TreeEvent>,
) {
    let mut told: Option<tokio::time::Instant> = None;
    loop {
        tokio::time::sleep(LOOK).await;
        if told.is_some_and(|at| at.elapsed() < defaults::EXPIRY_TOLD_EVERY) {
            continue;
        }
        let Ok(Ok(Reply::Status(status))) = tree.send(Command::Status).await else { continue };
        let Some(upkeep) = files.upkeep(&status).await else { continue };
        for notice in &upkeep.notices {
            tracing::warn!("{notice}");
            // No subscriber is not an error.
            let _ = events.send(TreeEvent { subject: "upkeep".to_owned(), what: notice.clone() });
            told = Some(tokio::time::Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fixture;
    use berth_actors::status::ChainState;

    const DAY: Duration = Duration::from_hours(24);

    #[test]
    fn a_certificate_is_spoken_of_thirty_days_before_its_end_and_after_it() {
        let now = OffsetDateTime::from_unix_timestamp(1_796_000_000).unwrap();
        assert_eq!(certificate(now + time::Duration::days(31), now), None);
        let soon = certificate(now + time::Duration::days(29), now).unwrap();
        assert!(soon.contains("in 29 days") && soon.contains("rotate-certs"), "{soon}");
        assert!(certificate(now - time::Duration::days(1), now).unwrap().contains("has expired on"));
    }

    #[test]
    fn an_api_server_that_has_run_for_eleven_months_is_to_be_restarted() {
        let child = |name: &str| fixture::ready(name, 1, None, 0);
        let chain = ChainStatus {
            name: "demo".into(),
            state: ChainState::Ready,
            reason: None,
            paused: None,
            children: Vec::new(),
        };
        assert_eq!(loopback(&chain, &child("kube-apiserver"), 300 * DAY), None);
        assert_eq!(loopback(&chain, &child("kine"), 360 * DAY), None);
        let old = loopback(&chain, &child("kube-apiserver"), 340 * DAY).unwrap();
        assert!(old.contains("has run for 340 days") && old.contains("berth cluster restart demo"), "{old}");
        let kcp = loopback(&chain, &child("kcp"), 400 * DAY).unwrap();
        assert!(kcp.contains("berth kcp handover"), "{kcp}");
    }
}
