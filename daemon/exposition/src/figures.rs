//! The source of metrics and probes, and its metrics as text.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

use crate::page::MetricsPage;

/// Source of metrics and probes. Each call may block for as long as reading the program's state takes.
pub trait Figures: fmt::Debug + Send + Sync + 'static {
    /// Writes all metrics.
    ///
    /// # Errors
    /// If writing to the page fails.
    fn write(&self, page: &mut MetricsPage<'_>) -> fmt::Result;

    /// Liveness; an error is a reason to restart the program.
    ///
    /// # Errors
    /// The reason, as text.
    fn alive(&self) -> Result<(), String>;

    /// A remark on a live program.
    fn remark(&self) -> Option<String> {
        None
    }

    /// Readiness.
    ///
    /// # Errors
    /// The awaited condition, as text.
    fn ready(&self) -> Result<(), String>;
}

/// Adapter to the library's collector.
#[derive(Debug)]
struct Scraped(Arc<dyn Figures>);

impl Collector for Scraped {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.write(&mut MetricsPage(encoder))
    }
}

/// All metrics in the OpenMetrics text format.
///
/// # Errors
/// If writing them fails.
pub(crate) fn print(figures: &Arc<dyn Figures>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scraped(Arc::clone(figures))));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}
