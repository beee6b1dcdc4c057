//! The metric families of the board and of the probers. They are read at scrape time, so they can't drift.

use super::counters::MAX_REASON_CHARS;
use crate::reading::Reader;
use nodegate_agent_api::{CheckStatus, ProberRecord, ServiceStatus, Standing, Status};
use nodegate_program::{alone, gauge, seconds};
use nodegate_readiness::{Moment, Reason, Verdict};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeCounterValue, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;

/// The number of series of probers if no balancers are named.
const STRANGERS: usize = 32;

#[derive(derive_more::Debug)]
#[debug("StateCollector")]
pub(crate) struct StateCollector(pub(crate) Arc<Reader>);

type Encoded = Result<(), fmt::Error>;

impl Collector for StateCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
        let now = self.0.now();
        let status = self.0.read(now).status;
        verdict(&mut encoder, &status)?;
        self.cache(&mut encoder, &status)?;
        self.checks(&mut encoder, &status, now)?;
        self.probers(&mut encoder, &status)
    }
}

/// Encodes at most one series of `out`: the one of the check that decides.
fn verdict(encoder: &mut DescriptorEncoder<'_>, status: &Status) -> Encoded {
    let help = "1 for the verdict of the default checks, 0 for the others; all 0 while misconfigured.";
    gauge(encoder, "verdict", help, each_verdict(status.verdict))?;
    let help = "1 while the node is out, by the reason of the check that decides; absent while it is ready.";
    let out = status.reason.as_ref().filter(|_| status.verdict != Some(Verdict::Ready));
    let label = |reason: &Reason| reason.label().chars().take(MAX_REASON_CHARS).collect::<String>();
    gauge(encoder, "out", help, out.map(|reason| ([("reason", label(reason))], 1_u64)))
}

impl StateCollector {
    fn cache(&self, encoder: &mut DescriptorEncoder<'_>, status: &Status) -> Encoded {
        let help = "Time since the last proof that the cache follows the API server, an earlier agent's if this one has none.";
        seconds(encoder, "cache_age", help, status.cache.age_ms.map(alone))?;
        let help = "1 while the cache cannot be trusted.";
        gauge(encoder, "cache_stale", help, [alone(u64::from(status.cache.stale))])?;
        let help = "While the cache is stale: 1 for the verdict of the last known facts, 0 for the others; absent if fresh.";
        let known = status.last_known.iter().flat_map(|known| each_verdict(Some(known.verdict)));
        gauge(encoder, "last_known_verdict", help, known)?;
        let help = "1 while the node stays in the pool because its own kubelet answers, though the Node is Ready=Unknown.";
        gauge(encoder, "unconfirmed", help, [alone(u64::from(status.unconfirmed))])?;
        let help = "1 while the node stays in the pool although it is cordoned, because too many others are drained.";
        gauge(encoder, "kept", help, [alone(u64::from(status.kept.is_some()))])?;
        let help =
            "1 while the Node is Ready but the check kubelet fails, on which --on-unknown=local depends.";
        let unreachable = u64::from(self.0.board.kubelet_unreachable().is_some());
        gauge(encoder, "kubelet_unreachable", help, [alone(unreachable)])?;
        let help = "1 while another program answers at the node's own address and port.";
        gauge(encoder, "port_taken", help, [alone(u64::from(status.port_taken.is_some()))])?;
        let Some(host) = status.host else { return Ok(()) };
        let help = "1 while nodegate-shutdown holds the lock that delays a shutdown of the host; absent without --host-signals.";
        gauge(encoder, "shutdown_lock", help, [alone(u64::from(host.lock))])
    }

    /// Encodes the checks that have a result; the others do not run.
    fn checks(&self, encoder: &mut DescriptorEncoder<'_>, status: &Status, now: Moment) -> Encoded {
        let catalog = self.0.board.catalog();
        let active = || catalog.ids().zip(&status.checks).filter(|(_, check)| check.active);
        let label = |check: &CheckStatus| [("check", check.name.clone())];

        let help = "1 if the check passes, 0 if not, for each running check; configured says whether a setting or a regular prober names the check.";
        let passed = active().map(|(id, check)| {
            let configured = catalog.is_configured(id) || self.0.probers.is_check_named(id, now);
            let configured = if configured { "true" } else { "false" };
            ([("check", &*check.name), ("configured", configured)], u64::from(check.passed == Some(true)))
        });
        gauge(encoder, "check_passed", help, passed)?;
        let help = "Time since the check's last run, or for checks from memory since the cache's last proof.";
        let age = active().filter_map(|(_, check)| Some((label(check), check.age_ms?)));
        seconds(encoder, "check_age", help, age)?;
        let help = "Duration of the check's last run; 0 for checks from memory.";
        seconds(encoder, "check_duration", help, active().map(|(_, check)| (label(check), check.duration_ms)))
    }

    /// Encodes the families of the probers. With `--balancers`, these are the named clients that are regular,
    /// or were within the hour. Without it, these are the probers that have been regular for longest, while
    /// they are: strangers must not fill Prometheus's database.
    fn probers(&self, encoder: &mut DescriptorEncoder<'_>, status: &Status) -> Encoded {
        let shown = with_series(&status.probers, self.0.probers.balancers_are_named());

        let help = "Regular probers whose answer a drain changes.";
        gauge(encoder, "probers", help, [alone(status.drain.probers)])?;
        let help = "Regular clients, not of this node, whose answer no drain changes: load balancers that can't see drains.";
        gauge(encoder, "probers_without_drains", help, [alone(status.drain.cant_see_drains.len())])?;
        let help = "Time since the last probe of each regular prober; a prober in --balancers is kept for an hour after it is gone.";
        seconds(encoder, "prober_age", help, shown.iter().map(|prober| (labels(prober), prober.last_ms)))?;
        let help = "1 if a prober has had the present verdict so often that it must have acted on it, 0 if not; of each regular prober.";
        let acknowledged =
            shown.iter().filter_map(|prober| Some((labels(prober), u64::from(prober.acknowledged?))));
        gauge(encoder, "prober_acknowledged", help, acknowledged)?;
        let help = "1 if every regular prober of a watched Service knows that it is out or back, 0 if not; absent while not known.";
        let acknowledged = |service: &ServiceStatus| {
            Some(([("service", service.service.clone())], u64::from(service.acknowledged()?)))
        };
        gauge(encoder, "service_acknowledged", help, status.services.iter().filter_map(acknowledged))?;
        let help = "Probes of a prober that found no slot, or took that of one that may be a balancer.";
        counter(encoder, "prober_overflows", help, &status.drain.overflows)
    }
}

/// Returns the probers that have series, at most [`STRANGERS`] if no balancers are named.
fn with_series(probers: &[ProberRecord], named: bool) -> Vec<&ProberRecord> {
    let mut shown: Vec<_> = probers.iter().filter(|prober| prober.standing != Standing::Occasional).collect();
    if !named {
        shown.retain(|prober| prober.standing != Standing::Gone);
        shown.sort_by_key(|prober| (!prober.sees_drains, Reverse(prober.regular_ms)));
        shown.truncate(STRANGERS);
    }
    shown
}

fn labels(prober: &ProberRecord) -> [(&'static str, String); 2] {
    [("prober", prober.who()), ("question", prober.request.clone())]
}

fn each_verdict(verdict: Option<Verdict>) -> [([(&'static str, &'static str); 1], u64); 3] {
    Verdict::ALL.map(|state| ([("state", state.as_str())], u64::from(verdict == Some(state))))
}

/// Encodes a counter that is computed at the scrape.
pub(super) fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: &impl EncodeCounterValue,
) -> Encoded {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    family.encode_counter::<NoLabelSet, _, u64>(value, None)
}
