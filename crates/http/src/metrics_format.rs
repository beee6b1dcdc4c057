//! Metrics in the format that a Prometheus scrape asks for.

use http::header::{ACCEPT, HeaderMap, HeaderValue};
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::registry::Registry;
use std::fmt;

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

    /// Encodes the metrics of all registries, one after the other.
    pub fn encode(self, registries: &[&Registry]) -> Result<String, fmt::Error> {
        let mut text = String::new();
        for registry in registries {
            encode_registry(&mut text, registry)?;
        }
        encode_eof(&mut text)?;
        Ok(match self {
            Self::Prometheus => crate::prometheus_text::from_open_metrics(&text),
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
