//! What the cordon of the own Node means with a drain budget: whether it takes the node out, and since when.

use crate::drain_budget::Kept;
use crate::facts::{Node, NodeFacts};
use crate::rules::Policy;

/// What the cordon of the own Node means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cordon {
    /// There is none.
    #[default]
    None,
    /// It is not known yet whose turn it is.
    Unjudged {
        /// True if it counts until then: the agent never saw the Node without it.
        takes_out: bool,
    },
    /// It takes the node out, until its end: no node comes back because another one leaves.
    Granted {
        /// True if the node was kept before.
        was_kept: bool,
    },
    /// It does not take the node out yet.
    Kept(Kept),
}

impl Cordon {
    /// Returns the meaning after the Node changed from `before` to `facts`, and shows it in these.
    pub(crate) fn after(self, before: &Node, facts: &mut NodeFacts, policy: &Policy) -> Self {
        let cordon = match self {
            _ if !facts.unschedulable => Self::None,
            _ if !policy.judges_cordons() => Self::Granted { was_kept: false },
            Self::None => Self::Unjudged { takes_out: before.facts().is_none() },
            known => known,
        };
        cordon.apply_to(facts);
        cordon
    }

    /// Returns the meaning after a judgement, if it needed one, and shows it in the facts.
    pub(crate) fn judged(&self, kept: Option<Kept>, facts: &mut NodeFacts) -> Option<Self> {
        if matches!(self, Self::None | Self::Granted { .. }) {
            return None;
        }
        let was_kept = matches!(self, Self::Kept(_));
        let cordon = kept.map_or(Self::Granted { was_kept }, Self::Kept);
        facts.unschedulable = true;
        cordon.apply_to(facts);
        Some(cordon)
    }

    fn apply_to(&self, facts: &mut NodeFacts) {
        facts.unschedulable &= *self != Self::Unjudged { takes_out: false };
        facts.kept = if let Self::Kept(kept) = self { Some(kept.clone()) } else { None };
    }
}
