//! The metric families of the regular probers and of their acknowledgement.

use super::board_metrics::{Encoded, StateCollector, counter, gauge, seconds};
use nodegate_readiness::Moment;
use nodegate_readiness::probers::{ProberRecord, Standing};
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
        gauge(encoder, "probers", help)?
            .encode_gauge(&u64::try_from(status.told_of().1).unwrap_or(u64::MAX))?;
        let help = "Regular clients, not of this node, whose answer no drain changes: load balancers that can't see drains.";
        let blind = status.drain.as_ref().map_or(0, |drain| drain.cant_see_drains.len());
        gauge(encoder, "probers_without_drains", help)?
            .encode_gauge(&u64::try_from(blind).unwrap_or(u64::MAX))?;
        let help = "Time since the last probe of each regular prober; a prober in --balancers is kept for an hour after it is gone.";
        let mut family = seconds(encoder, "prober_age", help)?;
        for prober in &shown {
            let (who, age) = (prober.who(), Duration::from_millis(prober.last_ms).as_secs_f64());
            family.encode_family(&labels(&who, prober))?.encode_gauge(&age)?;
        }
        let help = "1 if a prober has had the present verdict so often that it must have acted on it, 0 if not; of each regular prober.";
        let mut family = gauge(encoder, "prober_told", help)?;
        for (prober, told) in shown.iter().filter_map(|prober| Some((prober, prober.told?))) {
            family.encode_family(&labels(&prober.who(), prober))?.encode_gauge(&u64::from(told))?;
        }
        let help = "1 if every regular prober of a watched Service knows that it is out or back, 0 if not; absent while not known.";
        let mut family = gauge(encoder, "service_told", help)?;
        for (service, told) in status.services.iter().filter_map(|service| Some((service, service.told()?))) {
            family.encode_family(&[("service", &*service.service)])?.encode_gauge(&u64::from(told))?;
        }
        counter(
            encoder,
            "prober_overflows",
            "Probe requests that found no slot in the table of probers.",
            overflows,
        )
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

fn labels<'a>(who: &'a str, prober: &'a ProberRecord) -> [(&'static str, &'a str); 2] {
    [("prober", who), ("question", &prober.request)]
}
