//! Chooses the prober to drop when all slots are taken, or when one address has all slots it may have.

use super::is_forgotten;
use super::prober_name::Name;
use nodegate_http::holder_of;
use nodegate_readiness::Moment;
use nodegate_readiness::probers::{Asked, Standing};
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

pub(super) struct SlotChoice {
    pub(super) index: usize,
    /// True if the prober in the slot is regular, or may be about to become regular.
    pub(super) evicts_possible_balancer: bool,
}

/// A slot that is taken.
type Occupied<'a> = (usize, &'a Name, Asked);

/// Returns the best slot: a free one near `home`, else the one of the least important prober.
pub(super) fn find(
    name: &Name,
    taken: Vec<Occupied<'_>>,
    slots: usize,
    home: usize,
    rules: Rules,
    now: Moment,
) -> Option<SlotChoice> {
    let taken: Vec<_> = taken.into_iter().filter(|(_, _, asked)| !is_forgotten(asked, now)).collect();
    let client = holder_of(name.address);
    let own = || taken.iter().filter(|(_, other, _)| holder_of(other.address) == client);
    let requests: BTreeSet<_> = own().map(|(_, own, _)| own.request.text.as_str()).collect();
    let many = own().count() >= rules.slots
        || (requests.len() >= rules.requests && !requests.contains(name.request.text.as_str()));
    if many {
        return lowest_ranked(own(), now);
    }
    let is_free = |index: &usize| taken.iter().all(|(other, _, _)| other != index);
    let mut near = (home..slots).chain(0..home);
    if let Some(index) = near.find(is_free) {
        return Some(SlotChoice { index, evicts_possible_balancer: false });
    }
    lowest_ranked(taken.iter(), now).or_else(|| {
        let index = beyond_its_share(&taken, rules)?;
        Some(SlotChoice { index, evicts_possible_balancer: true })
    })
}

/// Returns the slot of the least important prober, unless all are regular.
fn lowest_ranked<'a>(taken: impl Iterator<Item = &'a Occupied<'a>>, now: Moment) -> Option<SlotChoice> {
    let ranked = taken.map(|(index, _, asked)| (Rank::of(asked, now), *index));
    let (ranked, index) = ranked.min_by_key(|(ranked, _)| *ranked)?;
    match ranked {
        Rank::Regular => None,
        Rank::Expendable(_) => Some(SlotChoice { index, evicts_possible_balancer: false }),
        Rank::Undecided(..) => Some(SlotChoice { index, evicts_possible_balancer: true }),
    }
}

/// Returns the slot of a prober that has become regular lately, at an address that has more than its share.
/// It is the latest one of the address that has most.
fn beyond_its_share(taken: &[Occupied<'_>], rules: Rules) -> Option<usize> {
    let mut by_age: Vec<_> = taken.iter().collect();
    by_age.sort_by_key(|(_, _, asked)| asked.regular_since());
    let mut slots: BTreeMap<IpAddr, usize> = BTreeMap::new();
    let mut juniors = Vec::new();
    for (age, (index, name, asked)) in by_age.into_iter().enumerate() {
        let client = holder_of(name.address);
        let its = slots.entry(client).or_default();
        *its += 1;
        if age >= SENIORS && *its > rules.keeps {
            juniors.push((client, asked.regular_since(), *index));
        }
    }
    let most = |(client, since, _): &(IpAddr, _, _)| (slots.get(client).copied(), *since);
    juniors.into_iter().max_by_key(most).map(|(_, _, index)| index)
}

/// The importance of a prober, from least to most.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// A prober that is gone or asks now and then. Of these, the one with the oldest last request goes first.
    Expendable(Moment),
    /// A prober with too few requests to tell. Of these, the one with the fewest requests goes first.
    Undecided(u32, Moment),
    /// A regular prober, which keeps its slot.
    Regular,
}

impl Rank {
    fn of(asked: &Asked, now: Moment) -> Self {
        match asked.standing(now) {
            Standing::Regular | Standing::Silent => Self::Regular,
            Standing::Occasional if asked.may_become_regular(now) => Self::Undecided(asked.times, asked.last),
            Standing::Gone | Standing::Occasional => Self::Expendable(asked.last),
        }
    }
}
