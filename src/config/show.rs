//! The effective configuration as a file that could be read again, each value with its source.

use super::setting::{Setting, Source};
use super::{ComponentsConfig, Config};
use std::fmt::{self, Display};
use std::path::PathBuf;

/// One key: its value as it would be written, or `None` where nothing is set.
struct Entry<'a> {
    key: &'static str,
    value: Option<String>,
    source: &'a Source,
}

/// Sections in the order of the sample file; the first one has no header.
fn sections(config: &Config) -> [(&'static str, Vec<Entry<'_>>); 6] {
    let Config {
        state_dir,
        run_dir,
        user,
        start_concurrency,
        stop_children,
        front,
        ports,
        logs,
        kcp,
        components,
    } = config;
    let top = vec![
        path("state_dir", &state_dir.source, Some(&state_dir.value)),
        path("run_dir", &run_dir.source, run_dir.value.as_ref()),
        Entry { key: "user", value: user.value.as_ref().map(quoted), source: &user.source },
        bare("start_concurrency", start_concurrency),
        bare("stop_children", stop_children),
    ];
    [
        ("", top),
        ("front", vec![text("listen", &front.listen), text("drain_limit", &front.drain_limit)]),
        ("ports", vec![text("range", &ports.range)]),
        ("logs", vec![text("max_size", &logs.max_size), bare("keep", &logs.keep)]),
        ("kcp", vec![bare("enabled", &kcp.enabled), text("shutdown_delay", &kcp.shutdown_delay)]),
        ("components", component_paths(components)),
    ]
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
    Entry { key, value: value.map(|path| quoted(path.display())), source }
}

fn bare<'a, T: Display>(key: &'static str, setting: &'a Setting<T>) -> Entry<'a> {
    Entry { key, value: Some(setting.value.to_string()), source: &setting.source }
}

fn text<'a, T: Display>(key: &'static str, setting: &'a Setting<T>) -> Entry<'a> {
    Entry { key, value: Some(quoted(&setting.value)), source: &setting.source }
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
