//! Text formats of metrics.
//!
//! The library writes OpenMetrics, which Prometheus requests by name. Other clients, such as `curl` and
//! `promtool`, get the older Prometheus text format: the same samples, but with the suffix of a counter as
//! part of its family's name, and without infos and EOF.

use std::borrow::Cow;

/// Text format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricsFormat {
    OpenMetrics,
    Plain,
}

impl MetricsFormat {
    /// Format for an Accept header.
    pub(crate) fn wanted(accept: Option<&str>) -> Self {
        let named = |accept: &str| accept.contains("application/openmetrics-text");
        if accept.is_some_and(named) { Self::OpenMetrics } else { Self::Plain }
    }

    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Converts OpenMetrics into this format.
    pub(crate) fn of(self, open: String) -> String {
        match self {
            Self::OpenMetrics => open,
            Self::Plain => plain(&open),
        }
    }
}

/// Converts to the older format. HELP precedes TYPE but depends on it, so it is held back.
fn plain(open: &str) -> String {
    let (mut text, mut help) = (String::with_capacity(open.len()), None);
    for line in open.lines() {
        if let Some(said) = line.strip_prefix("# HELP ") {
            help = said.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|said| said.split_once(' '))
        {
            let (name, kind) = family(name, kind);
            if let Some((_, help)) = help.take() {
                text.push_str(&format!("# HELP {name} {help}\n"));
            }
            text.push_str(&format!("# TYPE {name} {kind}\n"));
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

fn family<'a>(name: &'a str, kind: &'a str) -> (Cow<'a, str>, &'a str) {
    match kind {
        "counter" => (format!("{name}_total").into(), kind),
        "info" => (format!("{name}_info").into(), "gauge"),
        "unknown" => (name.into(), "untyped"),
        _ => (name.into(), kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_follows_the_accept_header() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.2";
        assert_eq!(MetricsFormat::wanted(Some(prometheus)), MetricsFormat::OpenMetrics);
        assert_eq!(MetricsFormat::wanted(Some("*/*")), MetricsFormat::Plain);
        assert_eq!(MetricsFormat::wanted(None), MetricsFormat::Plain);
    }

    #[test]
    fn older_format_has_the_same_samples() {
        let open = "# HELP a Of a.\n# TYPE a counter\na_total{x=\"# TYPE b info\"} 1\n# HELP b Of b.\n# TYPE b info\n\
                    b_info{v=\"1\"} 1\n# HELP c_bytes Of c.\n# TYPE c_bytes gauge\n# UNIT c_bytes bytes\nc_bytes 5\n# EOF\n";
        let plain = "# HELP a_total Of a.\n# TYPE a_total counter\na_total{x=\"# TYPE b info\"} 1\n# HELP b_info Of b.\n\
                     # TYPE b_info gauge\nb_info{v=\"1\"} 1\n# HELP c_bytes Of c.\n# TYPE c_bytes gauge\nc_bytes 5\n";
        assert_eq!(MetricsFormat::Plain.of(open.into()), plain);
        assert_eq!(MetricsFormat::OpenMetrics.of(open.into()), open);
    }
}
