//! kube-proxy's `/healthz`, in the formats of all releases so far.

// All from pkg/proxy/healthcheck. Up to 1.27 there were only `lastUpdated` and `currentTime`. Then came
// `nodeEligible`, with a 503 that means "healthy, but the node is being deleted". Newer releases add
// `healthy` and a `status` for each IP family, and write times in RFC 3339. Since kube-proxy distinguishes
// "nothing to do" from "stuck", every 200 has the present time as `lastUpdated`; before, it was the last run
// of its loop. The times in `status` are those of the last change, hours ago on a quiet cluster, so they
// prove nothing. Without a `status`, kube-proxy has not written any rule yet.

use super::proxy_time::KubeProxyStamp;
use crate::http_get::{HttpReply, status_reason};
use crate::timing::Millis;
use http::StatusCode;
use nodegate_readiness::{Outcome, Reason};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The setting of the maximum age of `lastUpdated` in an answer that is otherwise healthy: a second to a day.
pub(super) type MaxAge = Millis<1000, 86_400_000>;

/// Twice the time that kube-proxy allows itself, which is twice its `syncPeriod`, 60 s by default. This limit
/// catches faults that kube-proxy itself does not see, so it must not be stricter.
pub(super) const DEFAULT_MAX_AGE: MaxAge = Millis(Duration::from_mins(2));

/// The keys of all releases; each may be missing.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    last_updated: Option<String>,
    current_time: Option<String>,
    node_eligible: Option<bool>,
    healthy: Option<bool>,
    #[serde(default)]
    status: BTreeMap<String, Family>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Family {
    last_updated: Option<String>,
    healthy: Option<bool>,
}

pub(super) fn judge(status: StatusCode, body: &[u8], max_age: MaxAge) -> Outcome {
    let http = || Outcome::Fail(status_reason(status));
    if !matches!(status, StatusCode::OK | StatusCode::SERVICE_UNAVAILABLE) {
        return http();
    }
    let Ok(answer) = serde_json::from_slice::<Answer>(body) else {
        return if status == StatusCode::OK { Outcome::fail("MalformedJSON") } else { http() };
    };
    if let Some(reason) = answer.unhealthy() {
        return Outcome::Fail(reason);
    }
    if answer.node_eligible == Some(false) {
        return Outcome::Draining(Reason::new("NodeNotEligible"));
    }
    let age = answer.age(answer.last_updated.as_deref());
    match age {
        Some(age) if status != StatusCode::OK => {
            Outcome::Fail(Reason::new("NotSynced").counting("for", format_args!("{}s", age.as_secs())))
        }
        None if status != StatusCode::OK => http(),
        Some(age) if age > max_age.0 => {
            Outcome::Fail(Reason::new("Stale").detail(format_args!("last updated {}s ago", age.as_secs())))
        }
        _ => Outcome::Pass,
    }
}

/// Returns true for a refusal with the two times alone, as Cilium up to 1.17 answers on kube-proxy's port
/// while it does not reach the API server, or for another reason. kube-proxy says more since 1.28.
pub(super) fn may_follow_apiserver(reply: &HttpReply) -> bool {
    let answer = serde_json::from_slice::<Answer>(&reply.body);
    reply.status == StatusCode::SERVICE_UNAVAILABLE
        && answer.is_ok_and(|answer| {
            answer.node_eligible.is_none() && answer.healthy.is_none() && answer.status.is_empty()
        })
}

impl Answer {
    /// Returns the reason if the rules themselves are unhealthy, whatever happens to the node; newer releases
    /// report this.
    fn unhealthy(&self) -> Option<Reason> {
        let stuck = self.status.iter().filter(|(_, family)| family.healthy == Some(false));
        let stuck: Vec<String> = stuck
            .map(|(name, family)| match self.age(family.last_updated.as_deref()) {
                Some(age) => format!("{name} for {}s", age.as_secs()),
                None => name.clone(),
            })
            .collect();
        if !stuck.is_empty() {
            return Some(Reason::new("NotSynced").name(&stuck.join(", ")));
        }
        match self.healthy {
            Some(false) => Some(Reason::new("NotSynced")),
            // kube-proxy reports itself healthy while it starts; a family has a status once its rules have
            // been written.
            Some(true) if self.status.is_empty() => {
                Some(Reason::new("NotSynced").detail("no rules written yet"))
            }
            _ => None,
        }
    }

    /// Returns the time from `updated` to the answer, by kube-proxy's own clock. It is `None` if there is no
    /// such time, or it can't be parsed: the format has changed once, and kube-proxy's own verdict counts for
    /// more.
    fn age(&self, updated: Option<&str>) -> Option<Duration> {
        let updated: KubeProxyStamp = updated?.parse().ok()?;
        let now: KubeProxyStamp = self.current_time.as_deref()?.parse().ok()?;
        updated.until(&now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(status: u16, body: &str) -> Outcome {
        judge(StatusCode::from_u16(status).unwrap(), body.as_bytes(), DEFAULT_MAX_AGE)
    }

    fn fail(reason: &str) -> Outcome {
        Outcome::Fail(Reason::parse(reason))
    }

    fn draining() -> Outcome {
        Outcome::Draining(Reason::new("NodeNotEligible"))
    }

    #[test]
    fn the_two_times_of_old_releases() {
        let answer = |updated: &str| {
            format!(
                r#"{{"lastUpdated": "{updated}","currentTime": "2019-06-12 16:31:42.9 +0200 CEST m=+99.5"}}"#
            )
        };
        let cases = [
            (200, "2019-06-12 16:31:20.123456789 +0200 CEST m=+77.0", Outcome::Pass),
            (200, "2019-06-12 14:31:20 +0000 UTC", Outcome::Pass),
            (200, "2019-06-12 16:29:43 +0200 CEST", Outcome::Pass),
            (200, "2019-06-12 16:29:42.9 +0200 CEST", Outcome::Pass),
            (200, "2019-06-12 16:29:41 +0200 CEST", fail("Stale: last updated 121s ago")),
            (503, "2019-06-12 16:30:29 +0200 CEST", fail("NotSynced for 73s")),
            // Not yet synced for the first time: healthy by kube-proxy's own rule.
            (200, "0001-01-01 00:00:00 +0000 UTC", Outcome::Pass),
            (503, "0001-01-01 00:00:00 +0000 UTC", fail("HTTP 503")),
            // A time in the future, or in no known format.
            (200, "2019-06-12 16:31:44 +0200 CEST", Outcome::Pass),
            (200, "yesterday", Outcome::Pass),
            (503, "yesterday", fail("HTTP 503")),
        ];
        for (status, updated, outcome) in cases {
            assert_eq!(at(status, &answer(updated)), outcome, "{status} {updated}");
        }
    }

    #[test]
    fn the_node_that_is_not_eligible() {
        let answer = |eligible: bool| {
            format!(
                r#"{{"lastUpdated": "2024-01-01 00:00:00 +0000 UTC","currentTime": "2024-01-01 00:30:00 +0000 UTC", "nodeEligible": {eligible}}}"#
            )
        };
        // Its last update may be long ago: only in a 200 do these releases show that nothing is to be done.
        assert_eq!(at(503, &answer(false)), draining());
        assert_eq!(at(503, &answer(true)), fail("NotSynced for 1800s"));
        assert_eq!(at(200, r#"{"nodeEligible":false}"#), draining());
    }

    #[test]
    fn health_by_family() {
        let answer = |healthy: bool, eligible: bool, ipv6: bool| {
            format!(
                r#"{{"lastUpdated":"2026-01-02T03:04:05.123456789Z","currentTime":"2026-01-02T03:04:05.123456789Z",
                "nodeEligible":{eligible},"healthy":{healthy},"status":{{
                "IPv4":{{"lastUpdated":"2026-01-01T00:00:00Z","healthy":true}},
                "IPv6":{{"lastUpdated":"2026-01-02T03:02:52+00:00","healthy":{ipv6}}}}}}}"#
            )
        };
        assert_eq!(at(200, &answer(true, true, true)), Outcome::Pass, "a quiet family is not a stuck one");
        assert_eq!(at(503, &answer(false, true, false)), fail("NotSynced: IPv6 for 73s"));
        assert_eq!(at(503, &answer(true, false, true)), draining());
        assert_eq!(
            at(503, &answer(false, false, false)),
            fail("NotSynced: IPv6 for 73s"),
            "worse than draining"
        );
        assert_eq!(at(503, &answer(false, true, true)), fail("NotSynced"));
        assert_eq!(at(200, &answer(false, true, true)), fail("NotSynced"));
    }

    #[test]
    fn one_that_starts_has_written_no_rules() {
        let times = r#""lastUpdated":"2026-01-02T03:04:05Z","currentTime":"2026-01-02T03:04:05Z","nodeEligible":true"#;
        let answer = |more: &str| at(200, &format!("{{{times}{more}}}"));
        assert_eq!(answer(r#","healthy":true"#), fail("NotSynced: no rules written yet"));
        assert_eq!(answer(r#","healthy":true,"status":{"IPv4":{"healthy":true}}"#), Outcome::Pass);
        assert_eq!(answer(""), Outcome::Pass, "a release that has no status");
    }

    #[test]
    fn answers_that_are_something_else() {
        for body in ["", "ok", "{", "[]", "null", r#"{"healthy":"yes"}"#, r#"{"status":7}"#] {
            assert_eq!(at(200, body), fail("MalformedJSON"), "{body}");
            assert_eq!(at(503, body), fail("HTTP 503"), "{body}");
        }
        assert_eq!(at(404, "404 page not found"), fail("HTTP 404"));
        assert_eq!(at(204, ""), fail("HTTP 204"));
        assert_eq!(at(200, "{}"), Outcome::Pass, "fewer keys than any release has");
    }

    #[test]
    fn the_age_that_is_allowed_can_be_set() {
        let five: MaxAge = "5m".parse().unwrap();
        let body = br#"{"lastUpdated":"2026-01-01T00:00:00Z","currentTime":"2026-01-01T00:04:59Z"}"#;
        assert_eq!(judge(StatusCode::OK, body, five), Outcome::Pass);
        for bad in ["", "5", "0s", "25h", "soon"] {
            assert!(bad.parse::<MaxAge>().is_err(), "{bad}");
        }
    }
}
