//! kube-proxy's `/healthz`, in the formats of all releases so far.

use crate::http_get::{HttpReply, status_reason};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use nodegate_readiness::{Outcome, Reason};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

// All from pkg/proxy/healthcheck. Up to 1.27 there were only `lastUpdated` and `currentTime`. Then came
// `nodeEligible`, with a 503 that means "healthy, but the node is being deleted". Newer releases add
// `healthy` and a `status` for each IP family, once it has written rules, whose times are those of the last
// change. Every 200 has the present time as `lastUpdated`; in older releases it was the last run of its loop.

/// Twice the time that kube-proxy allows itself by default, for faults that it does not see.
pub(super) const DEFAULT_MAX_AGE: Duration = Duration::from_mins(2);

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

pub(super) fn judge(status: StatusCode, body: &[u8], max_age: Duration) -> Outcome {
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
        Some(age) if age > max_age => {
            Outcome::Fail(Reason::new("Stale").detail(format_args!("last updated {}s ago", age.as_secs())))
        }
        _ => Outcome::Pass,
    }
}

/// Returns true for a refusal with the two times alone, as Cilium up to 1.17 answers on kube-proxy's port
/// while it does not reach the API server. kube-proxy says more since 1.28.
pub(super) fn may_follow_apiserver(reply: &HttpReply) -> bool {
    let answer = serde_json::from_slice::<Answer>(&reply.body);
    reply.status == StatusCode::SERVICE_UNAVAILABLE
        && answer.is_ok_and(|answer| {
            answer.node_eligible.is_none() && answer.healthy.is_none() && answer.status.is_empty()
        })
}

impl Answer {
    /// Returns the reason if the rules themselves are unhealthy, as newer releases report.
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
            // kube-proxy reports itself healthy while it starts.
            Some(true) if self.status.is_empty() => {
                Some(Reason::new("NotSynced").detail("no rules written yet"))
            }
            _ => None,
        }
    }

    /// Returns the time from `updated` to the answer, by kube-proxy's own clock; `None` if that can't be
    /// told, since kube-proxy's own verdict counts for more.
    fn age(&self, updated: Option<&str>) -> Option<Duration> {
        let updated: KubeProxyStamp = updated?.parse().ok()?;
        let now: KubeProxyStamp = self.current_time.as_deref()?.parse().ok()?;
        updated.until(&now)
    }
}

/// A reading of kube-proxy's clock, in RFC 3339 or, by older releases, as Go's `Time.String`: `2019-06-12
/// 16:31:42.9 +0200 CEST m=+99.5`. There `m` is the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct KubeProxyStamp {
    wall: Timestamp,
    monotonic: Option<f64>,
}

impl FromStr for KubeProxyStamp {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if let Ok(wall) = text.parse() {
            return Ok(Self { wall, monotonic: None });
        }
        let mut words = text.split_ascii_whitespace();
        let (Some(date), Some(time), Some(offset)) = (words.next(), words.next(), words.next()) else {
            return Err(());
        };
        let wall = Timestamp::strptime("%Y-%m-%d %H:%M:%S%.f %z", format!("{date} {time} {offset}"));
        let monotonic = words.next_back().and_then(|word| word.strip_prefix("m=")?.parse().ok());
        Ok(Self { wall: wall.map_err(|_| ())?, monotonic })
    }
}

impl KubeProxyStamp {
    /// Returns the time to `later`, zero if that is earlier; `None` if this is Go's zero time, which means
    /// never.
    pub(super) fn until(&self, later: &Self) -> Option<Duration> {
        if self.wall == zero() {
            return None;
        }
        let by_monotonic = || {
            let seconds = later.monotonic? - self.monotonic?;
            Duration::try_from_secs_f64(seconds.max(0.0)).ok()
        };
        let by_wall = || later.wall.duration_since(self.wall).max(SignedDuration::ZERO).unsigned_abs();
        Some(by_monotonic().unwrap_or_else(by_wall))
    }
}

fn zero() -> Timestamp {
    Timestamp::from_second(-62_135_596_800).unwrap_or(Timestamp::MIN)
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
        let body = br#"{"lastUpdated":"2026-01-01T00:00:00Z","currentTime":"2026-01-01T00:04:59Z"}"#;
        assert_eq!(judge(StatusCode::OK, body, Duration::from_mins(5)), Outcome::Pass);
    }

    fn stamp(text: &str) -> KubeProxyStamp {
        text.parse().unwrap_or_else(|()| panic!("{text:?}"))
    }

    #[test]
    fn both_formats_mean_the_same() {
        let rfc3339 = stamp("2019-06-12T16:31:42.9+02:00");
        assert_eq!(stamp("2019-06-12 16:31:42.9 +0200 CEST"), rfc3339);
        assert_eq!(stamp("2019-06-12 14:31:42.9 +0000 UTC"), rfc3339);
        assert_eq!(stamp("2019-06-12 16:31:42.9 +0200 +0200 m=-0.5").wall, rfc3339.wall);
    }

    #[test]
    fn the_clock_that_does_not_jump_counts() {
        let before = stamp("2019-06-12 14:31:42 +0000 UTC m=+100.5");
        let after = stamp("2019-06-12 13:31:42 +0000 UTC m=+102.75");
        assert_eq!(before.until(&after), Some(Duration::from_millis(2250)));
        assert_eq!(after.until(&before), Some(Duration::ZERO));
        let unknown = stamp("2019-06-12T14:31:52Z");
        assert_eq!(before.until(&unknown), Some(Duration::from_secs(10)));
        assert_eq!(stamp("0001-01-01 00:00:00 +0000 UTC").until(&after), None);
        assert_eq!(stamp("0001-01-01T00:00:00Z").until(&after), None);
    }

    #[test]
    fn other_times_are_refused() {
        for text in
            ["", "now", "2019-06-12", "2019-06-12 14:31:42", "2019-13-12 14:31:42 +0000 UTC", "1560350000"]
        {
            assert_eq!(text.parse::<KubeProxyStamp>(), Err(()), "{text:?}");
        }
    }
}
