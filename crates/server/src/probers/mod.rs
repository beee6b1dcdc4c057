//! Who asks, and what each was told: noted with each answer that has a verdict.
//!
//! Someone who asks again is found in a table of fixed size by a number made of who it is and what it asks; that and a
//! few stores are all that an answer costs. Only who is new takes a lock ([`names::Names`]), and is understood then.

mod names;
mod question;
mod slot;
#[cfg(test)]
mod tests;

pub(crate) use question::{Asks, MOST_OF_AGENT_SEND, Question};

use self::names::{Name, Names};
use self::slot::Slot;
use crate::networks::Networks;
use nodegate_readiness::probers::{
    Asked, DrainStatus, Given, HaproxyReport, ProberRecord, ServerState, Standing, Traffic,
};
use nodegate_readiness::{AtomicMoment, Board, CheckId, Moment};
use std::array;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// As many probers are remembered. A handful is usual.
const PLACES: usize = 256;

/// For how long one that went on asking is shown after its last question: whoever looks for a balancer that has gone may
/// look an hour later.
const REMEMBERED: Duration = Duration::from_hours(1);
/// And one that did not.
const STRANGERS_REMEMBERED: Duration = Duration::from_mins(10);

/// Who asks what.
pub(crate) struct Probers {
    slots: [Slot; PLACES],
    hasher: RandomState,
    names: Mutex<Names>,
    overflows: AtomicU64,
    overflown: AtomicMoment,
    settings: OnceLock<ProberSettings>,
}

/// What can be set of it.
#[derive(Default)]
pub struct ProberSettings {
    /// Whose questions count.
    pub balancers: Networks,
    /// Counts the connections of clients, if anybody does.
    pub traffic: Option<Arc<dyn CountTraffic>>,
}

/// Knows how many connections clients have to this host's own sockets.
pub trait CountTraffic: Send + Sync {
    /// What it has counted lately; it counts nothing now, and takes no time.
    fn counted(&self) -> Traffic;
}

impl Default for Probers {
    fn default() -> Self {
        Self {
            slots: array::from_fn(|_| Slot::default()),
            hasher: RandomState::new(),
            names: Mutex::new(Names::new(PLACES)),
            overflows: AtomicU64::new(0),
            overflown: AtomicMoment::default(),
            settings: OnceLock::new(),
        }
    }
}

impl Probers {
    /// Sets what can be set, once.
    pub(crate) fn set(&self, settings: ProberSettings) {
        let _ = self.settings.set(settings);
    }

    /// Somebody has asked, and was given this answer.
    pub(crate) fn note(&self, question: &Question<'_>, given: Given, board: &Board, now: Moment) {
        if self.settings.get().is_some_and(|settings| !settings.balancers.contains(question.peer)) {
            return;
        }
        let state = question.server_state.and_then(ServerState::parse);
        let key = self.key(question, state);
        let Some((slot, before)) = self.find(key).or_else(|| self.enter(key, question, state, board, now))
        else {
            return;
        };
        let asked = match before.filter(|before| !is_forgotten(before, now)) {
            Some(before) => before.again(given, board.turned(), now),
            None => Asked::first(given, now),
        };
        slot.store(&asked);
        if let Some(state) = state {
            slot.report(state.state, state.sessions);
        }
        slot.give(key);
    }

    /// Never zero, which is nobody's.
    fn key(&self, question: &Question<'_>, state: Option<ServerState<'_>>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        question.write_to(&mut hasher);
        if let Some(state) = state {
            hasher.write(state.node.as_bytes());
            // In no name.
            hasher.write_u8(b' ');
            hasher.write(state.server.as_bytes());
        }
        hasher.finish() | 1
    }

    /// Most are where their key says. One that took over the place of another is anywhere.
    fn find(&self, key: u64) -> Option<(&Slot, Option<Asked>)> {
        let (before, from) = self.slots.split_at(home(key));
        let slot = from.iter().chain(before).find(|slot| slot.key() == key)?;
        Some((slot, slot.asked()))
    }

    /// Finds a place for somebody new; or for somebody who asks the same in other words, and keeps his.
    #[cold]
    fn enter(
        &self,
        key: u64,
        question: &Question<'_>,
        state: Option<ServerState<'_>>,
        board: &Board,
        now: Moment,
    ) -> Option<(&Slot, Option<Asked>)> {
        let name = Name::new(question.peer.to_canonical(), question.asks.understand(board), state);
        let mut names = self.names();
        if let Some(known) = names.find(&name) {
            let slot = self.slots.get(known)?;
            return Some((slot, slot.asked()));
        }
        let standings = |place: usize| self.slots.get(place).and_then(Slot::asked);
        let place = names.place_for(&name, home(key), now, standings);
        if place.as_ref().is_none_or(|place| place.pushes_out_who_may_be_a_balancer) {
            self.overflow(now);
        }
        let index = place?.index;
        names.put(index, name);
        let slot = self.slots.get(index)?;
        slot.report(None, None);
        Some((slot, None))
    }

    fn overflow(&self, now: Moment) {
        self.overflows.fetch_add(1, Ordering::Relaxed);
        self.overflown.advance(now);
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that are remembered, by address and question.
    pub(crate) fn records(&self, now: Moment) -> Vec<ProberRecord> {
        let names = self.names();
        let mut records: Vec<_> = names
            .all()
            .filter_map(|(index, name)| {
                let slot = self.slots.get(index)?;
                let asked = slot.asked().filter(|asked| !is_forgotten(asked, now))?;
                let text = name.text.clone();
                let mut record = ProberRecord::new(name.address, text, name.drainable, &asked, now);
                record.haproxy = name.haproxy.as_ref().map(|(node, server)| {
                    let (state, sessions) = slot.reported();
                    let (node, server) = (node.clone(), server.clone());
                    HaproxyReport { node, server, state: state.map(|state| state.to_string()), sessions }
                });
                Some(record)
            })
            .collect();
        drop(names);
        records.sort_by_cached_key(|record| (record.address, record.question.clone(), record.who()));
        records
    }

    /// What is seen of a drain, to be judged.
    pub(crate) fn drain(&self, board: &Board, now: Moment) -> DrainStatus {
        let opened = board.opened().unwrap_or(now);
        let listening = self.overflown.get().map_or(opened, |overflown| overflown.max(opened));
        let overflows = self.overflows.load(Ordering::Relaxed);
        let traffic = self.settings.get().and_then(|settings| settings.traffic.as_ref());
        let traffic = traffic.map(|traffic| traffic.counted());
        DrainStatus::unjudged(now.since(board.turned()), now.since(listening), overflows, traffic)
    }

    /// Whether somebody who goes on asking names this check.
    pub(crate) fn name(&self, check: CheckId, now: Moment) -> bool {
        let names = self.names();
        let mut naming = names.all().filter(|(_, name)| name.checks.contains(&check));
        naming.any(|(index, _)| {
            let asked = self.slots.get(index).and_then(Slot::asked);
            let standing = asked.map(|asked| asked.standing(now));
            matches!(standing, Some(Standing::Regular | Standing::Silent))
        })
    }
}

/// Where a key is looked for first.
fn home(key: u64) -> usize {
    usize::try_from(key >> 32).unwrap_or_default() % PLACES
}

fn is_forgotten(asked: &Asked, now: Moment) -> bool {
    let since = now.since(asked.last);
    since > STRANGERS_REMEMBERED && (since > REMEMBERED || asked.standing(now) == Standing::Occasional)
}
