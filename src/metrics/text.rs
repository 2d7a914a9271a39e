//! The text of a scrape: each metric with its help, also where it has no sample just now, so that a query never meets an unknown name.

use super::catalogue::{ALL, Kind, Metric};
use super::figures::{Sample, Value};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;

#[derive(Debug)]
struct Scrape(Vec<Sample>);

pub(super) fn exposition(samples: Vec<Sample>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape(samples)));
    let mut text = String::new();
    // Writing into a string does not fail.
    let _ = prometheus_text::encode(&mut text, &registry);
    text
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in ALL {
            let Metric { name, kind, unit, help } = metric;
            let kind = match kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
            };
            let mut family = encoder.encode_descriptor(name, help, *unit, kind)?;
            for sample in self.0.iter().filter(|sample| std::ptr::eq(sample.metric, *metric)) {
                if sample.labels.is_empty() {
                    encode(sample, &mut family)?;
                } else {
                    encode(sample, &mut family.encode_family(&sample.labels)?)?;
                }
            }
        }
        Ok(())
    }
}

fn encode(sample: &Sample, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
    match (sample.metric.kind, sample.value) {
        (Kind::Counter, Value::Whole(value)) => encoder.encode_counter::<NoLabelSet, _, u64>(&value, None),
        (Kind::Counter, Value::Real(value)) => encoder.encode_counter::<NoLabelSet, _, u64>(&value, None),
        (Kind::Gauge, Value::Whole(value)) => encoder.encode_gauge(&value),
        (Kind::Gauge, Value::Real(value)) => encoder.encode_gauge(&value),
    }
}
