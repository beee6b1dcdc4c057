//! The table of the probers, found by a hash of their identity and of their probe request; and the choice of the prober
//! to drop when all slots of its kind are taken, or when one address has all that it may have.

use super::prober::{Prober, ProberId, RecordedAnswer};
use nodegate_http::client_key;
use nodegate_readiness::Moment;
use nodegate_readiness::probers::{ProbeHistory, ProberKind};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;
use std::net::IpAddr;
use std::sync::Arc;

/// The slots for probers of one kind. One that is only shown takes no slot of one that counts, and one that probes a
/// Service no slot of one that probes the node.
#[derive(Clone, Copy, Debug)]
struct SlotLimits {
    /// The number of all slots.
    all: usize,
    /// The maximum number of different probe requests of one client. No balancer sends more, and one client must not
    /// take all slots.
    requests: usize,
    /// The maximum number of slots of one client, e.g. for the backends of one HAProxy that sends their names.
    each: usize,
    /// The number of regular probers that a client always keeps.
    keeps: usize,
}

impl SlotLimits {
    fn of(kind: ProberKind, are_named: bool) -> Self {
        let (all, requests) = match kind {
            // A handful is usual.
            ProberKind::Node { .. } => (256, 8),
            // Six load balancers that probe all sixteen Services in two ways: as a server and as one of the last resort.
            ProberKind::Service { .. } => (192, 32),
            // They are only shown.
            ProberKind::Other => (64, 8),
        };
        if are_named {
            // All of them are clients in `--balancers`.
            Self { all, requests: 64, each: usize::MAX, keeps: usize::MAX }
        } else {
            Self { all, requests, each: 128, keeps: 32 }
        }
    }
}

/// The number of probers that always keep their slots: those that have been regular for longest.
const SENIORS: usize = 128;

/// The overflows of probers of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overflows {
    /// The number of probes that found no slot, or took that of a prober that may be a balancer.
    pub(super) count: u64,
    /// The time of the latest one.
    pub(super) last: Option<Moment>,
}

/// The probers by the key of their probe request. Keys are odd; a prober that was taken over has an even one until its
/// first probe here. A prober of a Service counts for the acknowledgement of the Service, and for that of the node if a
/// drain changes its answer.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// True if `--balancers` names the clients that count.
    pub(super) are_named: bool,
    probers: BTreeMap<u64, Prober>,
    taken_over: u64,
    pub(super) of_node: Overflows,
    pub(super) of_services: Overflows,
}

impl Table {
    pub(super) fn new(are_named: bool) -> Self {
        Self { are_named, ..Self::default() }
    }

    /// Records an answer. Returns `None` if no prober has this key, else whether it has just become regular.
    pub(super) fn note(&mut self, key: u64, answer: &RecordedAnswer) -> Option<bool> {
        let prober = self.probers.get_mut(&key)?;
        let was_regular = prober.history.regular_since().is_some();
        prober.record_answer(answer);
        Some(!was_regular && prober.history.regular_since().is_some())
    }

    /// Records an answer to a prober with a new key. A prober that sends the same probe request in other words
    /// keeps its record.
    pub(super) fn enter(&mut self, key: u64, id: ProberId, on_this_node: bool, answer: &RecordedAnswer) {
        let known = self.find(&id).and_then(|known| self.probers.remove(&known));
        if let Some(mut prober) = known {
            prober.record_answer(answer);
            self.probers.insert(key, prober);
        } else if self.make_room(&id, answer.now) {
            let (history, report) =
                (ProbeHistory::first(answer.given, answer.now), answer.report.unwrap_or_default());
            self.probers.insert(key, Prober { id: Arc::new(id), on_this_node, history, report });
        }
    }

    /// Takes over a prober of the previous agent; returns false if it is here already, or if there is no slot for
    /// it.
    pub(super) fn take_over(&mut self, prober: Prober, now: Moment) -> bool {
        if self.find(&prober.id).is_some() || !self.make_room(&prober.id, now) {
            return false;
        }
        self.taken_over += 2;
        self.probers.insert(self.taken_over, prober);
        true
    }

    fn find(&self, id: &ProberId) -> Option<u64> {
        self.probers.iter().find(|(_, known)| *known.id == *id).map(|(key, _)| *key)
    }

    /// Returns true if there is a slot for a new prober. Drops the least important one for it if need be.
    fn make_room(&mut self, id: &ProberId, now: Moment) -> bool {
        self.probers.retain(|_, prober| !prober.has_expired(now));
        let slots = SlotLimits::of(id.request.kind, self.are_named);
        let kind = discriminant(&id.request.kind);
        let taken: Vec<_> =
            self.probers.iter().filter(|(_, other)| discriminant(&other.kind()) == kind).collect();
        let client = client_key(id.address);
        let own: Vec<_> =
            taken.iter().copied().filter(|(_, other)| client_key(other.id.address) == client).collect();
        let requests: BTreeSet<_> = own.iter().map(|(_, own)| own.id.request.text.as_str()).collect();
        let has_all = own.len() >= slots.each
            || (requests.len() >= slots.requests && !requests.contains(id.request.text.as_str()));
        let dropped = if has_all {
            // The surplus of one address is its own affair.
            lowest_ranked(&own, now).map(|(_, key)| key)
        } else if taken.len() < slots.all {
            return true;
        } else {
            let lowest = lowest_ranked(&taken, now);
            let overflows = match id.request.kind {
                ProberKind::Node { .. } => Some(&mut self.of_node),
                ProberKind::Service { .. } => Some(&mut self.of_services),
                ProberKind::Other => None,
            };
            let may_be_balancer = lowest.is_none_or(|((may_be_balancer, ..), _)| may_be_balancer);
            if let Some(overflows) = overflows.filter(|_| may_be_balancer) {
                *overflows = Overflows { count: overflows.count + 1, last: overflows.last.max(Some(now)) };
            }
            lowest.map(|(_, key)| key).or_else(|| beyond_its_share(taken, slots))
        };
        dropped.and_then(|key| self.probers.remove(&key)).is_some()
    }

    pub(super) fn probers(&self) -> impl Iterator<Item = &Prober> {
        self.probers.values()
    }
}

/// Returns the key of the least important prober, and its importance, unless all are regular.
fn lowest_ranked(probers: &[(&u64, &Prober)], now: Moment) -> Option<(Rank, u64)> {
    probers.iter().filter_map(|(key, prober)| Some((rank(&prober.history, now)?, **key))).min()
}

/// Returns the key of a prober that has become regular lately, at an address that has more than its share.
/// That is the latest one of the address that has most.
fn beyond_its_share(mut by_age: Vec<(&u64, &Prober)>, slots: SlotLimits) -> Option<u64> {
    by_age.sort_by_key(|(_, prober)| prober.history.regular_since());
    let mut taken: BTreeMap<IpAddr, usize> = BTreeMap::new();
    let mut juniors = Vec::new();
    for (age, (key, prober)) in by_age.into_iter().enumerate() {
        let client = client_key(prober.id.address);
        let its = taken.entry(client).or_default();
        *its += 1;
        if age >= SENIORS && *its > slots.keeps {
            juniors.push((client, prober.history.regular_since(), *key));
        }
    }
    let most = |(client, since, _): &(IpAddr, _, _)| (taken.get(client).copied(), *since);
    juniors.into_iter().max_by_key(most).map(|(_, _, key)| key)
}

/// Returns the importance of a prober that is not regular; `None` for a regular one, which keeps its slot. Dropped first
/// are those that are gone or ask now and then, the one with the oldest last request before the others; then those that
/// may still become regular, the one with the fewest requests before the others.
fn rank(history: &ProbeHistory, now: Moment) -> Option<Rank> {
    let may_be_balancer = history.may_become_regular(now);
    let rank = (may_be_balancer, if may_be_balancer { history.times } else { 0 }, history.last);
    (!history.standing(now).is_waited_for()).then_some(rank)
}

/// Whether it may be a balancer, the number of its requests if that counts, and the time of the latest.
type Rank = (bool, u32, Moment);
