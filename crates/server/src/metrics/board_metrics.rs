//! The metric families of the board. They are read at scrape time, so they can't drift.

use super::counters::MAX_REASON_CHARS;
use crate::probers::Probers;
use nodegate_readiness::board::why;
use nodegate_readiness::{Board, CheckId, Moment, Timeline, Verdict};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Unit;
use std::fmt;
use std::sync::Arc;

pub(crate) struct StateCollector {
    pub(crate) board: Arc<Board>,
    pub(crate) timeline: Timeline,
    pub(crate) probers: Arc<Probers>,
    pub(crate) version: &'static str,
}

pub(super) type Encoded = Result<(), fmt::Error>;

impl Collector for StateCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
        let now = self.timeline.at(nodegate_clock::now());
        self.verdict(&mut encoder, now)?;
        self.out(&mut encoder, now)?;
        self.cache(&mut encoder, now)?;
        self.shutdown_lock(&mut encoder)?;
        self.checks(&mut encoder, now)?;
        self.probers(&mut encoder, now)
    }
}

impl StateCollector {
    fn verdict(&self, encoder: &mut DescriptorEncoder<'_>, now: Moment) -> Encoded {
        let verdict = self.board.node_name().map(|_| why(&self.board.default_reports(now)).0);
        let help = "1 for the verdict of the default checks, 0 for the others; all 0 while misconfigured.";
        let mut family = gauge(encoder, "verdict", help)?;
        for state in Verdict::ALL {
            let value = u64::from(verdict == Some(state));
            family.encode_family(&[("state", state.as_str())])?.encode_gauge(&value)?;
        }
        Ok(())
    }

    /// Encodes at most one series: the one of the check that decides.
    fn out(&self, encoder: &mut DescriptorEncoder<'_>, now: Moment) -> Encoded {
        let help =
            "1 while the node is out, by the reason of the check that decides; absent while it is ready.";
        let mut family = gauge(encoder, "out", help)?;
        let (verdict, reason) = why(&self.board.default_reports(now));
        if self.board.node_name().is_some() && verdict != Verdict::Ready {
            let reason: String = reason.label().chars().take(MAX_REASON_CHARS).collect();
            family.encode_family(&[("reason", reason.as_str())])?.encode_gauge(&1_u64)?;
        }
        Ok(())
    }

    fn cache(&self, encoder: &mut DescriptorEncoder<'_>, now: Moment) -> Encoded {
        let freshness = self.board.freshness(now);
        let help = "Time since the last proof that the cache follows the API server, an earlier agent's if this one has none.";
        let mut family = seconds(encoder, "cache_age", help)?;
        if let Some(age) = freshness.age {
            family.encode_gauge(&age.as_secs_f64())?;
        }
        let help = "1 while the cache cannot be trusted.";
        gauge(encoder, "cache_stale", help)?.encode_gauge(&u64::from(freshness.stale))?;
        let help = "While the cache is stale: 1 for the verdict of the last known facts, 0 for the others; absent if fresh.";
        let mut family = gauge(encoder, "last_known_verdict", help)?;
        if let Some(known) = self.board.last_known(now) {
            for state in Verdict::ALL {
                let value = u64::from(known.verdict == state);
                family.encode_family(&[("state", state.as_str())])?.encode_gauge(&value)?;
            }
        }
        let help = "1 while the node stays in the pool because its own kubelet answers, though the Node is Ready=Unknown.";
        gauge(encoder, "unconfirmed", help)?.encode_gauge(&u64::from(self.board.unconfirmed(now)))?;
        let help =
            "1 while the Node is Ready but the check kubelet fails, on which --on-unknown=local depends.";
        let unreachable = u64::from(self.board.kubelet_unreachable(now).is_some());
        gauge(encoder, "kubelet_unreachable", help)?.encode_gauge(&unreachable)
    }

    fn shutdown_lock(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let Some(host) = self.board.host() else { return Ok(()) };
        let help = "1 while nodegate-shutdown holds the lock that delays a shutdown of the host; absent without --host-signals.";
        gauge(encoder, "shutdown_lock", help)?.encode_gauge(&u64::from(host.lock))
    }

    /// Encodes the checks that have a result; the others do not run.
    fn checks(&self, encoder: &mut DescriptorEncoder<'_>, now: Moment) -> Encoded {
        let board = &self.board;
        let published = board.published();
        let result = |id: CheckId| published.state.local_result(id);
        let active = || {
            board.catalog().ids().filter(|id| board.catalog().local(*id).is_none() || result(*id).is_some())
        };

        let help = "1 if the check passes, 0 if not, for each running check; configured says whether a setting or a regular prober names the check.";
        let mut family = gauge(encoder, "check_passed", help)?;
        for id in active() {
            let passed = u64::from(board.report(id, now).outcome.passed());
            let configured = board.catalog().is_configured(id) || self.probers.name_check(id, now);
            let configured = if configured { "true" } else { "false" };
            let labels = [("check", board.catalog().name(id)), ("configured", configured)];
            family.encode_family(&labels)?.encode_gauge(&passed)?;
        }
        let help = "Time since the check's last run, or for checks from memory since the cache's last proof.";
        let mut family = seconds(encoder, "check_age", help)?;
        for id in active() {
            let age = match board.catalog().local(id) {
                Some(_) => result(id).map(|result| now.since(result.at)),
                None => board.proof_age(id, now),
            };
            if let Some(age) = age {
                let labels = [("check", board.catalog().name(id))];
                family.encode_family(&labels)?.encode_gauge(&age.as_secs_f64())?;
            }
        }
        let mut family = seconds(
            encoder,
            "check_duration",
            "Duration of the check's last run; 0 for checks from memory.",
        )?;
        for id in active() {
            let duration = result(id).map(|result| result.duration).unwrap_or_default();
            let labels = [("check", board.catalog().name(id))];
            family.encode_family(&labels)?.encode_gauge(&duration.as_secs_f64())?;
        }
        Ok(())
    }
}

impl fmt::Debug for StateCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateCollector").finish_non_exhaustive()
    }
}

pub(super) fn gauge<'e>(
    encoder: &'e mut DescriptorEncoder<'_>,
    name: &'e str,
    help: &str,
) -> Result<MetricEncoder<'e>, fmt::Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Gauge)
}

/// Creates a gauge in seconds, whose name ends with its unit.
pub(super) fn seconds<'e>(
    encoder: &'e mut DescriptorEncoder<'_>,
    name: &'e str,
    help: &str,
) -> Result<MetricEncoder<'e>, fmt::Error> {
    encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Gauge)
}

pub(super) fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> Encoded {
    ConstCounter::new(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)
}
