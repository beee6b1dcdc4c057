//! Gauges that are computed when they are scraped.

use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeLabel};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use std::fmt;
use std::time::Duration;

/// Encodes a gauge that is computed at the scrape, with these series. Each has labels, or is [`alone`].
pub fn gauge<L: EncodeLabel, V: EncodeGaugeValue, const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: impl IntoIterator<Item = ([L; N], V)>,
) -> fmt::Result {
    gauge_in(encoder, name, help, None, series)
}

/// Encodes a gauge in seconds, whose name ends with its unit, from milliseconds.
pub fn seconds<L: EncodeLabel, const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: impl IntoIterator<Item = ([L; N], u64)>,
) -> fmt::Result {
    let series = series.into_iter().map(|(labels, ms)| (labels, Duration::from_millis(ms).as_secs_f64()));
    gauge_in(encoder, name, help, Some(&Unit::Seconds), series)
}

fn gauge_in<L: EncodeLabel, V: EncodeGaugeValue, const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    series: impl IntoIterator<Item = ([L; N], V)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
    for (labels, value) in series {
        if N == 0 {
            family.encode_gauge(&value)?;
        } else {
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
    }
    Ok(())
}

/// Returns a value without labels.
pub fn alone<V>(value: V) -> ([(&'static str, &'static str); 0], V) {
    ([], value)
}
