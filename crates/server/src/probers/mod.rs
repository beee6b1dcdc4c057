//! The probers: each answer with a verdict is recorded. `nodegate_readiness::probers` has the rules for the
//! records, and concludes from them whether all probers have acknowledged.

mod args;
mod balancers;
mod probe_request;
mod prober;
mod replacement;
mod table;
#[cfg(test)]
mod tests;

pub use args::ProberArgs;
pub use balancers::Balancers;
pub(crate) use probe_request::{MAX_AGENT_SEND, ProbeRequest, RequestTarget};
pub(crate) use prober::Prober;

use self::probe_request::{ParsedRequest, parse_shown};
use self::prober::{ProberId, RecordedAnswer, ServerReport};
use self::replacement::Rules;
use self::table::Table;
use crate::route::SERVICES_PREFIX;
use nodegate_agent_api::{AckSettings, Predecessor, ProberRecord, Traffic};
use nodegate_http::{KnownClients, Networks};
use nodegate_readiness::probers::{GivenAnswer, ProbeHistory, ProberKind, ServerState};
use nodegate_readiness::{Board, CheckId, Moment};
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// The number of slots for probers whose answer a drain changes. A handful is usual.
const SLOTS: usize = 256;
/// The number of slots for probers whose answer no drain changes. They are only shown.
const SHOWN_ONLY_SLOTS: usize = 64;
/// The number of slots for probers of Services: six load balancers that probe all sixteen Services in two ways.
const SERVICE_SLOTS: usize = 192;

/// The number of clients with places of their own for connections, if no balancers are named: those that have been
/// regular for longest.
const KNOWN: usize = 32;
/// The time after which these are chosen again.
const KNOWN_FOR: Duration = Duration::from_secs(1);

/// The offset of this module's dates. Dates before the start of this agent must be representable, because the
/// previous agent hands them over. So all dates here come from a clock that is a day ahead.
const CLOCK_OFFSET: Duration = Duration::from_hours(24);

/// The probers and their probe requests.
pub(crate) struct Probers {
    tables: Mutex<Tables>,
    hasher: RandomState,
    /// The moment from which the previous agent recorded probers, if its probers were taken over.
    listening_since: OnceLock<Moment>,
    pub(crate) settings: ProberSettings,
    /// The balancers, as far as they are known.
    pub(crate) known: KnownClients,
    /// Notified after each recorded probe.
    pub(crate) noted: Arc<Notify>,
}

struct Tables {
    /// The probers whose answer a drain changes; those of watched Services; and those whose answer no drain changes. A
    /// prober of a Service counts for the acknowledgement of the Service, and for that of the node if a drain changes
    /// its answer. One that is only shown takes no slot of one that counts, and one that probes a Service no slot of
    /// one that probes the node.
    by_kind: [Table; 3],
    /// When the known clients were last chosen.
    chosen: Option<Moment>,
}

impl Tables {
    fn new(are_named: bool) -> Self {
        let rules = |rules| if are_named { Rules::BALANCERS } else { rules };
        let node = Table::new(SLOTS, rules(Rules::STRANGERS));
        let services = Table::new(SERVICE_SLOTS, rules(Rules::SERVICES));
        let shown_only = Table::new(SHOWN_ONLY_SLOTS, rules(Rules::STRANGERS));
        Self { by_kind: [node, services, shown_only], chosen: None }
    }

    /// Returns the table for a prober of this kind.
    fn of(&mut self, kind: ProberKind) -> &mut Table {
        let [node, services, shown_only] = &mut self.by_kind;
        match kind {
            ProberKind::Node { .. } => node,
            ProberKind::Service { .. } => services,
            ProberKind::Other => shown_only,
        }
    }

    fn probers(&self) -> impl Iterator<Item = &Prober> {
        self.by_kind.iter().flat_map(Table::probers)
    }

    /// Returns the addresses of the probers that have been regular for longest.
    fn regular_for_longest(&self, now: Moment) -> Networks {
        let regular = self.probers().filter(|prober| prober.history.standing(now).is_waited_for());
        let mut regular: Vec<_> =
            regular.map(|prober| (prober.history.regular_since(), prober.name.address)).collect();
        regular.sort_unstable();
        let mut chosen = BTreeSet::new();
        for (_, address) in regular {
            if chosen.len() < KNOWN {
                chosen.insert(address);
            }
        }
        chosen.into_iter().collect()
    }
}

/// Since when every prober has been recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listening {
    /// The start of this agent or its predecessor, or the last time at which there were too many.
    pub(crate) since: Moment,
    /// The number of probes from probers that had no slot.
    pub(crate) overflows: u64,
}

/// The settings of the probers.
#[derive(Default)]
pub struct ProberSettings {
    /// The clients that count as probers.
    pub balancers: Balancers,
    /// Returns the latest counts of client connections, without counting now, if the agent counts them.
    pub traffic: Option<Arc<dyn Fn() -> Traffic + Send + Sync>>,
    /// The conditions for an acknowledgement.
    pub acknowledged: AckSettings,
}

impl Probers {
    pub(crate) fn new(settings: ProberSettings) -> Self {
        let tables = Tables::new(!settings.balancers.networks().is_everybody());
        let (hasher, listening_since, known, noted) = <(_, _, KnownClients, _)>::default();
        known.set(settings.balancers.networks().clone());
        Self { tables: Mutex::new(tables), hasher, listening_since, settings, known, noted }
    }

    /// Records that a client sent this probe request and got this answer.
    pub(crate) fn note(&self, request: &ProbeRequest<'_>, given: GivenAnswer, board: &Board, now: Moment) {
        let balancers = &self.settings.balancers;
        if !balancers.networks().contains(request.peer) {
            return;
        }
        // All addresses of a named network are one client.
        let named = balancers.name_of(request.peer).and_then(|name| balancers.first_address(name));
        let request = &ProbeRequest { peer: named.unwrap_or(request.peer), ..*request };
        let (signal, now) = (date(board.last_signal()), date(now));
        let changed = match request.target {
            RequestTarget::Service { changed, .. } => signal.max(date(changed)),
            _ => signal,
        };
        let state = request.server_state.and_then(ServerState::parse);
        let report = state.map(|state| (state.state, state.sessions));
        let (key, answer) = (self.key(request, state), RecordedAnswer { given, report, changed, now });
        let noted = {
            let mut tables = self.tables();
            if tables.chosen.is_none_or(|chosen| now.since(chosen) >= KNOWN_FOR)
                && !self.balancers_are_named()
            {
                tables.chosen = Some(now);
                self.known.set(tables.regular_for_longest(now));
            }
            tables.by_kind.iter_mut().find_map(|table| table.note(key, &answer))
        };
        match noted {
            None => self.enter(key, request, state, &answer, board),
            Some(true) => warn_if_blind(request, board),
            Some(false) => {}
        }
        self.noted.notify_one();
    }

    /// Returns the key of a probe request, which is odd.
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

    /// Records an answer to a prober with a new key.
    #[cold]
    fn enter(
        &self,
        key: u64,
        request: &ProbeRequest<'_>,
        state: Option<ServerState<'_>>,
        answer: &RecordedAnswer,
        board: &Board,
    ) {
        let balancer = self.settings.balancers.name_of(request.peer);
        let name = ProberId::new(request.peer, balancer, request.target.parse(board), state);
        self.tables().of(name.request.kind).enter(key, name, request.on_this_node, answer);
    }

    /// Takes over the predecessor's regular probers with their dates, and returns their number. Must run
    /// before the first answer. Skips probers that this agent would show in other words, and those that do
    /// not count for it.
    pub(crate) fn take_over(&self, predecessor: &Predecessor, board: &Board, now: Moment) -> usize {
        let now = date(now);
        let balancers = &self.settings.balancers;
        let (mut taken, mut lost) = (0, 0);
        for prober in &predecessor.probers {
            let address = balancers.first_address(&prober.address).or_else(|| prober.address.parse().ok());
            if address.is_some_and(|address| !balancers.networks().contains(address)) {
                continue;
            }
            let Some(prober) = address.and_then(|address| self.taken_over(prober, address, board, now))
            else {
                // One that is only shown is no loss.
                lost += usize::from(prober.drainable || prober.request.starts_with(SERVICES_PREFIX));
                continue;
            };
            taken += usize::from(self.tables().of(prober.kind()).take_over(prober, now));
        }
        // The predecessor knew all probers that count for this agent, unless its `--balancers` named other
        // clients or a prober was lost.
        let knew_all = predecessor.balancers.is_empty() || predecessor.balancers == balancers.parts();
        if let Some(listened) = predecessor.listened.filter(|_| knew_all && lost == 0) {
            let _ = self.listening_since.set(now.before(listened).unwrap_or_default());
        }
        taken
    }

    /// Returns the prober as this agent would have recorded it; `None` if it would not have.
    fn taken_over(
        &self,
        prober: &ProberRecord,
        address: IpAddr,
        board: &Board,
        now: Moment,
    ) -> Option<Prober> {
        let request = parse_shown(&prober.request, board)?;
        let state = match &prober.haproxy {
            Some(haproxy) => Some(ServerState::named(&haproxy.node, &haproxy.server)?),
            None => None,
        };
        let name = ProberId::new(address, self.settings.balancers.name_of(address), request, state);
        // A client that has another name for this agent is another one.
        let history = ProbeHistory::taken_over(prober, now).filter(|_| name.client() == prober.address)?;
        let (name, on_this_node) = (Arc::new(name), prober.on_this_node);
        Some(Prober { name, on_this_node, history, report: ServerReport::default() })
    }

    /// Returns true if `--balancers` names the clients that count.
    pub(crate) fn balancers_are_named(&self) -> bool {
        !self.settings.balancers.networks().is_everybody()
    }

    /// Returns the remembered probers, sorted by address and probe request.
    pub(crate) fn remembered(&self, now: Moment) -> Vec<Prober> {
        let is_shown = |prober: &&Prober| !prober.has_expired(date(now));
        let mut remembered: Vec<_> = self.tables().probers().filter(is_shown).cloned().collect();
        remembered.sort_by(|one, other| one.name.order().cmp(&other.name.order()));
        remembered
    }

    /// Returns since when every prober of the node, or else of the Services, has been recorded.
    pub(crate) fn listening(&self, of_node: bool, board: &Board, now: Moment) -> Listening {
        let opened = date(board.opened().unwrap_or(now));
        let since = self.listening_since.get().copied().unwrap_or(opened);
        let tables = self.tables();
        let [node, services, _] = &tables.by_kind;
        let Table { overflows, overflown, .. } = if of_node { node } else { services };
        Listening { since: overflown.map_or(since, |overflown| overflown.max(since)), overflows: *overflows }
    }

    /// Returns true if a regular or silent prober names this check.
    pub(crate) fn name_check(&self, check: CheckId, now: Moment) -> bool {
        let is_waited_for = |prober: &Prober| prober.history.standing(date(now)).is_waited_for();
        let tables = self.tables();
        tables.probers().any(|prober| prober.name.request.checks.contains(&check) && is_waited_for(prober))
    }

    /// Locks the tables, for a few lines that only read or change records.
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Logs a client that has become regular and can't see drains.
fn warn_if_blind(request: &ProbeRequest<'_>, board: &Board) {
    let ParsedRequest { text, kind, .. } = request.target.parse(board);
    if kind == ProberKind::Other && !request.on_this_node {
        tracing::warn!(
            client = %request.peer.to_canonical(),
            request = text,
            "a client regularly sends a request whose answer no drain changes; let it send GET /health by plain \
             HTTP/1.1"
        );
    }
}

/// Converts a moment to the clock of this module.
pub(crate) fn date(moment: Moment) -> Moment {
    moment.plus(CLOCK_OFFSET)
}
