//! The metric families of the regular probers and of their acknowledgement.

use super::board_metrics::{Encoded, StateCollector, alone, counter, gauge, seconds};
use nodegate_readiness::Moment;
use nodegate_readiness::probers::{ProberRecord, ServiceStatus, Standing};
use prometheus_client::encoding::DescriptorEncoder;
use std::cmp::Reverse;
use std::time::Duration;

const STRANGERS: usize = 32;

impl StateCollector {
    /// Encodes the families of the probers. With `--balancers`, these are the named clients that are regular,
    /// or were within the hour. Without it, these are the probers that have been regular for longest, while
    /// they are: strangers must not fill Prometheus's database.
    pub(super) fn probers(&self, encoder: &mut DescriptorEncoder<'_>, now: Moment) -> Encoded {
        let (status, _) = self.probers.status(&self.board, self.version, now);
        let overflows = status.drain.as_ref().map_or(0, |drain| drain.overflows);
        let shown = shown(&status.probers, self.probers.balancers_are_named());

        let help = "Regular probers whose answer a drain changes.";
        gauge(encoder, "probers", help, [alone(status.told_of().1)])?;
        let help = "Regular clients, not of this node, whose answer no drain changes: load balancers that can't see drains.";
        let blind = status.drain.as_ref().map_or(0, |drain| drain.cant_see_drains.len());
        gauge(encoder, "probers_without_drains", help, [alone(blind)])?;
        let help = "Time since the last probe of each regular prober; a prober in --balancers is kept for an hour after it is gone.";
        let age = shown.iter().map(|prober| (labels(prober), Duration::from_millis(prober.last_ms)));
        seconds(encoder, "prober_age", help, age)?;
        let help = "1 if a prober has had the present verdict so often that it must have acted on it, 0 if not; of each regular prober.";
        let told = shown.iter().filter_map(|prober| Some((labels(prober), u64::from(prober.told?))));
        gauge(encoder, "prober_told", help, told)?;
        let help = "1 if every regular prober of a watched Service knows that it is out or back, 0 if not; absent while not known.";
        let told = |service: &ServiceStatus| {
            Some(([("service", service.service.clone())], u64::from(service.told()?)))
        };
        gauge(encoder, "service_told", help, status.services.iter().filter_map(told))?;
        let help = "Probe requests that found no slot in the table of probers.";
        counter(encoder, "prober_overflows", help, overflows)
    }
}

/// Returns the probers that have series, at most [`STRANGERS`] if no balancers are named.
fn shown(probers: &[ProberRecord], named: bool) -> Vec<&ProberRecord> {
    let mut shown: Vec<_> = probers.iter().filter(|prober| prober.standing != Standing::Occasional).collect();
    if !named {
        shown.retain(|prober| prober.standing != Standing::Gone);
        shown.sort_by_key(|prober| (!prober.drainable, Reverse(prober.regular_ms)));
        shown.truncate(STRANGERS);
    }
    shown
}

fn labels(prober: &ProberRecord) -> [(&'static str, String); 2] {
    [("prober", prober.who()), ("question", prober.request.clone())]
}
