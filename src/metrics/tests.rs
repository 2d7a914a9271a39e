//! The exposition as a scraper reads it, and as the documentation lists it.

use super::host::{Host, Own};
use super::{CONTENT_TYPE, MetricsServer, figures, text};
use crate::cli::fixture::{handover, healthy, troubled};
use crate::process::Held;
use actix::{Actor, Context, Handler};
use berth_actors::host::DrainReport;
use berth_actors::message::{Command, Refusal, Reply};
use berth_actors::status::{HandoverOutcome, Refused, TreeStatus};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

const OPERATIONS: &str = include_str!("../../docs/operations.md");

/// An exposition, read as strictly as Prometheus reads it.
#[derive(Debug, Default)]
struct Read {
    kinds: BTreeMap<String, String>,
    /// By the whole series, labels included.
    samples: BTreeMap<String, f64>,
}

fn read(text: &str) -> Read {
    let mut read = Read::default();
    let mut family = String::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect(line);
            assert!(help.ends_with('.'), "{line}");
            name.clone_into(&mut family);
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect(line);
            assert_eq!(name, family, "TYPE follows its HELP");
            assert!(read.kinds.insert(family.clone(), kind.to_owned()).is_none(), "{line} twice");
        } else {
            let (series, value) = line.rsplit_once(' ').expect(line);
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            assert_eq!(name, family, "a sample stands with its family: {line}");
            labels_are_sound(labels.strip_suffix('}').expect(line));
            let value = value.parse().expect(line);
            assert!(read.samples.insert(series.to_owned(), value).is_none(), "{line} twice");
        }
    }
    read
}

fn labels_are_sound(labels: &str) {
    for label in labels.split_terminator("\",") {
        let (name, value) = label.split_once("=\"").expect(label);
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{label}");
        assert!(!value.contains('\n'), "{label}");
    }
}

fn documented() -> BTreeMap<String, String> {
    let rows =
        OPERATIONS.lines().filter(|line| line.starts_with("| `berth_") || line.starts_with("| `process_"));
    rows.map(|row| {
        let mut cells = row.split('|').skip(1).map(str::trim);
        let name = cells.next().unwrap().trim_matches('`').to_owned();
        (name, cells.next().unwrap().to_owned())
    })
    .collect()
}

fn scraped() -> Read {
    let mut status = troubled();
    status.handovers.count(&handover(HandoverOutcome::Done, &[("staged", 12), ("drained", 2500)]));
    status.handovers.count(&handover(HandoverOutcome::RolledBack("no".to_owned()), &[("staged", 8)]));
    status.handovers.count(&handover(HandoverOutcome::Done, &[("staged", 8)]));
    let slot = &mut status.front.per_slot[0];
    (slot.drains, slot.drained) =
        (2, DrainReport { held: 7, idle: 3, raced: 1, took_ms: 4250, ..DrainReport::default() });
    status.front.refused_by = Refused { peer_cap: 9, ..Refused::default() };
    let own = Own {
        resident: 40 << 20,
        cpu: Duration::from_millis(1500),
        started: Duration::from_secs(1_700_000_000),
        open_files: 77,
        most_files: 20_000,
        threads: 5,
    };
    let held = [(4713, Held { resident: 1 << 30, processes: 2 })].into();
    let host = Host { held, own: Some(own) };
    read(&text::exposition(figures::of(&status, &host)))
}

#[test]
fn the_documentation_lists_every_metric_with_its_kind_and_none_besides() {
    assert_eq!(scraped().kinds, documented());
    let idle = read(&text::exposition(figures::of(&TreeStatus::default(), &Host::default())));
    assert_eq!(idle.kinds, documented(), "also while there is nothing to tell");
}

#[test]
fn every_metric_has_a_sample_once_there_is_something_to_tell() {
    let read = scraped();
    let with_samples: BTreeSet<&str> =
        read.samples.keys().map(|series| series.split('{').next().unwrap()).collect();
    assert_eq!(with_samples, read.kinds.keys().map(String::as_str).collect());
}

#[test]
fn names_end_as_prometheus_wants_them() {
    for (name, kind) in &scraped().kinds {
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
        assert!(!["_ms", "_kb", "_mib", "_count"].iter().any(|end| name.contains(end)), "{name}");
    }
}

#[test]
fn the_figures_are_those_of_the_tree_in_base_units() {
    let samples = scraped().samples;
    for (series, value) in [
        (r#"berth_component_restarts_total{chain="demo",component="kine"}"#, 2.0),
        (r#"berth_component_ready{chain="demo",component="kine"}"#, 0.0),
        (r#"berth_chain_ready{chain="slot-a"}"#, 1.0),
        (r#"berth_component_start_duration_seconds{chain="slot-a",component="kcp"}"#, 1.234),
        (r#"berth_component_resident_memory_bytes{chain="slot-a",component="kcp"}"#, 1_073_741_824.0),
        (r#"berth_component_processes{chain="slot-a",component="kcp"}"#, 2.0),
        (r#"berth_handovers_total{outcome="done"}"#, 2.0),
        (r#"berth_handover_phase_seconds_total{outcome="done",phase="staged"}"#, 0.02),
        (r#"berth_handover_phase_seconds_total{outcome="rolled_back",phase="staged"}"#, 0.008),
        (r#"berth_front_refused_connections_total{reason="peer_cap"}"#, 9.0),
        ("berth_front_parked_connections", 2.0),
        (r#"berth_front_max_connections{limit="peer"}"#, 7500.0),
        (r#"berth_front_slot_traffic_bytes_total{slot="a",direction="out"}"#, 12_000_000.0),
        (r#"berth_front_slot_draining_connections{slot="a"}"#, 3.0),
        (r#"berth_front_slot_drain_seconds_total{slot="a"}"#, 4.25),
        (r#"berth_front_slot_drained_connections_total{slot="a",how="held"}"#, 7.0),
        ("process_open_fds", 77.0),
        ("process_cpu_seconds_total", 1.5),
        ("process_start_time_seconds", 1_700_000_000.0),
    ] {
        let got = samples.get(series).copied();
        assert!(got.is_some_and(|got| (got - value).abs() < 1e-9), "{series}: {got:?}, not {value}");
    }
}

struct Healthy;

impl Actor for Healthy {
    type Context = Context<Self>;
}

impl Handler<Command> for Healthy {
    type Result = Result<Reply, Refusal>;
    fn handle(&mut self, _: Command, _: &mut Self::Context) -> Self::Result {
        Ok(Reply::Status(Box::new(healthy())))
    }
}

#[actix::test]
async fn the_metrics_address_serves_metrics_and_nothing_else() {
    let server = MetricsServer::bind(([127, 0, 0, 1], 0).into(), Healthy.start().recipient()).await.unwrap();
    let (address, shutdown) = (server.address().unwrap(), CancellationToken::new());
    let serving = tokio::spawn(server.serve(shutdown.clone()));
    let get = async |path: &str| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = get("/metrics").await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200") && head.contains(CONTENT_TYPE), "{head}");
    assert_eq!(read(body).kinds, documented());
    for path in ["/", "/v1/status", "/v1/down"] {
        assert!(get(path).await.starts_with("HTTP/1.1 404"), "{path}");
    }
    shutdown.cancel();
    serving.await.unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}
