//! The effective configuration as a file that could be read again, each value with its source.

use super::setting::{Setting, Source};
use super::{ComponentsConfig, Config, FrontConfig, LimitsOf, TermsConfig};
use std::borrow::Cow;
use std::fmt::{self, Display};
use std::path::PathBuf;

/// One key: its value as it would be written, or `None` where nothing is set.
struct Entry<'a> {
    key: Cow<'static, str>,
    value: Option<String>,
    source: &'a Source,
}

/// Sections in the order of the sample file; the first one has no header.
fn sections(config: &Config) -> Vec<(Cow<'static, str>, Vec<Entry<'_>>)> {
    let Config {
        state_dir,
        run_dir,
        user,
        start_concurrency,
        stop_children,
        front,
        metrics,
        ports,
        tenants,
        logs,
        kcp,
        components,
        limits,
        supervision,
    } = config;
    let top = vec![
        path("state_dir", &state_dir.source, Some(&state_dir.value)),
        path("run_dir", &run_dir.source, run_dir.value.as_ref()),
        optional("user", user),
        bare("start_concurrency", start_concurrency),
        bare("stop_children", stop_children),
    ];
    let mut sections = vec![
        ("".into(), top),
        ("front".into(), of_front(front)),
        ("metrics".into(), vec![optional("listen", &metrics.listen)]),
        ("ports".into(), vec![text("range", &ports.range)]),
        (
            "tenants".into(),
            vec![
                bare("first_uid", &tenants.first_uid),
                bare("uids", &tenants.uids),
                optional("disk", &tenants.disk),
            ],
        ),
        ("logs".into(), vec![text("max_size", &logs.max_size), bare("keep", &logs.keep)]),
        (
            "kcp".into(),
            vec![
                bare("enabled", &kcp.enabled),
                text("shutdown_delay", &kcp.shutdown_delay),
                maybe("ports", &kcp.ports),
                text("canary_interval", &kcp.canary_interval),
                text("canary_deadline", &kcp.canary_deadline),
                bare("goaway_chance", &kcp.goaway_chance),
            ],
        ),
        ("components".into(), component_paths(components)),
    ];
    sections.extend(limits.0.iter().map(|limits| (limits_header(&limits.whom).into(), limits_of(limits))));
    sections
        .extend(supervision.0.iter().map(|terms| (format!("supervision.{}", terms.of).into(), of(terms))));
    sections
}

fn of_front(front: &FrontConfig) -> Vec<Entry<'_>> {
    vec![
        text("listen", &front.listen),
        text("drain_limit", &front.drain_limit),
        bare("max_connections", &front.max_connections),
        bare("max_connections_per_peer", &front.max_connections_per_peer),
        bare("max_parked", &front.max_parked),
    ]
}

/// A chain and its component are one key.
fn limits_header(whom: &str) -> String {
    if whom.contains('/') { format!("limits.{}", quoted(whom)) } else { format!("limits.{whom}") }
}

fn limits_of(limits: &LimitsOf) -> Vec<Entry<'_>> {
    let LimitsOf { whom: _, memory, processes, cpu, open_files, core_size } = limits;
    let entry = |key: &'static str, value, source| Entry { key: key.into(), value, source };
    vec![
        entry("memory", memory.value.as_ref().map(quoted), &memory.source),
        entry("processes", processes.value.map(|count| count.to_string()), &processes.source),
        entry("cpu", cpu.value.as_ref().map(quoted), &cpu.source),
        entry("open_files", open_files.value.map(|count| count.to_string()), &open_files.source),
        entry("core_size", core_size.value.as_ref().map(quoted), &core_size.source),
    ]
}

fn of(terms: &TermsConfig) -> Vec<Entry<'_>> {
    let clean = terms.clean_exits.value.as_ref().map(|codes| format!("{codes:?}"));
    let mut entries = vec![
        text("restart", &terms.restart),
        Entry { key: "clean_exits".into(), value: clean, source: &terms.clean_exits.source },
        bare("intensity", &terms.intensity),
        text("window", &terms.window),
        text("base_delay", &terms.base_delay),
        text("max_delay", &terms.max_delay),
        text("healthy_after", &terms.healthy_after),
        text("start_deadline", &terms.start_deadline),
        text("stop_deadline", &terms.stop_deadline),
    ];
    let reactions = terms.ride_through.iter();
    entries.extend(reactions.map(|(earlier, ride)| text(format!("ride_through.{earlier}"), ride)));
    entries
}

fn component_paths(components: &ComponentsConfig) -> Vec<Entry<'_>> {
    [
        ("postgres", &components.postgres),
        ("openbao", &components.openbao),
        ("kine", &components.kine),
        ("kube_apiserver", &components.kube_apiserver),
        ("kube_controller_manager", &components.kube_controller_manager),
        ("kcp", &components.kcp),
        ("k3s", &components.k3s),
        ("ccm", &components.ccm),
    ]
    .map(|(key, setting)| path(key, &setting.source, setting.value.as_ref()))
    .into()
}

fn path<'a>(key: &'static str, source: &'a Source, value: Option<&PathBuf>) -> Entry<'a> {
    Entry { key: key.into(), value: value.map(|path| quoted(path.display())), source }
}

fn maybe<'a, T: Display>(key: &'static str, setting: &'a Setting<Option<T>>) -> Entry<'a> {
    let value = setting.value.as_ref().map(ToString::to_string);
    Entry { key: key.into(), value, source: &setting.source }
}

fn bare<'a, T: Display>(key: &'static str, setting: &'a Setting<T>) -> Entry<'a> {
    Entry { key: key.into(), value: Some(setting.value.to_string()), source: &setting.source }
}

fn text<T: Display>(key: impl Into<Cow<'static, str>>, setting: &Setting<T>) -> Entry<'_> {
    Entry { key: key.into(), value: Some(quoted(&setting.value)), source: &setting.source }
}

fn optional<'a, T: Display>(key: &'static str, setting: &'a Setting<Option<T>>) -> Entry<'a> {
    Entry { key: key.into(), value: setting.value.as_ref().map(quoted), source: &setting.source }
}

fn quoted(value: impl Display) -> String {
    toml::Value::String(value.to_string()).to_string()
}

impl Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (section, entries) in sections(self) {
            if !section.is_empty() {
                writeln!(f, "\n[{section}]")?;
            }
            let written: Vec<_> = entries
                .iter()
                .map(|Entry { key, value, .. }| match value {
                    Some(value) => format!("{key} = {value}"),
                    None => format!("#{key}"),
                })
                .collect();
            let width = written.iter().map(String::len).max().unwrap_or(0);
            for (line, entry) in written.iter().zip(&entries) {
                writeln!(f, "{line:width$}  # {}", entry.source)?;
            }
        }
        Ok(())
    }
}
