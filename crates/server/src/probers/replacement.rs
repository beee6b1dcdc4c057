//! Chooses the prober to drop when a table is full, or when one address has all slots it may have.

use super::prober::{Prober, ProberId};
use nodegate_http::client_key;
use nodegate_readiness::Moment;
use nodegate_readiness::probers::{ProbeHistory, Standing};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    /// The maximum number of different probe requests. No balancer sends more, and one client must not take
    /// all slots.
    requests: usize,
    /// The maximum number of slots, e.g. for the backends of one HAProxy that sends their names.
    slots: usize,
    /// The number of regular probers that a client always keeps.
    keeps: usize,
}

impl Rules {
    pub(super) const STRANGERS: Self = Self { requests: 8, slots: 128, keeps: 32 };
    /// The rules for probers of Services: sixteen Services, each as a server and as one of the last resort.
    pub(super) const SERVICES: Self = Self { requests: 32, ..Self::STRANGERS };
    /// The rules for the clients in `--balancers`.
    pub(super) const BALANCERS: Self = Self { requests: 64, slots: usize::MAX, keeps: usize::MAX };
}

/// The number of probers that always keep their slots: those that have been regular for longest.
const SENIORS: usize = 128;

/// A slot for a new prober, or why there is none.
#[derive(Debug)]
pub(super) enum Slot {
    Free,
    /// The slot of a prober with this key.
    Of {
        key: u64,
        /// True if that prober is regular, or may be about to become regular.
        may_be_balancer: bool,
    },
    /// Its client has all slots that one may have, and all are of regular probers.
    Surplus,
    /// Every slot is that of a regular prober.
    Full,
}

/// Returns the best slot: a free one, else that of the least important prober.
pub(super) fn slot_for(
    name: &ProberId,
    probers: &BTreeMap<u64, Prober>,
    most: usize,
    rules: Rules,
    now: Moment,
) -> Slot {
    let client = client_key(name.address);
    let own = || probers.iter().filter(|(_, other)| client_key(other.name.address) == client);
    let requests: BTreeSet<_> = own().map(|(_, own)| own.name.request.text.as_str()).collect();
    let many = own().count() >= rules.slots
        || (requests.len() >= rules.requests && !requests.contains(name.request.text.as_str()));
    if many {
        // The surplus of one address is its own affair.
        return lowest_ranked(own(), now)
            .map_or(Slot::Surplus, |(_, key)| Slot::Of { key, may_be_balancer: false });
    }
    if probers.len() < most {
        return Slot::Free;
    }
    if let Some((rank, key)) = lowest_ranked(probers.iter(), now) {
        return Slot::Of { key, may_be_balancer: matches!(rank, Rank::Undecided(..)) };
    }
    beyond_its_share(probers, rules).map_or(Slot::Full, |key| Slot::Of { key, may_be_balancer: true })
}

/// Returns the key of the least important prober, and its importance, unless all are regular.
fn lowest_ranked<'a>(
    probers: impl Iterator<Item = (&'a u64, &'a Prober)>,
    now: Moment,
) -> Option<(Rank, u64)> {
    probers.filter_map(|(key, prober)| Some((Rank::of(&prober.history, now)?, *key))).min()
}

/// Returns the key of a prober that has become regular lately, at an address that has more than its share.
/// That is the latest one of the address that has most.
fn beyond_its_share(probers: &BTreeMap<u64, Prober>, rules: Rules) -> Option<u64> {
    let mut by_age: Vec<_> = probers.iter().collect();
    by_age.sort_by_key(|(_, prober)| prober.history.regular_since());
    let mut slots: BTreeMap<IpAddr, usize> = BTreeMap::new();
    let mut juniors = Vec::new();
    for (age, (key, prober)) in by_age.into_iter().enumerate() {
        let client = client_key(prober.name.address);
        let its = slots.entry(client).or_default();
        *its += 1;
        if age >= SENIORS && *its > rules.keeps {
            juniors.push((client, prober.history.regular_since(), *key));
        }
    }
    let most = |(client, since, _): &(IpAddr, _, _)| (slots.get(client).copied(), *since);
    juniors.into_iter().max_by_key(most).map(|(_, _, key)| key)
}

/// The importance of a prober that is not regular, from least to most.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// A prober that is gone or asks now and then. Of these, the one with the oldest last request goes first.
    Expendable(Moment),
    /// A prober with too few requests to tell. Of these, the one with the fewest requests goes first.
    Undecided(u32, Moment),
}

impl Rank {
    /// Returns `None` for a regular prober, which keeps its slot.
    fn of(history: &ProbeHistory, now: Moment) -> Option<Self> {
        match history.standing(now) {
            Standing::Regular | Standing::Silent => None,
            Standing::Occasional if history.may_become_regular(now) => {
                Some(Self::Undecided(history.times, history.last))
            }
            Standing::Gone | Standing::Occasional => Some(Self::Expendable(history.last)),
        }
    }
}
