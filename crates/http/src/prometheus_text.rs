//! Converts `OpenMetrics` to Prometheus text 0.0.4, which prometheus-client does not write.

/// Converts an exposition. The formats differ in the metadata: the older one names a counter with its
/// `_total` and an info with its `_info`, calls the latter a gauge, and has neither units nor an end mark. It
/// has no exemplars either, and no metric of nodegate has one.
pub(crate) fn from_open_metrics(open_metrics: &str) -> String {
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
                push(&mut out, &["# HELP ", name, suffix, " ", help]);
            }
            push(&mut out, &["# TYPE ", name, suffix, " ", kind]);
        } else if !line.starts_with('#') {
            push(&mut out, &[line]);
        }
    }
    out
}

fn push(out: &mut String, parts: &[&str]) {
    out.extend(parts.iter().copied());
    out.push('\n');
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
        let prometheus = "\
# HELP a_requests_total Requests answered.
# TYPE a_requests_total counter
a_requests_total{path=\"# TYPE x counter\"} 1
# HELP a_build_info Build.
# TYPE a_build_info gauge
a_build_info{version=\"1\"} 1
# HELP a_age_seconds Age.
# TYPE a_age_seconds gauge
a_age_seconds 1.5
# HELP a_odd Odd.
# TYPE a_odd untyped
a_odd 1
# HELP a_time Time.
# TYPE a_time histogram
a_time_sum 1.0
";
        assert_eq!(from_open_metrics(open_metrics), prometheus);
    }
}
