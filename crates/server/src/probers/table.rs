//! A table of probers of one kind, found by a hash of their identity and of their probe request.

use super::eviction::{self, Rules};
use super::is_forgotten;
use super::probe_request::ParsedRequest;
use nodegate_readiness::probers::{
    Asked, CheckState, Given, HaproxyReport, PoolChanges, ProberRecord, ServerState,
};
use nodegate_readiness::{CheckId, Moment};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The identity of a prober and its probe request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) address: IpAddr,
    pub(super) request: ParsedRequest,
    pub(super) haproxy: Option<(String, String)>,
}

impl Name {
    pub(super) fn new(address: IpAddr, request: ParsedRequest, state: Option<ServerState<'_>>) -> Self {
        let haproxy = state.map(|state| (state.node.to_owned(), state.server.to_owned()));
        Self { address: address.to_canonical(), request, haproxy }
    }
}

/// HAProxy's report about its server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServerReport {
    pub(super) state: Option<CheckState>,
    pub(super) sessions: Option<u32>,
}

/// An answer that a prober got.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) given: Given,
    pub(super) report: Option<ServerReport>,
    pub(super) changes: PoolChanges,
    pub(super) now: Moment,
}

/// A prober with its record.
#[derive(Clone, Debug)]
pub(super) struct Prober {
    pub(super) name: Arc<Name>,
    pub(super) on_this_node: bool,
    pub(super) asked: Asked,
    pub(super) report: ServerReport,
}

impl Prober {
    fn note(&mut self, answer: &Answer) {
        let Answer { given, report, changes, now } = *answer;
        self.asked = if is_forgotten(&self.asked, now) {
            Asked::first(given, now)
        } else {
            self.asked.again(given, changes, now)
        };
        self.report = report.unwrap_or(self.report);
    }

    pub(super) fn record(&self, now: Moment) -> ProberRecord {
        let ParsedRequest { text, drainable, .. } = &self.name.request;
        let mut record = ProberRecord::new(self.name.address, text.clone(), *drainable, &self.asked, now);
        record.on_this_node = self.on_this_node;
        record.haproxy = self.name.haproxy.as_ref().map(|(node, server)| HaproxyReport {
            node: node.clone(),
            server: server.clone(),
            state: self.report.state.map(|state| state.to_string()),
            sessions: self.report.sessions.map(u64::from),
        });
        record
    }
}

/// The probers by the key of their probe request. Keys are odd; one that has not asked this agent yet has an even
/// one.
#[derive(Debug)]
pub(super) struct Table {
    most: usize,
    probers: BTreeMap<u64, Prober>,
    taken_over: u64,
    /// The number of probes that found no slot, or took that of a prober that may be a balancer.
    pub(super) overflows: u64,
    pub(super) overflown: Option<Moment>,
}

impl Table {
    pub(super) fn new(most: usize) -> Self {
        Self { most, probers: BTreeMap::new(), taken_over: 0, overflows: 0, overflown: None }
    }

    /// Records an answer. Returns false if no prober has this key.
    pub(super) fn note(&mut self, key: u64, answer: &Answer) -> bool {
        self.probers.get_mut(&key).map(|prober| prober.note(answer)).is_some()
    }

    /// Records an answer to a prober with a new key. A prober that sends the same probe request in other words
    /// keeps its record.
    pub(super) fn enter(&mut self, key: u64, name: Name, on_this_node: bool, answer: &Answer, rules: Rules) {
        let known = self.find(&name).and_then(|known| self.probers.remove(&known));
        if let Some(mut prober) = known {
            prober.note(answer);
            self.probers.insert(key, prober);
        } else if self.make_room(&name, rules, answer.now) {
            let (asked, report) = (Asked::first(answer.given, answer.now), answer.report.unwrap_or_default());
            self.probers.insert(key, Prober { name: Arc::new(name), on_this_node, asked, report });
        }
    }

    /// Takes over a prober of the previous agent; returns false if it is here already, or if there is no slot for
    /// it.
    pub(super) fn take_over(&mut self, prober: Prober, rules: Rules, now: Moment) -> bool {
        if self.find(&prober.name).is_some() || !self.make_room(&prober.name, rules, now) {
            return false;
        }
        self.taken_over += 2;
        self.probers.insert(self.taken_over, prober);
        true
    }

    fn find(&self, name: &Name) -> Option<u64> {
        self.probers.iter().find(|(_, known)| *known.name == *name).map(|(key, _)| *key)
    }

    /// Returns true if there is a slot for a new prober. Drops another one for it if need be.
    fn make_room(&mut self, name: &Name, rules: Rules, now: Moment) -> bool {
        self.probers.retain(|_, prober| !is_forgotten(&prober.asked, now));
        let room = eviction::room_for(name, &self.probers, self.most, rules, now);
        if room.as_ref().is_none_or(|room| room.evicts_possible_balancer) {
            self.overflows += 1;
            self.overflown = self.overflown.max(Some(now));
        }
        if let Some(key) = room.as_ref().and_then(|room| room.evicts) {
            self.probers.remove(&key);
        }
        debug_assert!(self.probers.len() <= self.most);
        room.is_some()
    }

    pub(super) fn probers(&self) -> impl Iterator<Item = &Prober> {
        self.probers.values()
    }

    /// Returns true if a regular or silent prober names this check.
    pub(super) fn names_check(&self, check: CheckId, now: Moment) -> bool {
        self.probers().any(|prober| {
            prober.name.request.checks.contains(&check) && prober.asked.standing(now).is_waited_for()
        })
    }
}
