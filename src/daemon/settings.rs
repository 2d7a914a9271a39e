//! What a daemon is started with, from the configuration file (`up`) or the command line (`dev`).

use super::DaemonError;
use crate::assets::Overrides;
use crate::config;
use crate::front::FrontConfig;
use crate::kcp::{GoawayChance, SlotPorts};
use crate::layout::Layout;
use crate::logs::Limits;
use crate::policy::Policies;
use crate::preflight::Account;
use crate::process::ComponentLimits;
use crate::tenant::Accounts;
use berth_actors::canary::Cadence;
use std::net::SocketAddr;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Settings {
    pub layout: Layout,
    pub components: Overrides,
    /// Whom a root daemon runs components as; `None`: `berth` if there is one, else `nobody`.
    pub account: Option<config::Account>,
    pub kcp: bool,
    pub front_listen: SocketAddr,
    /// How many clients the front admits, before the limit of open files has its say.
    pub front: FrontConfig,
    /// Where metrics are served besides the control socket.
    pub metrics_listen: Option<SocketAddr>,
    /// How long a handover's drain may take.
    pub drain_limit: Duration,
    /// kcp's `--shutdown-delay-duration`.
    pub shutdown_delay: Duration,
    /// `None`: the serving slot has no canary.
    pub canary: Option<Cadence>,
    /// Where the slots' kcps listen; `None`: where the kernel puts them.
    pub slot_ports: Option<SlotPorts>,
    /// kcp's `--goaway-chance`.
    pub goaway_chance: GoawayChance,
    /// Whether SIGTERM stops everything, or leaves it to the next daemon.
    pub stop_children: bool,
    /// Tenants that may be starting at the same time.
    pub start_concurrency: usize,
    /// How much of each component's output is kept.
    pub logs: Limits,
    /// What each component may take of the host.
    pub limits: ComponentLimits,
    /// Ports leased to kube-apiservers.
    pub ports: RangeInclusive<u16>,
    /// Leased to clusters where the daemon is root; none: they share the account.
    pub uids: Range<u32>,
    /// Bytes on disk beyond which a cluster is remarked on.
    pub tenant_disk: Option<u64>,
    /// How each component starts, stops and comes back.
    pub policies: Policies,
}

/// Who the components and the daemon are, by name. Blocking.
pub(super) fn accounts(components: Option<&Account>) -> Result<Accounts, DaemonError> {
    let uid = rustix::process::geteuid().as_raw();
    let passwd = crate::files::trusted::text("/etc/passwd").unwrap_or_default();
    let daemon = name_of(uid, &passwd).ok_or(DaemonError::NamelessAccount { uid })?.to_owned();
    Ok(match components {
        Some(account) => {
            Accounts { owner: Some(account.user), component: account.name.clone(), daemon, maker: None }
        }
        None => Accounts { owner: None, component: daemon.clone(), daemon, maker: None },
    })
}

fn name_of(uid: u32, passwd: &str) -> Option<&str> {
    let uid = uid.to_string();
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_by_its_uid() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nberth:x:998:998::/:/usr/sbin/nologin\n";
        assert_eq!(name_of(998, passwd), Some("berth"));
        assert_eq!(name_of(99, passwd), None);
    }
}
