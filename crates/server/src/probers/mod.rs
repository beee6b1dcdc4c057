//! The probers: each answer with a verdict is recorded. `nodegate_readiness::probers` has the rules for the
//! records, and concludes from them whether all probers are told.

mod args;
mod probe_request;
mod prober_name;
mod slot;
mod slot_choice;
mod slot_table;
mod takeover;
#[cfg(test)]
mod tests;
mod wake;

pub use args::ProberArgs;
pub(crate) use probe_request::{MOST_OF_AGENT_SEND, ProbeRequest, RequestTarget};
pub(crate) use wake::Wake;

use self::prober_name::Name;
use self::slot::{ServerReport, Slot};
use self::slot_choice::Rules;
use self::slot_table::Table;
use nodegate_http::Networks;
use nodegate_readiness::probers::{
    Asked, DrainStatus, Given, PoolChanges, ProberRecord, ServerState, Standing, ToldSettings, Traffic,
};
use nodegate_readiness::status::Status;
use nodegate_readiness::{Board, CheckId, Moment};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The number of slots for probers whose answer a drain changes. A handful is usual.
const SLOTS: usize = 256;
/// The number of slots for probers whose answer no drain changes. They are only shown.
const SHOWN_ONLY_SLOTS: usize = 64;
/// The number of slots for probers of Services: six load balancers that probe all sixteen Services in two ways.
const SERVICE_SLOTS: usize = 192;

/// The time for which a prober that was regular is shown after its last request. An operator may look for a
/// missing balancer an hour later.
const REMEMBERED: Duration = Duration::from_hours(1);
/// The time for which any other prober is shown.
const STRANGERS_REMEMBERED: Duration = Duration::from_mins(10);

/// The offset of this module's dates. Dates before the start of this agent must be representable, because the
/// previous agent hands them over. So all dates here come from a clock that is a day ahead.
const CLOCK_OFFSET: Duration = Duration::from_hours(24);

/// The probers and their probe requests.
pub(crate) struct Probers {
    /// The probers whose answer a drain changes.
    counted: Table,
    /// The probers whose answer no drain changes.
    shown_only: Table,
    /// The probers of watched Services. They count for told of the Service, and for told of the node if a
    /// drain changes their answer.
    services: Table,
    hasher: RandomState,
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
            counted: Table::new(SLOTS),
            shown_only: Table::new(SHOWN_ONLY_SLOTS),
            services: Table::new(SERVICE_SLOTS),
            hasher: RandomState::new(),
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
        let changes = match request.target {
            RequestTarget::Service { changed: of_service, .. } => {
                PoolChanges { node: changed, latest: changed.max(date(of_service)) }
            }
            _ => changed.into(),
        };
        let state = request.server_state.and_then(ServerState::parse);
        let report = state.map(|state| ServerReport { state: state.state, sessions: state.sessions });
        let key = self.key(request, state);
        let note =
            |slot: &Slot| slot.note(key, given, report, changes, now, |asked| is_forgotten(asked, now));
        let known = match request.target {
            RequestTarget::Service { .. } => self.services.find(key),
            _ => self.counted.find(key).or_else(|| self.shown_only.find(key)),
        };
        if !known.is_some_and(note)
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

    /// Finds a slot for a new prober.
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
        let (table, rules) = self.table_for(&name);
        table.enter(key, name, rules, now)
    }

    /// Returns the table of a prober, and the rules for its slots. One that is only shown takes no slot of one
    /// that counts, and one that probes a Service no slot of one that probes the node.
    fn table_for(&self, name: &Name) -> (&Table, Rules) {
        let (table, rules) = match &name.request {
            request if request.of_service => (&self.services, Rules::SERVICES),
            request if request.drainable => (&self.counted, Rules::STRANGERS),
            _ => (&self.shown_only, Rules::STRANGERS),
        };
        (table, if self.balancers_are_named() { Rules::BALANCERS } else { rules })
    }

    /// Returns true if `--balancers` names the clients that count.
    pub(crate) fn balancers_are_named(&self) -> bool {
        self.settings.get().is_some_and(|settings| !settings.balancers.is_everybody())
    }

    /// Returns the whole status as of `now`, and the time since the last flip.
    pub(crate) fn status(&self, board: &Board, version: &'static str, now: Moment) -> (Status, Duration) {
        // Read before the board, so that no prober has heard more than the board says.
        let asked = self.asked();
        board.read(now, nodegate_clock::wall(), |board| {
            let now = board.now();
            let (probers, drain) = (records(asked, now), self.drain(board, now));
            let mut status = Status::of(board, version);
            for service in status.services.iter_mut().filter_map(|service| service.drain.as_mut()) {
                *service = self.drain_of(&self.services, Duration::from_millis(service.since_ms), board, now);
            }
            (status.with_probers(probers, drain), now.since(board.flipped()))
        })
    }

    /// Returns the name, the record and the report of each prober.
    fn asked(&self) -> Vec<(Name, Asked, ServerReport)> {
        [self.counted.asked(), self.shown_only.asked(), self.services.asked()].concat()
    }

    /// Returns the observed facts of a drain of the node, without a judgement.
    fn drain(&self, board: &Board, now: Moment) -> DrainStatus {
        let settings = self.settings.get();
        let traffic = settings.and_then(|settings| settings.traffic.as_ref());
        let traffic = traffic.map(|traffic| traffic.counted());
        let balancers = settings.map(|settings| settings.balancers.parts()).unwrap_or_default();
        let changed = now.since(board.last_pool_change());
        DrainStatus { balancers, traffic, ..self.drain_of(&self.counted, changed, board, now) }
    }

    /// Returns what the probers in a table show of a pool change `changed` ago.
    fn drain_of(&self, table: &Table, changed: Duration, board: &Board, now: Moment) -> DrainStatus {
        let opened = date(board.opened().unwrap_or(now));
        let since = self.listening_since.get().copied().unwrap_or(opened);
        let (overflows, overflown) = table.overflows();
        let listening = overflown.map_or(since, |overflown| overflown.max(since));
        let told = self.settings.get().map(|settings| settings.told).unwrap_or_default();
        DrainStatus::unjudged(changed, date(now).since(listening), overflows, None, told)
    }

    /// Returns true if a regular or silent prober names this check.
    pub(crate) fn name_check(&self, check: CheckId, now: Moment) -> bool {
        [&self.counted, &self.shown_only].into_iter().any(|table| table.names_check(check, date(now)))
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

fn is_forgotten(asked: &Asked, now: Moment) -> bool {
    let since = now.since(asked.last);
    since > STRANGERS_REMEMBERED && (since > REMEMBERED || asked.standing(now) == Standing::Occasional)
}
