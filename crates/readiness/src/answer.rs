//! The answer to `/health`. It is rendered when the state changes; a request only picks it.

use crate::check::{CheckReport, Verdict, verdict};
use crate::moment::Moment;
use crate::reason::Reason;
use bytes::Bytes;
use serde::Serialize;
use std::time::Duration;

/// A rendered answer to a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status code.
    pub status: u16,
    /// The body in JSON.
    pub body: Bytes,
    /// The verdict in the body, or `None` if nodegate is misconfigured and has none.
    pub verdict: Option<Verdict>,
    /// True if the verdict is better than that of the last known facts, because these are stale.
    pub fails_open: bool,
}

/// The two answers that hold until the next change of state: one for a fresh cache, one for a stale cache.
/// The freshness at the moment of the request decides between them, so no timer has to fire.
#[derive(Clone, Debug)]
pub struct Answer {
    /// While the cache is fresh.
    pub fresh: Reply,
    /// While the cache is stale.
    pub stale: Reply,
    /// The time from which neither may be given; `None` if they do not expire by time alone. They expire when
    /// the result of a local check in them is too old, or when the node leaves the pool although its kubelet
    /// answers.
    pub expires: Option<Moment>,
}

impl Answer {
    /// Renders the reports of the same checks, for a fresh and for a stale cache. `drain` is the status for a
    /// draining node if the caller opted in to the third state.
    pub fn render(fresh: &[CheckReport], stale: &[CheckReport], drain: Option<u16>) -> Self {
        let fails_open = verdict(stale) < verdict(fresh);
        Self {
            fresh: Reply::render(fresh, drain),
            stale: Reply { fails_open, ..Reply::render(stale, drain) },
            expires: fresh.iter().filter_map(|report| report.expires).min(),
        }
    }

    /// Returns the answer for a stale cache if `stale` is true, else the one for a fresh cache.
    pub fn pick(&self, stale: bool) -> &Reply {
        if stale { &self.stale } else { &self.fresh }
    }
}

#[derive(Serialize)]
struct Body<'a> {
    status: &'a str,
    checks: Vec<CheckBody<'a>>,
    total_duration_ms: u128,
}

#[derive(Serialize)]
struct CheckBody<'a> {
    name: &'a str,
    passed: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    kept: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stale: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unconfirmed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    duration_ms: u128,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    status: &'a str,
    error: &'a str,
}

impl Reply {
    /// Renders reports. `drain` is the status for a draining node if the caller opted in to the third state.
    pub fn render(reports: &[CheckReport], drain: Option<u16>) -> Self {
        let verdict = verdict(reports);
        let (status, word) = match (verdict, drain) {
            (Verdict::Ready, _) => (200, "ready"),
            (Verdict::Draining, Some(code)) => (code, "draining"),
            (Verdict::Draining | Verdict::NotReady, _) => (503, "not-ready"),
        };
        let checks = reports.iter().map(CheckBody::new).collect();
        let total: Duration = reports.iter().map(|report| report.duration).sum();
        let body = Body { status: word, checks, total_duration_ms: total.as_millis() };
        Self { status, body: to_json(&body), verdict: Some(verdict), fails_open: false }
    }

    /// Returns an answer without a verdict: 500 if nodegate lacks a setting, 400 for a malformed request.
    pub fn error(status: u16, message: &str) -> Self {
        let body = to_json(&ErrorBody { status: "error", error: message });
        Self { status, body, verdict: None, fails_open: false }
    }
}

impl<'a> CheckBody<'a> {
    fn new(report: &'a CheckReport) -> Self {
        Self {
            name: &report.name,
            passed: report.outcome.passed(),
            kept: report.kept,
            stale: report.stale,
            unconfirmed: report.unconfirmed,
            reason: report.outcome.reason().map(Reason::as_str),
            duration_ms: report.duration.as_millis(),
        }
    }
}

/// Returns the JSON of a body. JSON can express everything in these types, so the error branch is never
/// taken.
fn to_json(body: &impl Serialize) -> Bytes {
    serde_json::to_vec(body).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Outcome;

    fn report(name: &str, outcome: Outcome, stale: bool) -> CheckReport {
        CheckReport::from_memory(name, outcome, stale)
    }

    #[test]
    fn the_documented_bodies_byte_for_byte() {
        let ready = Reply::render(&[report("node_ready", Outcome::Pass, false)], None);
        assert_eq!(
            ready.body,
            r#"{"status":"ready","checks":[{"name":"node_ready","passed":true,"duration_ms":0}],"total_duration_ms":0}"#
        );
        let fail = Outcome::fail("KubeletNotReady");
        let not_ready = Reply::render(&[report("node_ready", fail, false)], None);
        assert_eq!(
            not_ready.body,
            r#"{"status":"not-ready","checks":[{"name":"node_ready","passed":false,"reason":"KubeletNotReady","duration_ms":0}],"total_duration_ms":0}"#
        );
        assert_eq!((ready.status, not_ready.status), (200, 503));
        let stale = Reply::render(&[report("node_ready", Outcome::Pass, true)], None);
        assert_eq!(
            stale.body,
            r#"{"status":"ready","checks":[{"name":"node_ready","passed":true,"stale":true,"duration_ms":0}],"total_duration_ms":0}"#
        );
        let cut_off = CheckReport { unconfirmed: true, ..report("node_ready", Outcome::Pass, false) };
        assert_eq!(
            Reply::render(&[cut_off], None).body,
            r#"{"status":"ready","checks":[{"name":"node_ready","passed":true,"unconfirmed":true,"duration_ms":0}],"total_duration_ms":0}"#
        );
        let kept = CheckReport { kept: true, ..report("node_ready", Outcome::Pass, true) };
        assert_eq!(
            Reply::render(&[kept], None).body,
            r#"{"status":"ready","checks":[{"name":"node_ready","passed":true,"kept":true,"stale":true,"duration_ms":0}],"total_duration_ms":0}"#
        );
    }

    #[test]
    fn only_an_answer_that_staleness_makes_better_fails_open() {
        let draining = || Outcome::Draining(Reason::new("Unschedulable"));
        let not_ready = || Outcome::fail("KubeletNotReady");
        for (known, acknowledged, fails_open) in [
            (Outcome::Pass, Outcome::Pass, false),
            (draining(), Outcome::Pass, true),
            (not_ready(), Outcome::Pass, true),
            (not_ready(), draining(), true),
            (draining(), draining(), false),
            (Outcome::Pass, Outcome::fail("CacheStale"), false),
            (draining(), Outcome::fail("CacheStale"), false),
        ] {
            let [fresh, stale] = [(known, false), (acknowledged, true)]
                .map(|(outcome, stale)| [report("node_ready", outcome, stale)]);
            let answer = Answer::render(&fresh, &stale, None);
            assert_eq!((answer.fresh.fails_open, answer.stale.fails_open), (false, fails_open), "{stale:?}");
        }
    }

    #[test]
    fn draining_shows_only_to_callers_that_opted_in() {
        let reports = [report("node_ready", Outcome::Draining(Reason::new("Unschedulable")), false)];
        let plain = Reply::render(&reports, None);
        assert_eq!(plain.status, 503);
        assert!(plain.body.starts_with(br#"{"status":"not-ready""#));
        let opted_in = Reply::render(&reports, Some(404));
        assert_eq!(opted_in.status, 404);
        assert!(opted_in.body.starts_with(br#"{"status":"draining""#));
        assert_eq!(opted_in.verdict, Some(Verdict::Draining));
    }

    #[test]
    fn text_from_a_request_or_the_api_is_escaped() {
        let fail = Outcome::Fail(Reason::of_check("Unknown check", "\"<\u{0}\n"));
        let reply = Reply::render(&[report("\"<\u{0}\n", fail, false)], None);
        let value: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(value["checks"][0]["name"], "\"<\u{0}\n");
        assert_eq!(value["checks"][0]["reason"], "Unknown check: \"<\u{0}\n");
    }
}
