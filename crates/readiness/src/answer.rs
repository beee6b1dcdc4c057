//! The answer to `/health`. It is rendered when the state changes; a request only picks it.

use crate::check::{CheckReport, Verdict, verdict};
use crate::moment::{Moment, millis};
use crate::reason::Reason;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::time::Duration;

/// A rendered answer to a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status code.
    pub status: u16,
    /// The body in JSON.
    pub body: Bytes,
    /// The verdict, also if the body says `not-ready` for a draining node.
    pub verdict: Verdict,
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

    /// Returns true if it may be given at `now`.
    pub(crate) fn is_good(&self, now: Moment) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }

    /// Returns the answer for a stale cache if `stale` is true, else the one for a fresh cache.
    pub fn pick(&self, stale: bool) -> &Reply {
        if stale { &self.stale } else { &self.fresh }
    }
}

/// The body of an answer to `/health`.
#[derive(Debug, Serialize, Deserialize)]
pub struct HealthBody<'a> {
    /// The verdict of these checks together; a client that knows only two states gets `not-ready` for a draining node.
    pub status: Verdict,
    /// The checks of the query.
    pub checks: Vec<CheckBody<'a>>,
    total_duration_ms: u64,
}

/// One check in the body.
#[derive(Debug, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "each is a key of the JSON")]
pub struct CheckBody<'a> {
    /// The name of the check.
    pub name: Cow<'a, str>,
    /// True if it passes.
    pub passed: bool,
    /// True if it passes although the node is cordoned: too many others are drained.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
    /// True if it rests on a cache that is stale.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
    /// True if it follows the node's own kubelet, against the API.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unconfirmed: bool,
    /// The reason if it does not pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cow<'a, Reason>>,
    duration_ms: u64,
}

impl Reply {
    /// Renders reports. `drain` is the status for a draining node if the caller opted in to the third state.
    pub fn render(reports: &[CheckReport], drain: Option<u16>) -> Self {
        let verdict = verdict(reports);
        let (status, shown) = match (verdict, drain) {
            (Verdict::Ready, _) => (200, verdict),
            (Verdict::Draining, Some(code)) => (code, verdict),
            (Verdict::Draining | Verdict::NotReady, _) => (503, Verdict::NotReady),
        };
        let checks = reports.iter().map(CheckBody::new).collect();
        let total: Duration = reports.iter().map(|report| report.duration).sum();
        let body = HealthBody { status: shown, checks, total_duration_ms: millis(total) };
        // JSON can express everything in these types.
        let body = serde_json::to_vec(&body).unwrap_or_default().into();
        Self { status, body, verdict, fails_open: false }
    }
}

impl<'a> CheckBody<'a> {
    fn new(report: &'a CheckReport) -> Self {
        Self {
            name: (&report.name).into(),
            passed: report.outcome.passed(),
            kept: report.kept,
            stale: report.stale,
            unconfirmed: report.unconfirmed,
            reason: report.outcome.reason().map(Cow::Borrowed),
            duration_ms: millis(report.duration),
        }
    }
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
        let pass = |stale| report("node_ready", Outcome::Pass, stale);
        let fail = report("node_ready", Outcome::fail("KubeletNotReady"), false);
        let unconfirmed = CheckReport { unconfirmed: true, ..pass(false) };
        let kept = CheckReport { kept: true, ..pass(true) };
        for (report, status, word, keys) in [
            (pass(false), 200, "ready", r#""passed":true"#),
            (fail, 503, "not-ready", r#""passed":false,"reason":"KubeletNotReady""#),
            (pass(true), 200, "ready", r#""passed":true,"stale":true"#),
            (unconfirmed, 200, "ready", r#""passed":true,"unconfirmed":true"#),
            (kept, 200, "ready", r#""passed":true,"kept":true,"stale":true"#),
        ] {
            let checks = format!(r#"[{{"name":"node_ready",{keys},"duration_ms":0}}]"#);
            let body = format!(r#"{{"status":"{word}","checks":{checks},"total_duration_ms":0}}"#);
            let reply = Reply::render(&[report], None);
            assert_eq!((reply.status, &*reply.body), (status, body.as_bytes()));
        }
    }

    #[test]
    fn only_an_answer_that_staleness_makes_better_fails_open() {
        let draining = || Outcome::Draining(Reason::new("Unschedulable"));
        let not_ready = || Outcome::fail("KubeletNotReady");
        for (known, while_stale, fails_open) in [
            (Outcome::Pass, Outcome::Pass, false),
            (draining(), Outcome::Pass, true),
            (not_ready(), Outcome::Pass, true),
            (not_ready(), draining(), true),
            (draining(), draining(), false),
            (Outcome::Pass, Outcome::fail("CacheStale"), false),
            (draining(), Outcome::fail("CacheStale"), false),
        ] {
            let [fresh, stale] = [(known, false), (while_stale, true)]
                .map(|(outcome, stale)| [report("node_ready", outcome, stale)]);
            let answer = Answer::render(&fresh, &stale, None);
            assert_eq!((answer.fresh.fails_open, answer.stale.fails_open), (false, fails_open), "{stale:?}");
        }
    }

    #[test]
    fn text_from_a_request_or_the_api_is_escaped() {
        let fail = Outcome::Fail(Reason::new("Unknown check").detail("\"<\u{0}\n"));
        let reply = Reply::render(&[report("\"<\u{0}\n", fail, false)], None);
        let value: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(value["checks"][0]["name"], "\"<\u{0}\n");
        assert_eq!(value["checks"][0]["reason"], "Unknown check: \"<  ");
    }
}
