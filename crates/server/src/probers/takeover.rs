//! Probers that the agent before this one knew.

use super::names::Name;
use super::question::understand_shown;
use super::{Probers, date};
use nodegate_readiness::probers::{Asked, Handover, ServerState};
use nodegate_readiness::{Board, Moment};

/// The key of one who has not asked this agent yet; the keys of questions are odd.
const NOT_YET_ASKED: u64 = 2;

impl Probers {
    /// Takes over who goes on asking, each with its dates, before anybody is answered; says how many they are. Those that
    /// this agent would not show in the same words are passed over, and so are those that do not count for it.
    pub(crate) fn take_over(&self, handover: Handover, board: &Board, now: Moment) -> usize {
        let now = date(now);
        let mut names = self.names();
        let mut taken = 0;
        for prober in handover.probers {
            let settings = self.settings.get();
            if settings.is_some_and(|settings| !settings.balancers.contains(prober.address)) {
                continue;
            }
            let Some(asks) = understand_shown(&prober.question, board) else { continue };
            let Some(asked) = Asked::taken_over(&prober, now) else { continue };
            let state = match &prober.haproxy {
                None => None,
                Some(haproxy) => match ServerState::named(&haproxy.node, &haproxy.server) {
                    Some(state) => Some(state),
                    None => continue,
                },
            };
            let name = Name::new(prober.address.to_canonical(), asks, state);
            if names.find(&name).is_some() {
                continue;
            }
            if let Some(slot) = self.place(&mut names, name, NOT_YET_ASKED, now) {
                slot.give(NOT_YET_ASKED, Some(asked));
                taken += 1;
            }
        }
        drop(names);
        if let Some(listened) = handover.listened {
            let _ = self.listening_since.set(now.before(listened).unwrap_or_default());
        }
        taken
    }
}
