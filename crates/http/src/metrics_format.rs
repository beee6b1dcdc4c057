//! Metrics in the format that a Prometheus scrape asks for.

use http::header::{ACCEPT, HeaderMap, HeaderValue};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use std::fmt::{self, Write};

static PROMETHEUS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
static OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// The format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text 0.0.4, which every scraper reads.
    Prometheus,
    /// The format `OpenMetrics` 1.0.0.
    OpenMetrics,
}

impl Format {
    /// Returns the format for a request with these headers. Prometheus names `OpenMetrics` in `Accept` only
    /// if it reads it, so the order of preference does not matter.
    pub fn accepted(headers: &HeaderMap) -> Self {
        let mut values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        if values.any(|value| value.split(',').any(is_open_metrics)) {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// Returns the value of `Content-Type`.
    pub fn content_type(self) -> &'static HeaderValue {
        match self {
            Self::Prometheus => &PROMETHEUS,
            Self::OpenMetrics => &OPEN_METRICS,
        }
    }

    /// Encodes the metrics of a registry.
    pub fn encode(self, registry: &Registry) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, registry)?;
        Ok(match self {
            Self::Prometheus => from_open_metrics(&text)?,
            Self::OpenMetrics => text,
        })
    }
}

/// Returns true if a media range of `Accept` means the version that this crate writes, and has no `q=0`.
fn is_open_metrics(range: &str) -> bool {
    let mut parts = range.split(';').map(str::trim);
    let fits = |parameter: &str| match parameter.split_once('=') {
        Some((name, version)) if name.eq_ignore_ascii_case("version") => version.trim_matches('"') == "1.0.0",
        Some((name, q)) if name.eq_ignore_ascii_case("q") => q.parse::<f32>().is_ok_and(|q| q > 0.0),
        _ => true,
    };
    parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/openmetrics-text"))
        && parts.all(fits)
}

/// Converts `OpenMetrics` to Prometheus text 0.0.4, which prometheus-client does not write. The formats differ in the metadata: the older one names a counter with its
/// `_total` and an info with its `_info`, calls the latter a gauge, and has neither units nor an end mark. It
/// has no exemplars either, and no metric of nodegate has one.
fn from_open_metrics(open_metrics: &str) -> Result<String, fmt::Error> {
    let mut out = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            // The name depends on the type, which comes next.
            help = rest.split_once(' ').map(|(_, text)| text);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            if let Some(help) = help.take() {
                writeln!(out, "# HELP {name}{suffix} {help}")?;
            }
            writeln!(out, "# TYPE {name}{suffix} {kind}")?;
        } else if !line.starts_with('#') {
            writeln!(out, "{line}")?;
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_line_is_converted() {
        let open_metrics = "\
# HELP a_requests Requests answered.
# TYPE a_requests counter
a_requests_total{path=\"# TYPE x counter\"} 1
# HELP a_build Build.
# TYPE a_build info
a_build_info{version=\"1\"} 1
# HELP a_age_seconds Age.
# TYPE a_age_seconds gauge
# UNIT a_age_seconds seconds
a_age_seconds 1.5
# HELP a_odd Odd.
# TYPE a_odd unknown
a_odd 1
# HELP a_time Time.
# TYPE a_time histogram
a_time_sum 1.0
# EOF
";
        let prometheus = [
            ("# HELP a_requests ", "# HELP a_requests_total "),
            ("# TYPE a_requests ", "# TYPE a_requests_total "),
            ("# HELP a_build ", "# HELP a_build_info "),
            ("# TYPE a_build info", "# TYPE a_build_info gauge"),
            ("# UNIT a_age_seconds seconds\n", ""),
            ("# TYPE a_odd unknown", "# TYPE a_odd untyped"),
            ("# EOF\n", ""),
        ];
        let prometheus =
            prometheus.iter().fold(open_metrics.to_owned(), |text, (from, to)| text.replace(from, to));
        assert_eq!(from_open_metrics(open_metrics).unwrap(), prometheus);
    }
}
