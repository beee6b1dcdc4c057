//! Holds the state and the answers that are rendered from it. One writer at a time updates it; readers take
//! no lock.

pub(crate) mod answers;
mod freshness;
mod service_board;
mod unknown_ready;
pub(crate) mod view;

pub use freshness::{Freshness, LastFacts, LastKnown};
pub use service_board::ServiceView;

use crate::answer::Answer;
use crate::check::{Catalog, CheckId, CheckReport, Verdict, verdict};
use crate::drain_budget::Kept;
use crate::facts::Node;
use crate::flips::{Flip, RECOVERED, REMEMBERED};
use crate::host_signals::HostSignals;
use crate::moment::{AtomicMoment, Moment, millis, since_epoch};
use crate::query::{CheckRef, Query, known};
use crate::reason::Reason;
use crate::rules::{CACHE_STALE, Policy};
use crate::service::WatchedService;
use crate::state::{LocalResult, Reporter, State};
use arc_swap::{ArcSwap, ArcSwapOption};
use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

/// The time without a request after which the board drops a query, and a check that a query started stops.
pub const IDLE: Duration = Duration::from_mins(10);

/// The facts, the check results and the answers rendered from them.
pub struct Board {
    node_name: Option<String>,
    policy: Policy,
    /// The policy for `?excluded=200`.
    without_label: Policy,
    catalog: Catalog,
    default_checks: Vec<CheckRef>,
    proof: AtomicMoment,
    /// Why there is no proof, since the last one.
    trouble: ArcSwapOption<String>,
    /// The age of the facts that were taken over from an earlier agent, and when that happened. These facts are
    /// never fresh: this agent has no proof of them.
    taken_over: OnceLock<(Duration, Moment)>,
    /// The time of the last request that named each local check.
    asked: Vec<AtomicMoment>,
    opened: AtomicMoment,
    last_pool_change: AtomicMoment,
    last_signal: AtomicMoment,
    flipped: AtomicMoment,
    writer: Mutex<Writer>,
    published: ArcSwap<Published>,
    /// Called for each flip. The board calls this, like the next two, outside of any lock.
    pub on_flip: OnceLock<FlipListener>,
    /// Starts a local check that becomes [needed](Board::needed).
    pub on_need: OnceLock<Listener<CheckId>>,
    /// Called after each flip, and after each change of a Service's endpoints.
    pub after_change: OnceLock<Listener<()>>,
}

/// A state and its rendered answers. It is immutable: each change of state creates a new one.
#[derive(Clone)]
struct Published {
    /// The facts and the check results.
    state: Arc<State>,
    /// The answers by query, of which there are so few that a probe finds its own sooner than by a hash. That to a request
    /// without a query is always there.
    rendered: Vec<(Box<str>, Rendered)>,
}

/// A query whose answer is rendered when the state changes.
#[derive(Clone)]
struct Rendered {
    query: Arc<Query>,
    answer: Answer,
    /// The time of the last request with this query; the only part that changes.
    asked: Arc<AtomicMoment>,
}

/// Code that waits for an event on the board.
pub type Listener<T> = Box<dyn Fn(T) + Send + Sync>;
/// The same for flips.
pub type FlipListener = Box<dyn Fn(&Flip) + Send + Sync>;

/// The state that only the writer uses.
#[derive(Default)]
struct Writer {
    /// The latest moment for which the verdict was computed.
    latest: Moment,
    /// The verdict; `None` before the first one, which is no flip.
    verdict: Option<Verdict>,
    /// The last [`REMEMBERED`] flips, the newest first, each with its time.
    flips: VecDeque<(Moment, Flip)>,
    /// The drain signals in effect.
    signals: Vec<Reason>,
    last_reasons: BTreeMap<CheckId, Reason>,
}

impl Board {
    /// Creates a board without facts. Without a node name it has no verdict, and flips nothing.
    pub fn new(
        node_name: Option<String>,
        policy: Policy,
        catalog: Catalog,
        default_checks: &[CheckId],
    ) -> Self {
        let default_checks: Vec<CheckRef> = default_checks.iter().copied().map(CheckRef::Known).collect();
        let state = State {
            local: vec![None; catalog.local_ids().count()],
            services: vec![WatchedService::default(); catalog.services().count()],
            ..State::default()
        };
        let board = Self {
            node_name,
            without_label: Policy { drain_on: policy.drain_on.without_label(), ..policy.clone() },
            policy,
            catalog,
            default_checks,
            proof: AtomicMoment::default(),
            trouble: ArcSwapOption::empty(),
            taken_over: OnceLock::new(),
            asked: state.local.iter().map(|_| AtomicMoment::default()).collect(),
            opened: AtomicMoment::default(),
            last_pool_change: AtomicMoment::default(),
            last_signal: AtomicMoment::default(),
            flipped: AtomicMoment::default(),
            writer: Mutex::default(),
            published: ArcSwap::from_pointee(Published { state: Arc::new(state), rendered: Vec::new() }),
            on_flip: OnceLock::new(),
            on_need: OnceLock::new(),
            after_change: OnceLock::new(),
        };
        board.remember("", &Query::default(), Moment::default());
        board
    }

    /// Returns the state.
    pub fn state(&self) -> Arc<State> {
        Arc::clone(&self.published.load().state)
    }

    /// Returns the reports of the checks that decide the verdict, as of `now`.
    pub fn default_reports(&self, now: Moment) -> Vec<CheckReport> {
        self.reporter(now).reports(&self.default_checks)
    }

    /// Returns true if only the exclusion label takes the node out.
    pub fn is_out_by_label_alone(&self, now: Moment) -> bool {
        let mut reporter = self.reporter(now);
        let with_label = verdict(&reporter.reports(&self.default_checks));
        reporter.policy = &self.without_label;
        with_label == Verdict::Draining && verdict(&reporter.reports(&self.default_checks)) == Verdict::Ready
    }

    /// Returns the report of one check, as of `now`.
    pub fn report(&self, id: CheckId, now: Moment) -> CheckReport {
        self.reporter(now).report(id)
    }

    /// Returns what reports on the checks, as of `now`. Freshness is read before the state, because proof is recorded
    /// after the state that it proves. So no old state counts as fresh.
    fn reporter(&self, now: Moment) -> Reporter<'_> {
        let stale = self.freshness(now).stale;
        Reporter { catalog: &self.catalog, policy: &self.policy, state: self.state(), stale, now }
    }

    /// Returns the time at which the ports opened; `None` before.
    pub fn opened(&self) -> Option<Moment> {
        self.opened.get()
    }

    /// Returns the node's name, if it is set.
    pub fn node_name(&self) -> Option<&str> {
        self.node_name.as_deref()
    }

    /// Returns the checks that exist.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Returns the settings that the rules depend on.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the checks that a request without `check=` runs.
    pub fn default_checks(&self) -> impl Iterator<Item = CheckId> + '_ {
        known(&self.default_checks)
    }

    /// Records the Node as the watch reported it.
    pub fn set_node(&self, node: Node, now: Moment, wall: SystemTime) {
        self.change(now, wall, |state| state.set_node(node, &self.policy, now, wall));
    }

    /// Records whether the cordon of the Node is granted, or why the node is kept, if that is not settled.
    pub fn judge_cordon(&self, kept: Option<Kept>, now: Moment, wall: SystemTime) {
        self.change(now, wall, |state| state.judge_cordon(kept));
    }

    /// Records the result of a local check; `None` if the check stopped running.
    pub fn set_local(&self, id: CheckId, result: Option<LocalResult>, now: Moment, wall: SystemTime) {
        let CheckId::Local(index) = id else { return };
        self.change(now, wall, |state| {
            state.local.get_mut(index).is_some_and(|slot| mem::replace(slot, result) != *slot)
        });
    }

    /// Records that the ports are open. From now on the verdict counts and its changes are flips.
    pub fn open(&self, now: Moment, wall: SystemTime) {
        self.opened.advance(now);
        self.tick(now, wall);
    }

    /// Records a flip if time alone has changed the verdict, and drops queries without a request for
    /// [`IDLE`].
    pub fn tick(&self, now: Moment, wall: SystemTime) {
        let mut writer = self.write();
        self.drop_idle(now);
        let flip = self.observe(&mut writer, now, wall);
        drop(writer);
        self.report_flip(flip);
    }

    /// Records what the host says of its own shutdown.
    pub fn set_host(&self, host: HostSignals, now: Moment, wall: SystemTime) {
        self.change(now, wall, |state| state.host.replace(host) != Some(host));
    }

    fn change(&self, now: Moment, wall: SystemTime, change: impl FnOnce(&mut State) -> bool) {
        let writer = self.write();
        let mut state = State::clone(&self.state());
        if change(&mut state) {
            self.changed(writer, state, now, wall);
        }
    }

    /// Publishes a state that has changed. Without type parameters, so that the program has it once.
    fn changed(&self, mut writer: MutexGuard<'_, Writer>, state: State, now: Moment, wall: SystemTime) {
        let begins = state.needed(&self.catalog).filter(|_| self.needed().is_none());
        self.publish(state, now);
        let flip = self.observe(&mut writer, now, wall);
        drop(writer);
        self.report_flip(flip);
        if let (Some(id), Some(on_need)) = (begins, self.on_need.get()) {
            on_need(id);
        }
    }

    fn observe(&self, writer: &mut Writer, now: Moment, wall: SystemTime) -> Option<Flip> {
        writer.latest = writer.latest.max(now);
        let reporter = self.reporter(now);
        for id in self.catalog.ids() {
            let report = reporter.report(id);
            let runs = self.catalog.local(id).is_none() || reporter.state.local_result(id).is_some();
            if let (true, Some(reason)) = (runs, report.outcome.reason()) {
                writer.last_reasons.insert(id, reason.clone());
            }
        }
        let signals = reporter.state.signals(&self.policy);
        let has_new = signals.iter().any(|signal| !writer.signals.contains(signal));
        writer.signals = signals;
        if self.opened().is_none() || self.node_name.is_none() {
            return None;
        }
        if has_new {
            self.last_signal.advance(now);
        }
        let (to, reason) = why(&reporter.reports(&self.default_checks));
        let from = writer.verdict.replace(to).filter(|from| *from != to)?;
        let flip = Flip { at_unix_ms: millis(since_epoch(wall)), age_ms: 0, from, to, reason };
        writer.flips.push_front((now, flip.clone()));
        writer.flips.truncate(REMEMBERED);
        self.flipped.advance(now);
        if (from == Verdict::Ready) != (to == Verdict::Ready) {
            self.last_pool_change.advance(now);
        }
        Some(flip)
    }

    /// Ignores poisoning: readers see only a state that is swapped in one step, so a writer that panicked
    /// leaves it whole.
    fn write(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error while the node's own name is not set.
pub const NODE_NAME_MISSING: &str = "NODE_NAME is not set: nodegate can't tell which Node it runs on; set it from the \
     Downward API (env NODE_NAME with valueFrom.fieldRef.fieldPath: spec.nodeName) or give --node-name";

/// Returns the verdict of all reports, and the reason of the report that decides it.
pub fn why(reports: &[CheckReport]) -> (Verdict, Reason) {
    let verdict = verdict(reports);
    let decides = reports.iter().find(|report| report.outcome.verdict() == verdict);
    let reason = decides.and_then(|report| report.outcome.reason());
    let open = if reports.iter().any(|report| report.stale) { CACHE_STALE } else { RECOVERED };
    (verdict, reason.cloned().unwrap_or_else(|| Reason::new(open)))
}
