//! `berth up`: the daemon in the foreground, from a configuration file, until SIGTERM, Ctrl-C, `berth down` or
//! `berth upgrade`.

use super::{Daemon, DaemonError, Ending, Settings, in_runtime, interrupted, stop_signal, systemd};
use crate::assets;
use crate::assets::progress;
use crate::cli::{Place, Up};
use crate::config::{Config, Surroundings};
use crate::kcp::SlotPorts;
use crate::layout::Layout;
use crate::logs::Limits;
use berth_actors::canary::Cadence;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

/// The whole life, top to bottom.
pub fn up(place: &Place, up: &Up) -> ExitCode {
    let settings = match settings(place, up) {
        Ok(settings) => settings,
        Err(error) => return super::refuse(&error),
    };
    super::log_to_stderr("info");
    let (stop_children, layout, checks) = (settings.stop_children, settings.layout.clone(), checks(up));
    in_runtime(async move {
        let (progress, asked) = (progress::for_stderr(), stop_signal()?);
        let daemon = tokio::select! {
            started = Daemon::start(settings, &*progress) => started?,
            () = asked.cancelled() => return interrupted(layout, stop_children).await,
            // The watchdog watches a successor from its first moment.
            () = systemd::stay_alive() => return Ok(()),
        };
        tokio::select! {
            up = daemon.up() => up?,
            // The end that follows waits for what was begun.
            () = asked.cancelled() => {}
            () = systemd::stay_alive() => {}
        }
        systemd::ready();
        let ending = tokio::select! {
            () = asked.cancelled() => if stop_children { Ending::Stop } else { Ending::Leave },
            () = daemon.down() => Ending::Stop,
            program = daemon.upgrade_asked(&checks) => Ending::Upgrade(program),
            () = systemd::stay_alive() => Ending::Stop,
        };
        match &ending {
            Ending::Upgrade(_) => systemd::reloading(),
            Ending::Stop | Ending::Leave => systemd::stopping(),
        }
        tokio::select! {
            ended = daemon.end(ending, &asked, stop_children) => ended,
            () = systemd::stay_alive() => Ok(()),
        }
    })
}

/// What a successor is asked to understand before it takes over.
fn checks(up: &Up) -> Vec<Vec<OsString>> {
    let config = up.config.as_ref().map(|config| vec!["--config".into(), config.into()]);
    vec![["config".into(), "show".into()].into_iter().chain(config.into_iter().flatten()).collect()]
}

pub(super) fn cadence(interval: Duration, deadline: Duration) -> Option<Cadence> {
    (!interval.is_zero()).then_some(Cadence { interval, deadline })
}

fn settings(place: &Place, up: &Up) -> Result<Settings, DaemonError> {
    let overrides = place.overrides().map_err(DaemonError::CurrentDir)?;
    let config = Config::load(up.config.as_deref(), &overrides, &Surroundings::read())?;
    let components = config.components;
    Ok(Settings {
        layout: Layout::new(config.state_dir.value, config.run_dir.value),
        components: assets::Overrides {
            components_dir: None,
            postgres: components.postgres.value,
            openbao: components.openbao.value,
            kine: components.kine.value,
            kube_apiserver: components.kube_apiserver.value,
            kube_controller_manager: components.kube_controller_manager.value,
            kcp: components.kcp.value,
            k3s: components.k3s.value,
            ccm: components.ccm.value,
        },
        account: config.user.value,
        kcp: config.kcp.enabled.value,
        front: config.front.caps(),
        front_listen: config.front.listen.value,
        metrics_listen: config.metrics.listen.value,
        drain_limit: config.front.drain_limit.value.0,
        shutdown_delay: config.kcp.shutdown_delay.value.0,
        canary: cadence(config.kcp.canary_interval.value.0, config.kcp.canary_deadline.value.0),
        slot_ports: config.kcp.ports.value.map(|ports| SlotPorts { a: ports.a, b: ports.b }),
        goaway_chance: config.kcp.goaway_chance.value,
        stop_children: config.stop_children.value,
        start_concurrency: config.start_concurrency.value,
        logs: Limits { max_size: config.logs.max_size.value.0, keep: config.logs.keep.value },
        limits: config.limits.of_components(),
        ports: config.ports.range.value.ports(),
        uids: config.tenants.range(),
        tenant_disk: config.tenants.disk.value.map(|size| size.0),
        policies: config.supervision.policies(),
    })
}
