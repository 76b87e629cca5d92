//! A page of metrics, family by family.

use std::fmt;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeMetric, MetricEncoder,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Labels of a sample, with names.
pub type Labels = Vec<(&'static str, String)>;

/// Writer of metrics. Names are complete (`tranche_gpu_used_bytes`), except for the suffixes that the format
/// adds: `_total` of counters, `_info` of infos. Help texts are sentences without a full stop.
#[derive(Debug)]
pub struct MetricsPage<'a>(pub(crate) DescriptorEncoder<'a>);

impl MetricsPage<'_> {
    /// Gauges with labels.
    ///
    /// # Errors
    /// If writing fails.
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

    /// A gauge without labels.
    ///
    /// # Errors
    /// If writing fails.
    pub fn gauge<V: EncodeGaugeValue>(&mut self, name: &str, help: &str, value: V) -> fmt::Result {
        ConstGauge::new(value).encode(self.family(name, help, MetricType::Gauge)?)
    }

    /// Counters with labels.
    ///
    /// # Errors
    /// If writing fails.
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

    /// A counter without labels.
    ///
    /// # Errors
    /// If writing fails.
    pub fn counter<V: EncodeCounterValue>(&mut self, name: &str, help: &str, value: V) -> fmt::Result {
        ConstCounter::new(value).encode(self.family(name, help, MetricType::Counter)?)
    }

    /// Infos, which consist of labels only.
    ///
    /// # Errors
    /// If writing fails.
    pub fn infos(&mut self, name: &str, help: &str, rows: impl IntoIterator<Item = Labels>) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Info)?;
        rows.into_iter().try_for_each(|labels| family.encode_info(&labels))
    }

    /// The version of the program, an info.
    ///
    /// # Errors
    /// If writing fails.
    pub fn build(&mut self, name: &str, help: &str) -> fmt::Result {
        self.infos(name, help, [vec![("version", env!("CARGO_PKG_VERSION").into())]])
    }

    /// A metric object of the library.
    ///
    /// # Errors
    /// If writing fails.
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
