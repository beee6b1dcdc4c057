//! The probers: each answer with a verdict is recorded. `nodegate_readiness::probers` has the rules for the
//! records, and concludes from them whether all probers have acknowledged.

mod args;
mod balancers;
mod probe_request;
mod prober;
mod table;
#[cfg(test)]
mod tests;

pub use args::ProberArgs;
pub use balancers::Balancers;
pub(crate) use probe_request::{MAX_AGENT_SEND, Probe, RequestTarget};
pub(crate) use prober::Prober;

use self::probe_request::{ProbeRequest, parse_shown};
use self::prober::{ProberId, RecordedAnswer, ServerReport};
use self::table::{Overflows, Table};
use crate::route::SERVICES_PREFIX;
use nodegate_agent_api::{AckSettings, Predecessor, ProberRecord, Traffic};
use nodegate_http::{Client, KnownClients, Networks};
use nodegate_readiness::probers::{GivenAnswer, ProbeHistory, ProberKind, ServerState};
use nodegate_readiness::{AtomicMoment, Board, CheckId, Moment};
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// The number of clients with places of their own for connections, if no balancers are named: those that have been
/// regular for longest.
const KNOWN: usize = 32;
/// The time after which these are chosen again.
const KNOWN_FOR: Duration = Duration::from_secs(1);

/// The probers and their probe requests.
pub(crate) struct Probers {
    board: Arc<Board>,
    table: Mutex<Table>,
    /// When the known clients were last chosen.
    chosen: AtomicMoment,
    hasher: RandomState,
    /// The moment from which the previous agent recorded probers, if its probers were taken over.
    listening_since: OnceLock<Moment>,
    pub(crate) settings: ProberSettings,
    /// The balancers, as far as they are known.
    pub(crate) known: KnownClients,
    /// Notified after each recorded probe.
    pub(crate) noted: Arc<Notify>,
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
    pub(crate) fn new(settings: ProberSettings, board: Arc<Board>) -> Self {
        let (hasher, listening_since, known, noted, chosen) = <(_, _, KnownClients, _, _)>::default();
        known.set(settings.balancers.networks().clone());
        let table = Mutex::new(Table::new(!settings.balancers.networks().is_everybody()));
        Self { board, table, chosen, hasher, listening_since, settings, known, noted }
    }

    /// Records that a client sent this probe request and got this answer.
    pub(crate) fn note(&self, request: &Probe, target: RequestTarget<'_>, given: GivenAnswer) {
        let (balancers, mut client) = (&self.settings.balancers, request.client);
        if !balancers.networks().contains(client.address) {
            return;
        }
        // All addresses of a named network are one client.
        let name = balancers.name_of(client.address);
        client.address = name.and_then(|name| balancers.first_address(name)).unwrap_or(client.address);
        let (signal, now) = (self.board.last_signal(), request.at);
        let changed =
            if let RequestTarget::Http { changed, .. } = target { signal.max(changed) } else { signal };
        let state = request.server_state();
        let report = state.map(|state| (state.state, state.sessions));
        let key = self.key(client.address, target, state);
        let answer = RecordedAnswer { given, report, changed, now };
        let noted = {
            let mut table = self.table();
            let is_due = self.chosen.get().is_none_or(|chosen| now.since(chosen) >= KNOWN_FOR);
            if is_due && !table.are_named {
                self.chosen.advance(now);
                self.known.set(regular_for_longest(&table, now));
            }
            table.note(key, &answer)
        };
        match noted {
            None => {
                let id = ProberId::new(client.address, name, target.parse(&self.board), state);
                self.table().enter(key, id, client.on_this_node, &answer);
            }
            Some(true) => warn_if_blind(client, &target.parse(&self.board)),
            Some(false) => {}
        }
        self.noted.notify_one();
    }

    /// Returns the key of a probe request, which is odd.
    fn key(&self, peer: IpAddr, target: RequestTarget<'_>, state: Option<ServerState<'_>>) -> u64 {
        self.hasher.hash_one((peer.to_canonical(), target, state.map(|state| (state.node, state.server)))) | 1
    }

    /// Takes over the predecessor's regular probers with their dates, and returns their number. Must run
    /// before the first answer. Skips probers that this agent would identify otherwise, and those that do
    /// not count for it.
    pub(crate) fn take_over(&self, predecessor: &Predecessor, now: Moment) -> usize {
        let balancers = &self.settings.balancers;
        let (mut taken, mut lost) = (0, 0);
        for prober in &predecessor.probers {
            let address = balancers.first_address(&prober.address).or_else(|| prober.address.parse().ok());
            if address.is_some_and(|address| !balancers.networks().contains(address)) {
                continue;
            }
            let Some(prober) = address.and_then(|address| self.taken_over(prober, address, now)) else {
                // One that no drain waits for is no loss.
                lost += usize::from(prober.sees_drains || prober.request.starts_with(SERVICES_PREFIX));
                continue;
            };
            taken += usize::from(self.table().take_over(prober, now));
        }
        // The predecessor knew all probers that count for this agent, unless its `--balancers` named other
        // clients or a prober was lost.
        let knew_all = predecessor.balancers.is_empty() || predecessor.balancers == balancers.parts();
        if let Some(listened) = predecessor.listened.filter(|_| knew_all && lost == 0) {
            let _ = self.listening_since.set(now.before(listened));
        }
        taken
    }

    /// Returns the prober as this agent would have recorded it; `None` if it would not have.
    fn taken_over(&self, prober: &ProberRecord, address: IpAddr, now: Moment) -> Option<Prober> {
        let request = parse_shown(&prober.request, &self.board)?;
        let state = match &prober.haproxy {
            Some(haproxy) => Some(ServerState::named(&haproxy.node, &haproxy.server)?),
            None => None,
        };
        let id = ProberId::new(address, self.settings.balancers.name_of(address), request, state);
        // A client that has another name for this agent is another one.
        let history = ProbeHistory::taken_over(prober, now).filter(|_| id.client() == prober.address)?;
        let (id, on_this_node) = (Arc::new(id), prober.on_this_node);
        Some(Prober { id, on_this_node, history, report: ServerReport::default() })
    }

    /// Returns true if `--balancers` names the clients that count.
    pub(crate) fn balancers_are_named(&self) -> bool {
        !self.settings.balancers.networks().is_everybody()
    }

    /// Returns the remembered probers, sorted by address and probe request.
    pub(crate) fn remembered(&self, now: Moment) -> Vec<Prober> {
        let is_shown = |prober: &&Prober| !prober.has_expired(now);
        let mut remembered: Vec<_> = self.table().probers().filter(is_shown).cloned().collect();
        remembered.sort_by(|one, other| one.id.order().cmp(&other.id.order()));
        remembered
    }

    /// Returns since when every prober of the node, or else of the Services, has been recorded: the start of this agent
    /// or its predecessor, or the last time at which there were too many; and the number of probes without a slot.
    pub(crate) fn listening(&self, of_node: bool, now: Moment) -> (Moment, u64) {
        let opened = self.board.opened().unwrap_or(now);
        let since = self.listening_since.get().copied().unwrap_or(opened);
        let table = self.table();
        let Overflows { count, last } = if of_node { table.of_node } else { table.of_services };
        (last.map_or(since, |last| last.max(since)), count)
    }

    /// Returns true if a regular or silent prober names this check.
    pub(crate) fn is_check_named(&self, check: CheckId, now: Moment) -> bool {
        let is_waited_for = |prober: &Prober| prober.history.standing(now).is_waited_for();
        self.table()
            .probers()
            .any(|prober| prober.id.request.checks.contains(&check) && is_waited_for(prober))
    }

    /// Locks the table, for a few lines that only read or change records.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the addresses of the probers that have been regular for longest.
fn regular_for_longest(table: &Table, now: Moment) -> Networks {
    let regular = table.probers().filter(|prober| prober.history.standing(now).is_waited_for());
    let regular: BTreeSet<_> =
        regular.map(|prober| (prober.history.regular_since(), prober.id.address)).collect();
    let mut seen = BTreeSet::new();
    let addresses = regular.into_iter().map(|(_, address)| address);
    addresses.filter(|address| seen.insert(*address)).take(KNOWN).collect()
}

/// Logs a client that has become regular and can't see drains.
fn warn_if_blind(client: Client, request: &ProbeRequest) {
    if request.kind == ProberKind::Other && !client.on_this_node {
        tracing::warn!(
            client = %client.address.to_canonical(),
            request = request.text,
            "a client regularly sends a request whose answer no drain changes; let it send GET /health by plain \
             HTTP/1.1"
        );
    }
}
