//! One answer to a scrape, family by family.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeMetric, MetricEncoder,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::Figures;

/// A row's labels, by name.
pub type Labels = Vec<(&'static str, String)>;

/// What is written on. Names are whole (`tranche_gpu_used_bytes`), but for the endings that the format itself adds:
/// `_total` to counters, `_info` to infos. A help is a sentence without its full stop.
#[derive(Debug)]
pub struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    /// Figures that go up and down, one for each set of labels.
    ///
    /// # Errors
    /// If the page cannot be written on.
    pub fn gauges<V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (Labels, V)>,
    ) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Gauge)?;
        for (labels, value) in rows {
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// One that goes up and down.
    ///
    /// # Errors
    /// If the page cannot be written on.
    pub fn gauge<V: EncodeGaugeValue>(&mut self, name: &str, help: &str, value: V) -> fmt::Result {
        ConstGauge::new(value).encode(self.family(name, help, MetricType::Gauge)?)
    }

    /// Figures that only grow, one for each set of labels.
    ///
    /// # Errors
    /// If the page cannot be written on.
    pub fn counters<V: EncodeCounterValue>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (Labels, V)>,
    ) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Counter)?;
        for (labels, value) in rows {
            ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// One that only grows.
    ///
    /// # Errors
    /// If the page cannot be written on.
    pub fn counter<V: EncodeCounterValue>(&mut self, name: &str, help: &str, value: V) -> fmt::Result {
        ConstCounter::new(value).encode(self.family(name, help, MetricType::Counter)?)
    }

    /// What is said in labels alone.
    ///
    /// # Errors
    /// If the page cannot be written on.
    pub fn infos(&mut self, name: &str, help: &str, rows: impl IntoIterator<Item = Labels>) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Info)?;
        rows.into_iter().try_for_each(|labels| family.encode_info(&labels))
    }

    /// What is kept beside the picture and counts for itself.
    ///
    /// # Errors
    /// If the page cannot be written on.
    pub fn kept(&mut self, name: &str, help: &str, metric: &impl EncodeMetric) -> fmt::Result {
        metric.encode(self.family(name, help, metric.metric_type())?)
    }

    fn family<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
        kind: MetricType,
    ) -> Result<MetricEncoder<'s>, fmt::Error> {
        self.0.encode_descriptor(name, &format!("{help}."), None, kind)
    }
}

/// A program's figures in the library's terms.
#[derive(Debug)]
struct Scraped(Arc<dyn Figures>);

impl Collector for Scraped {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.write(&mut Page(encoder))
    }
}

/// All figures as they are now, in the OpenMetrics text format.
///
/// # Errors
/// If the program cannot write them.
pub(crate) fn print(figures: &Arc<dyn Figures>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scraped(Arc::clone(figures))));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}
