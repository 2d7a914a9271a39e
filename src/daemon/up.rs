//! `berth up`: the daemon in the foreground, from a configuration file, until SIGTERM, Ctrl-C or `berth down`.

use super::{Daemon, DaemonError, Settings, in_runtime, stop_signal, systemd};
use crate::assets;
use crate::assets::progress;
use crate::cli::{Place, Up};
use crate::config::{Config, Surroundings};
use crate::layout::Layout;
use std::process::ExitCode;

/// The whole life, top to bottom.
pub fn up(place: &Place, up: &Up) -> ExitCode {
    let settings = match settings(place, up) {
        Ok(settings) => settings,
        Err(error) => return super::refuse(&error),
    };
    super::log_to_stderr();
    in_runtime(async move {
        let (progress, asked) = (progress::for_stderr(), stop_signal()?);
        let daemon = tokio::select! {
            started = Daemon::start(settings, &*progress) => started?,
            () = asked.cancelled() => return Err(DaemonError::Interrupted),
        };
        systemd::ready();
        tokio::select! {
            () = asked.cancelled() => {}
            () = daemon.down() => {}
            () = systemd::stay_alive() => {}
        }
        systemd::stopping();
        tokio::select! {
            stopped = daemon.stop() => stopped,
            () = systemd::stay_alive() => Ok(()),
        }
    })
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
        front_listen: config.front.listen.value,
        drain_limit: config.front.drain_limit.value.0,
        shutdown_delay: config.kcp.shutdown_delay.value.0,
        start_concurrency: config.start_concurrency.value,
        ports: config.ports.range.value.ports(),
        policies: config.supervision.policies(),
    })
}
