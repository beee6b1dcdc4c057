//! Takes over the predecessor's probers.

use super::probe_request::parse_shown;
use super::prober_name::Name;
use super::{Probers, date};
use nodegate_readiness::probers::{Asked, Handover, ProberRecord, ServerState};
use nodegate_readiness::{Board, Moment};

impl Probers {
    /// Takes over the predecessor's regular probers with their dates, and returns their number. Must run
    /// before the first answer. Skips probers that this agent would show in other words, and those that do
    /// not count for it.
    pub(crate) fn take_over(&self, handover: &Handover, board: &Board, now: Moment) -> usize {
        let now = date(now);
        let balancers = self.settings.get().map(|settings| settings.balancers.clone()).unwrap_or_default();
        let (mut taken, mut lost) = (0, 0);
        for prober in handover.probers.iter().filter(|prober| balancers.contains(prober.address)) {
            match parse(prober, board, now) {
                Some((name, asked)) => {
                    let (table, rules) = self.table_for(&name);
                    taken += usize::from(table.take_over(name, asked, rules, now));
                }
                None => lost += 1,
            }
        }
        // The predecessor knew all probers that count for this agent, unless its `--balancers` named other
        // clients or a prober was lost.
        let knew_all = handover.balancers.is_empty() || handover.balancers == balancers.parts();
        if let Some(listened) = handover.listened.filter(|_| knew_all && lost == 0) {
            let _ = self.listening_since.set(now.before(listened).unwrap_or_default());
        }
        taken
    }
}

/// Returns the prober as this agent would have recorded it; `None` if it would not have.
fn parse(prober: &ProberRecord, board: &Board, now: Moment) -> Option<(Name, Asked)> {
    let request = parse_shown(&prober.request, board)?;
    let state = match &prober.haproxy {
        Some(haproxy) => Some(ServerState::named(&haproxy.node, &haproxy.server)?),
        None => None,
    };
    let name = Name::new(prober.address.to_canonical(), prober.on_this_node, request, state);
    Some((name, Asked::taken_over(prober, now)?))
}
