//! The probers: each answer with a verdict is recorded.
//!
//! `nodegate_readiness::probers` has the rules for the records, and concludes from them whether all are told.
//!
//! A known prober is found in a table of fixed size, by a hash of its identity and its probe request. That
//! and a few stores behind the slot's own lock are the whole cost of an answer. Only a new prober takes the
//! table's lock ([`slot_owners::ProberNames`]), and only then is its request parsed.

mod args;
mod name;
mod probe_request;
mod slot;
mod slot_choice;
mod slot_owners;
mod takeover;
#[cfg(test)]
mod tests;
mod wake;

pub use args::ProberArgs;
pub(crate) use probe_request::{MOST_OF_AGENT_SEND, ProbeRequest, RequestTarget};
pub(crate) use wake::Wake;

use self::name::Name;
use self::slot::{ServerReport, Slot};
use self::slot_choice::Rules;
use self::slot_owners::ProberNames;
use nodegate_http::Networks;
use nodegate_readiness::probers::{
    Asked, DrainStatus, Given, ProberRecord, ServerState, Standing, ToldSettings, Traffic,
};
use nodegate_readiness::status::Status;
use nodegate_readiness::{AtomicMoment, Board, CheckId, Moment};
use std::array;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// The number of slots for probers whose answer a drain changes. A handful is usual.
const SLOTS: usize = 256;
/// The number of slots for probers whose answer no drain changes. They are only shown.
const SHOWN_ONLY_SLOTS: usize = 64;

/// The time for which a prober that was regular is shown after its last request. An operator may look for a
/// missing balancer an hour later.
const REMEMBERED: Duration = Duration::from_hours(1);
/// The time for which any other prober is shown.
const STRANGERS_REMEMBERED: Duration = Duration::from_mins(10);

/// The offset of this module's dates. Dates before the start of this agent must be representable, because the
/// previous agent hands them over. So all dates here come from a clock that is a day ahead.
const CLOCK_OFFSET: Duration = Duration::from_hours(24);

/// The table of probers and their probe requests.
pub(crate) struct Probers {
    slots: [Slot; SLOTS + SHOWN_ONLY_SLOTS],
    hasher: RandomState,
    names: Mutex<ProberNames>,
    overflows: AtomicU64,
    overflown: AtomicMoment,
    /// The moment from which the previous agent recorded probers, if its probers were taken over.
    listening_since: OnceLock<Moment>,
    settings: OnceLock<ProberSettings>,
    /// Woken after each recorded probe.
    pub(crate) wake: Arc<Wake>,
}

/// The settings of the probers.
#[derive(Default)]
pub struct ProberSettings {
    /// The clients that count as probers.
    pub balancers: Networks,
    /// The counter of client connections, if the agent counts them.
    pub traffic: Option<Arc<dyn CountTraffic>>,
    /// The conditions for an acknowledgement.
    pub told: ToldSettings,
}

/// Counts the connections of clients to this host's own sockets.
pub trait CountTraffic: Send + Sync {
    /// Returns the latest counts. Does not count now, and does not block.
    fn counted(&self) -> Traffic;
}

impl Default for Probers {
    fn default() -> Self {
        Self {
            slots: array::from_fn(|_| Slot::default()),
            hasher: RandomState::new(),
            names: Mutex::new(ProberNames::new(SLOTS + SHOWN_ONLY_SLOTS)),
            overflows: AtomicU64::new(0),
            overflown: AtomicMoment::default(),
            listening_since: OnceLock::new(),
            settings: OnceLock::new(),
            wake: Arc::default(),
        }
    }
}

impl Probers {
    /// Sets the settings; only the first call has an effect.
    pub(crate) fn set(&self, settings: ProberSettings) {
        let _ = self.settings.set(settings);
    }

    /// Records that a client sent this probe request and got this answer.
    pub(crate) fn note(&self, request: &ProbeRequest<'_>, given: Given, board: &Board, now: Moment) {
        if self.settings.get().is_some_and(|settings| !settings.balancers.contains(request.peer)) {
            return;
        }
        let (changed, now) = (date(board.last_pool_change()), date(now));
        let state = request.server_state.and_then(ServerState::parse);
        let report = state.map(|state| ServerReport { state: state.state, sessions: state.sessions });
        let key = self.key(request, state);
        let note =
            |slot: &Slot| slot.note(key, given, report, changed, now, |asked| is_forgotten(asked, now));
        if !self.find(key).is_some_and(note)
            && let Some(slot) = self.enter(key, request, state, board, now)
        {
            // If another prober has taken the slot by now, the table overflowed, and the overflow is counted.
            note(slot);
        }
        self.wake.wake();
    }

    /// Returns the key of a probe request: never zero, which means a free slot, and always odd.
    fn key(&self, request: &ProbeRequest<'_>, state: Option<ServerState<'_>>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        request.write_to(&mut hasher);
        if let Some(state) = state {
            hasher.write(state.node.as_bytes());
            // A separator that no name contains.
            hasher.write_u8(b' ');
            hasher.write(state.server.as_bytes());
        }
        hasher.finish() | 1
    }

    /// Finds the slot with this key. Most are where the key points; one that replaced another prober can be
    /// anywhere.
    fn find(&self, key: u64) -> Option<&Slot> {
        let (before, from) = self.slots.split_at(home(key, &(0..SLOTS)));
        from.iter().chain(before).find(|slot| slot.key() == key)
    }

    /// Finds a slot for a new prober. A prober that sends the same probe request in other words keeps its
    /// slot.
    #[cold]
    fn enter(
        &self,
        key: u64,
        request: &ProbeRequest<'_>,
        state: Option<ServerState<'_>>,
        board: &Board,
        now: Moment,
    ) -> Option<&Slot> {
        let address = request.peer.to_canonical();
        let name = Name::new(address, request.on_this_node, request.target.parse(board), state);
        let mut names = self.names();
        if let Some(known) = names.find(&name) {
            let slot = self.slots.get(known)?;
            slot.rename(key);
            return Some(slot);
        }
        let slot = self.assign_slot(&mut names, name, key, now)?;
        slot.give(key, None);
        Some(slot)
    }

    /// Finds a slot, and writes the name there. A prober that is only shown takes no slot of one that counts.
    fn assign_slot(&self, names: &mut ProberNames, name: Name, key: u64, now: Moment) -> Option<&Slot> {
        let among = if name.drainable { 0..SLOTS } else { SLOTS..SLOTS + SHOWN_ONLY_SLOTS };
        let home = home(key, &among);
        let standings = |index: usize| self.slots.get(index).and_then(Slot::asked);
        let choice = names.slot_for(&name, among, home, self.rules(), now, standings);
        if name.drainable && choice.as_ref().is_none_or(|choice| choice.evicts_possible_balancer) {
            self.overflow(now);
        }
        let index = choice?.index;
        names.put(index, name);
        self.slots.get(index)
    }

    fn rules(&self) -> Rules {
        if self.balancers_are_named() { Rules::BALANCERS } else { Rules::STRANGERS }
    }

    /// Returns true if `--balancers` names the clients that count.
    pub(crate) fn balancers_are_named(&self) -> bool {
        self.settings.get().is_some_and(|settings| !settings.balancers.is_everybody())
    }

    fn overflow(&self, now: Moment) {
        self.overflows.fetch_add(1, Ordering::Relaxed);
        self.overflown.advance(now);
    }

    fn names(&self) -> MutexGuard<'_, ProberNames> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the whole status as of `now`, and the time since the last flip.
    pub(crate) fn status(&self, board: &Board, version: &'static str, now: Moment) -> (Status, Duration) {
        // Read before the board, so that no prober has heard more than the board says.
        let asked = self.asked();
        board.read(now, nodegate_clock::wall(), |board| {
            let now = board.now();
            let (probers, drain) = (records(asked, now), self.drain(board, now));
            let status = Status::of(board, version).with_probers(probers, drain);
            (status, now.since(board.flipped()))
        })
    }

    /// Returns the name, the record and the report of each prober.
    fn asked(&self) -> Vec<(Name, Asked, ServerReport)> {
        let names = self.names();
        let asked = names.all().filter_map(|(index, name)| {
            let (asked, report) = self.slots.get(index)?.reported()?;
            Some((name.clone(), asked, report))
        });
        asked.collect()
    }

    /// Returns the observed facts of a drain, without a judgement.
    fn drain(&self, board: &Board, now: Moment) -> DrainStatus {
        let opened = date(board.opened().unwrap_or(now));
        let since = self.listening_since.get().copied().unwrap_or(opened);
        let listening = self.overflown.get().map_or(since, |overflown| overflown.max(since));
        let overflows = self.overflows.load(Ordering::Relaxed);
        let settings = self.settings.get();
        let traffic = settings.and_then(|settings| settings.traffic.as_ref());
        let traffic = traffic.map(|traffic| traffic.counted());
        let told = settings.map(|settings| settings.told).unwrap_or_default();
        let (changed, listened) = (now.since(board.last_pool_change()), date(now).since(listening));
        let balancers = settings.map(|settings| settings.balancers.parts()).unwrap_or_default();
        DrainStatus { balancers, ..DrainStatus::unjudged(changed, listened, overflows, traffic, told) }
    }

    /// Returns true if a regular or silent prober names this check.
    pub(crate) fn name(&self, check: CheckId, now: Moment) -> bool {
        let now = date(now);
        let names = self.names();
        let mut naming = names.all().filter(|(_, name)| name.checks.contains(&check));
        naming.any(|(index, _)| {
            let asked = self.slots.get(index).and_then(Slot::asked);
            let standing = asked.map(|asked| asked.standing(now));
            matches!(standing, Some(Standing::Regular | Standing::Silent))
        })
    }
}

/// Returns all remembered probers, sorted by address and probe request.
fn records(asked: Vec<(Name, Asked, ServerReport)>, now: Moment) -> Vec<ProberRecord> {
    let now = date(now);
    let remembered = asked.into_iter().filter(|(_, asked, _)| !is_forgotten(asked, now));
    let mut records: Vec<_> =
        remembered.map(|(name, asked, report)| name.record(&asked, report, now)).collect();
    records.sort_by_cached_key(|record| (record.address, record.request.clone(), record.who()));
    records
}

/// Converts a moment to the clock of this module.
fn date(moment: Moment) -> Moment {
    moment.plus(CLOCK_OFFSET)
}

/// Returns the index at which the search for a key starts.
fn home(key: u64, among: &Range<usize>) -> usize {
    among.start + usize::try_from(key >> 32).unwrap_or_default() % among.len().max(1)
}

fn is_forgotten(asked: &Asked, now: Moment) -> bool {
    let since = now.since(asked.last);
    since > STRANGERS_REMEMBERED && (since > REMEMBERED || asked.standing(now) == Standing::Occasional)
}
