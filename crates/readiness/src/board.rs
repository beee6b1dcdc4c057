//! Holds the state and the answers that are rendered from it. One writer at a time updates it; readers take
//! no lock.

mod freshness;
mod published;
mod service_board;
mod unknown_ready;
pub(crate) mod view;

pub use freshness::{Freshness, LastFacts, LastKnown};
pub use published::Published;
pub use service_board::{KnownService, ServiceView};

use self::published::Rendered;
use crate::answer::{Answer, Reply};
use crate::check::{Catalog, CheckId, CheckReport, Outcome, StartMode, Verdict, verdict};
use crate::drain_budget::Kept;
use crate::facts::Node;
use crate::flips::{Flip, RECOVERED, REMEMBERED};
use crate::host_signals::HostSignals;
use crate::moment::{AtomicMoment, Moment, millis, since_epoch};
use crate::query::{CheckRef, Query, known};
use crate::reason::Reason;
use crate::rules::{CACHE_STALE, Policy};
use crate::service::WatchedService;
use crate::state::{LocalResult, State};
use arc_swap::{ArcSwap, ArcSwapOption};
use std::collections::{BTreeMap, VecDeque};
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
    asked: Vec<AtomicMoment>,
    opened: AtomicMoment,
    last_pool_change: AtomicMoment,
    last_signal: AtomicMoment,
    flipped: AtomicMoment,
    writer: Mutex<Writer>,
    published: ArcSwap<Published>,
    on_flip: Box<dyn Fn(&Flip) + Send + Sync>,
    /// Starts a local check that becomes [needed](Board::needed). The board calls this, like the next two,
    /// outside of any lock.
    pub on_need: OnceLock<Listener<CheckId>>,
    /// Called when a `Ready=False` must last before it counts.
    pub on_pending: OnceLock<Listener<()>>,
    /// Called after each flip, and after each change of a Service's endpoints.
    pub after_change: OnceLock<Listener<()>>,
}

/// Code that waits for an event on the board.
pub type Listener<T> = Box<dyn Fn(T) + Send + Sync>;

/// The state that only the writer uses.
#[derive(Default)]
struct Writer {
    open: bool,
    /// The latest moment for which the verdict was computed.
    latest: Moment,
    /// The verdict; `None` before the first one, which is no flip.
    verdict: Option<Verdict>,
    /// The last [`REMEMBERED`] flips, each with its time.
    flips: VecDeque<(Moment, Flip)>,
    /// The drain signals in effect.
    signals: Vec<Reason>,
    last_reasons: BTreeMap<CheckId, Reason>,
}

/// The result of [`Board::lookup`].
#[derive(Debug)]
pub enum Lookup {
    /// An answer that was rendered before the request.
    Hit(Reply),
    /// A query not seen before, or one with a local check that has no valid result: start and await the
    /// checks, then ask [`Board::answer`].
    Miss(Query),
    /// The query is malformed; with the text of the 400.
    Bad(String),
}

impl Board {
    /// Creates a board without facts. Without a node name every answer is a 500. The board calls `on_flip`
    /// for each flip, outside of any lock.
    pub fn new(
        node_name: Option<String>,
        policy: Policy,
        catalog: Catalog,
        default_checks: &[CheckId],
        on_flip: Box<dyn Fn(&Flip) + Send + Sync>,
    ) -> Self {
        let locals = catalog.local_ids().count();
        let services = catalog.services().count();
        let default_checks: Vec<CheckRef> = default_checks.iter().copied().map(CheckRef::Known).collect();
        let state = State {
            local: vec![None; locals],
            services: vec![WatchedService::default(); services],
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
            asked: (0..locals).map(|_| AtomicMoment::default()).collect(),
            opened: AtomicMoment::default(),
            last_pool_change: AtomicMoment::default(),
            last_signal: AtomicMoment::default(),
            flipped: AtomicMoment::default(),
            writer: Mutex::default(),
            published: ArcSwap::from_pointee(Published::new(state.clone())),
            on_flip,
            on_need: OnceLock::new(),
            on_pending: OnceLock::new(),
            after_change: OnceLock::new(),
        };
        board.publish(state, Moment::default());
        board
    }

    // === Reading ===

    /// Finds the answer for the part of the request target behind `?`. No lock, no allocation, no syscall.
    pub fn lookup(&self, raw: &str, now: Moment) -> Lookup {
        // Freshness is read before the state, because proof is recorded after the state that it proves. So no
        // old answer counts as fresh.
        let stale = self.freshness(now).stale;
        let published = self.published.load();
        match published.find(raw) {
            Some(rendered) if rendered.answer.expires.is_none_or(|expires| now < expires) => {
                rendered.asked.advance(now);
                self.touch(&rendered.query, now);
                Lookup::Hit(rendered.answer.pick(stale).clone())
            }
            Some(rendered) => Lookup::Miss((*rendered.query).clone()),
            None => match Query::parse(raw, &self.catalog) {
                _ if self.node_name.is_none() => {
                    Lookup::Hit(self.render(&published.state, &Query::default(), now).fresh)
                }
                Ok(query) => Lookup::Miss(query),
                Err(bad) => Lookup::Bad(bad),
            },
        }
    }

    /// Renders the answer to a query that [`Board::lookup`] missed, and keeps it if there is room.
    pub fn answer(&self, raw: &str, query: &Query, now: Moment) -> Reply {
        self.touch(query, now);
        let stale = self.freshness(now).stale;
        let published = self.published.load();
        let answer = self.render(&published.state, query, now);
        let is_good = answer.expires.is_none_or(|expires| now < expires);
        match published.find(raw) {
            // The rendered answer had expired, and a valid one can replace it.
            Some(_) if is_good => {
                let _guard = self.write();
                self.publish(self.published.load().state.clone(), now);
            }
            None if query.all_known() => self.keep(raw, query, now),
            _ => {}
        }
        answer.pick(stale).clone()
    }

    /// Adds a query to those whose answers are rendered when the state changes.
    fn keep(&self, raw: &str, query: &Query, now: Moment) {
        let _guard = self.write();
        let published = self.published.load();
        let answer = self.render(&published.state, query, now);
        let next = published.with_query(raw, Rendered::new(query.clone(), answer, now));
        if let Some(next) = next {
            self.published.store(Arc::new(next));
        }
    }

    fn touch(&self, query: &Query, now: Moment) {
        for asked in query.known().filter_map(|id| self.asked_slot(id)) {
            asked.advance(now);
        }
    }

    fn asked_slot(&self, id: CheckId) -> Option<&AtomicMoment> {
        if let CheckId::Local(index) = id { self.asked.get(index) } else { None }
    }

    /// Returns the time at which a request last named this local check.
    pub fn last_requested(&self, id: CheckId) -> Option<Moment> {
        self.asked_slot(id).and_then(AtomicMoment::get)
    }

    /// Returns the local checks of a query that may run and have no valid result: a request must start and
    /// await them.
    pub fn pending(&self, query: &Query, now: Moment) -> Vec<CheckId> {
        let published = self.published.load();
        let runs =
            |id: &CheckId| self.catalog.local(*id).is_some_and(|check| check.begins != StartMode::Never);
        let lacks_result = |id: &CheckId| {
            let result = published.state.local_result(*id);
            result.is_none_or(|result| now > result.good_until)
        };
        known(self.checks_of(query)).filter(|id| runs(id) && lacks_result(id)).collect()
    }

    /// Returns the published state.
    pub fn published(&self) -> arc_swap::Guard<Arc<Published>> {
        self.published.load()
    }

    /// Returns the reports of the checks that decide the verdict, as of `now`.
    pub fn default_reports(&self, now: Moment) -> Vec<CheckReport> {
        let stale = self.freshness(now).stale;
        self.reports(&self.published.load().state, &self.default_checks, &self.policy, stale, now)
    }

    /// Returns true if only the exclusion label takes the node out.
    pub fn is_out_by_label_alone(&self, now: Moment) -> bool {
        let (state, stale) = (&self.published.load().state, self.freshness(now).stale);
        let of = |policy| verdict(&self.reports(state, &self.default_checks, policy, stale, now));
        of(&self.policy) == Verdict::Draining && of(&self.without_label) == Verdict::Ready
    }

    /// Returns the report of one check, as of `now`.
    pub fn report(&self, id: CheckId, now: Moment) -> CheckReport {
        let stale = self.freshness(now).stale;
        let state = &self.published.load().state;
        state.report(id, &self.catalog, &self.policy, stale, now)
    }

    /// Returns the time at which the ports opened; `None` before.
    pub fn opened(&self) -> Option<Moment> {
        self.opened.get()
    }

    /// Returns the node's name, if it is set.
    pub fn node_name(&self) -> Option<&str> {
        self.node_name.as_deref()
    }

    /// Returns the UID of the Node as last seen; `None` while this agent has not seen it itself.
    pub fn node_uid(&self) -> Option<String> {
        self.published.load().state.node.facts()?.uid.clone()
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

    // === Writing ===

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
            let Some(slot) = state.local.get_mut(index) else { return false };
            let changed = *slot != result;
            *slot = result;
            changed
        });
    }

    /// Records that the ports are open. From now on the verdict counts and its changes are flips.
    pub fn open(&self, now: Moment, wall: SystemTime) {
        self.write().open = true;
        self.opened.advance(now);
        self.tick(now, wall);
    }

    /// Records a flip if time alone has changed the verdict, and drops queries without a request for
    /// [`IDLE`].
    pub fn tick(&self, now: Moment, wall: SystemTime) {
        let mut writer = self.write();
        let idle = |rendered: &Rendered| rendered.asked.get().is_none_or(|asked| now.since(asked) > IDLE);
        if let Some(next) = self.published.load().without(idle) {
            self.published.store(Arc::new(next));
        }
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
        let mut state = self.published.load().state.clone();
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
        if let (Some(_), Some(on_pending)) = (self.not_ready_pending(now), self.on_pending.get()) {
            on_pending(());
        }
    }

    fn observe(&self, writer: &mut Writer, now: Moment, wall: SystemTime) -> Option<Flip> {
        writer.latest = writer.latest.max(now);
        let state = &self.published.load().state;
        let stale = self.freshness(now).stale;
        for id in self.catalog.ids() {
            let report = state.report(id, &self.catalog, &self.policy, stale, now);
            let runs = self.catalog.local(id).is_none() || state.local_result(id).is_some();
            if let (true, Some(reason)) = (runs, report.outcome.reason()) {
                writer.last_reasons.insert(id, reason.clone());
            }
        }
        let signals = state.signals(&self.policy);
        let has_new = signals.iter().any(|signal| !writer.signals.contains(signal));
        writer.signals = signals;
        if !writer.open || self.node_name.is_none() {
            return None;
        }
        if has_new {
            self.last_signal.advance(now);
        }
        let reports = self.reports(state, &self.default_checks, &self.policy, stale, now);
        let (to, reason) = why(&reports);
        let from = writer.verdict.replace(to).filter(|from| *from != to)?;
        let flip = Flip { at_unix_ms: millis(since_epoch(wall)), age_ms: 0, from, to, reason };
        if writer.flips.len() == REMEMBERED {
            writer.flips.pop_front();
        }
        writer.flips.push_back((now, flip.clone()));
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

    // === Rendering ===

    fn publish(&self, state: State, now: Moment) {
        let next = self.published.load().with_state(state, |state, query| self.render(state, query, now));
        self.published.store(Arc::new(next));
    }

    fn render(&self, state: &State, query: &Query, now: Moment) -> Answer {
        if self.node_name.is_none() {
            let reply = Reply::error(500, NODE_NAME_MISSING);
            return Answer { fresh: reply.clone(), stale: reply, expires: None };
        }
        let checks = self.checks_of(query);
        let policy = if query.excluded { &self.without_label } else { &self.policy };
        let fresh = self.reports(state, checks, policy, false, now);
        let stale = self.reports(state, checks, policy, true, now);
        Answer::render(&fresh, &stale, query.drain)
    }

    fn checks_of<'a>(&'a self, query: &'a Query) -> &'a [CheckRef] {
        if query.checks.is_empty() { &self.default_checks } else { &query.checks }
    }

    fn reports(
        &self,
        state: &State,
        checks: &[CheckRef],
        policy: &Policy,
        stale: bool,
        now: Moment,
    ) -> Vec<CheckReport> {
        let report = |check: &CheckRef| match check {
            CheckRef::Known(id) => state.report(*id, &self.catalog, policy, stale, now),
            CheckRef::Unknown(name) => {
                let reason = Reason::of_check("Unknown check", &self.catalog.meant(name));
                CheckReport::from_memory(name, Outcome::Fail(reason), false)
            }
        };
        checks.iter().map(report).collect()
    }
}

/// The body of every answer while the node's own name is not set.
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
