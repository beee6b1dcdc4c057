//! One reading of an agent: its whole status, and one judgement of the node and of each Service, which everything shows.

use crate::probers::{Prober, Probers, date};
use nodegate_agent_api::{
    DrainStatus, DrainSummary, Goal, ProberRecord, ServiceStatus, Standing, Status, WaitReply, WaitState,
    WaitingFor,
};
use nodegate_agent_client::{acknowledgement, hints};
use nodegate_readiness::moment::millis;
use nodegate_readiness::probers::{
    AckProgress, Acknowledgement, Judgement, PoolChange, ProbeHistory, ProberKind, Sessions, Subject,
    SubjectKind, judge,
};
use nodegate_readiness::{Board, BoardView, Moment, ServiceView, Timeline, Verdict};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Reads an agent.
pub(crate) struct Reader {
    pub(crate) board: Arc<Board>,
    pub(crate) probers: Arc<Probers>,
    pub(crate) timeline: Timeline,
    pub(crate) version: &'static str,
    /// The 16 hexadecimal digits that tell this process from the agents before and after it.
    pub(crate) start_id: String,
    /// The answer of another program at the node's own address and port, if one answers there.
    pub(crate) port_taken: Mutex<Option<String>>,
}

/// An agent at one moment.
pub(crate) struct Reading {
    pub(crate) status: Status,
    /// For how long the node has been `NotReady`; `None` if it is not.
    not_ready_for: Option<Duration>,
    node: Judgement,
    /// The kind of each prober in the status.
    kinds: Vec<ProberKind>,
    /// The index of each Service in the status, and its judgement.
    services: Vec<(usize, Judgement)>,
}

/// The probers, as far as a judgement depends on them, and as the JSON has them.
struct Known {
    histories: Vec<(ProberKind, ProbeHistory)>,
    records: Vec<ProberRecord>,
    /// The load balancers that can't see drains.
    blind: Vec<String>,
}

impl Reader {
    /// Returns the current moment.
    pub(crate) fn now(&self) -> Moment {
        self.timeline.at(nodegate_clock::now())
    }

    /// Reads the agent as of `now`, or as of the latest change of the board if that is later.
    pub(crate) fn read(&self, now: Moment) -> Reading {
        // Read before the board, so that no prober has heard more than the board says.
        let probers = self.probers.remembered(now);
        self.board.read(now, nodegate_clock::wall(), |board| self.reading(board, &probers))
    }

    fn reading(&self, board: &BoardView<'_>, probers: &[Prober]) -> Reading {
        let now = board.now;
        let records: Vec<_> = probers.iter().map(|prober| prober.to_record(date(now))).collect();
        let blind = records.iter().filter(|prober| prober.misses_drains());
        let blind = blind.map(|prober| format!("{} {}", prober.who(), prober.request)).collect();
        let histories = probers.iter().map(|prober| (prober.kind(), prober.history)).collect();
        let known = Known { histories, records, blind };
        let services = board.services(now).into_iter();
        let (statuses, services): (Vec<_>, Vec<_>) =
            services.filter_map(|view| self.service(board, view, &known)).unzip();
        let out = statuses.iter().zip(&services).filter(|(status, _)| status.local_endpoints == 0);
        let services_out: Vec<_> = out.map(|(_, (index, _))| *index).collect();
        let port_taken = self.port_taken.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let start_id = self.start_id.clone();
        let mut status = Status { start_id, port_taken, ..Status::of(board, self.version) };
        let of = SubjectKind::Node {
            by_label_alone: board.is_out_by_label_alone(now),
            services_out: &services_out,
            needs_probers: self.probers.balancers_are_named(),
        };
        let verdict = (status.verdict, status.is_based_on_stale_cache());
        let (node, drain) = self.judge(board, of, verdict, None, board.last_signal(), &known);
        let Known { histories, records, blind } = known;
        let balancers = self.probers.settings.balancers.parts();
        status.drain = DrainStatus { balancers, cant_see_drains: blind, ..drain };
        let unreachable = || board.kubelet_unreachable().as_ref().map(hints::kubelet_unreachable);
        let delay = || hints::shutdown_delay(status.host?, status.drain.needs_ms);
        let taken = status.port_taken.as_deref().map(|answer| hints::port_taken(answer).into());
        let excluded =
            || hints::excluded_control_plane(status.reason.as_ref(), &board.published().state.node);
        status.hint = taken.or_else(excluded).or_else(|| unreachable().or_else(delay).map(Into::into));
        let not_ready_for = (status.verdict == Some(Verdict::NotReady)).then(|| now.since(board.flipped()));
        status.services = statuses;
        status.probers = records;
        for (index, prober) in status.probers.iter_mut().enumerate() {
            prober.acknowledged = node.of_prober(index).map(|progress| progress.is_done());
        }
        let kinds = histories.into_iter().map(|(kind, _)| kind).collect();
        Reading { status, not_ready_for, node, kinds, services }
    }

    /// Returns the status of a Service, and its index with its judgement; `None` if its endpoints are not known yet.
    fn service(
        &self,
        board: &BoardView<'_>,
        view: ServiceView,
        known: &Known,
    ) -> Option<(ServiceStatus, (usize, Judgement))> {
        let (index, changed) = (view.index, view.changed);
        let status = ServiceStatus::of(board, &view)?;
        let verdict = if status.local_endpoints == 0 { Verdict::NotReady } else { Verdict::Ready };
        let (of, verdict) = (SubjectKind::Service(index), (Some(verdict), status.stale));
        let (judgement, drain) = self.judge(board, of, verdict, Some(&status.service), changed, known);
        Some((ServiceStatus { drain, ..status }, (index, judgement)))
    }

    /// Judges the node, or this Service, by its verdict and whether that is stale. Returns also what follows for a drain
    /// that began at `since`, in words where a person reads it.
    fn judge(
        &self,
        board: &BoardView<'_>,
        of: SubjectKind<'_>,
        (verdict, is_stale): (Option<Verdict>, bool),
        service: Option<&str>,
        since: Moment,
        Known { histories, records, blind }: &Known,
    ) -> (Judgement, DrainStatus) {
        let now = board.now;
        let heard = self.probers.listening(service.is_none(), board, now);
        let settings = self.probers.settings.acknowledged;
        let subject = Subject {
            of,
            verdict,
            is_stale,
            listening_since: heard.since,
            is_overflown: heard.overflows > 0,
            probers: histories,
        };
        let judgement = judge(&subject, &settings, date(now));
        let unknown = match &judgement.acknowledgement {
            Acknowledgement::Unknown(unknown) => Some(unknown),
            Acknowledgement::Yes | Acknowledgement::NotYet => None,
        };
        let missing =
            judgement.awaited.iter().filter(|(_, progress)| unknown.is_none() && !progress.is_done());
        let waiting_for = missing.filter_map(|(index, progress)| {
            let prober = records.get(*index)?;
            let why = acknowledgement::lacks(progress, prober);
            Some(WaitingFor { prober: prober.who(), request: prober.request.clone(), why })
        });
        let who = |index: usize| records.get(index).map(ProberRecord::who).unwrap_or_default();
        let blind = if service.is_none() { blind.as_slice() } else { &[] };
        let done = judgement.awaited.iter().filter_map(|(index, _)| judgement.of_prober(*index));
        let acknowledged = judgement.is_acknowledged(PoolChange::Out);
        // Nothing counts the sessions of a single Service.
        let traffic = self.probers.settings.traffic.as_ref().filter(|_| service.is_none());
        let traffic = traffic.map(|counted| counted());
        let sessions = acknowledgement::sessions(traffic.as_ref());
        let released = match sessions {
            Sessions::Unknown | Sessions::NotCounted => acknowledged.filter(|acknowledged| !acknowledged),
            Sessions::Ended | Sessions::Left => acknowledged.map(|yes| yes && sessions == Sessions::Ended),
        };
        let is_released_unknown = acknowledged.is_some() && released.is_none();
        let drain = DrainStatus {
            acknowledged,
            released,
            released_not_known: is_released_unknown
                .then(|| acknowledgement::sessions_not_known(traffic.as_ref())),
            acknowledged_ready: judgement.is_acknowledged(PoolChange::Back),
            acknowledged_probers: done.filter(AckProgress::is_done).count(),
            probers: judgement.awaited.len(),
            needs_ms: judgement.slowest.map(|interval| millis(settings.time(PoolChange::Out, interval))),
            since_ms: millis(now.since(since)),
            waiting_for: waiting_for.collect(),
            not_known: unknown.map(|unknown| acknowledgement::not_known(unknown, service, who, blind)),
            not_known_code: unknown.map(|unknown| unknown.code().to_owned()),
            settings,
            listening_ms: millis(date(now).since(heard.since)),
            overflows: heard.overflows,
            traffic,
            ..DrainStatus::default()
        };
        (judgement, drain)
    }
}

impl Reading {
    /// Returns how a wait for this goal stands, of the node or of the Service with this index. A Service without a list
    /// of its endpoints is not known.
    pub(crate) fn wait_state(&self, goal: Goal, service: Option<usize>) -> WaitState {
        match service {
            None => {
                let sessions = acknowledgement::sessions(self.status.drain.traffic.as_ref());
                match WaitState::of(goal, &self.node, sessions, self.not_ready_for) {
                    WaitState::InService if self.status.kept.is_some() => WaitState::Kept,
                    state => state,
                }
            }
            // A Service that has been out for long waits for slow balancers: a rollout takes it out, no fault.
            Some(index) => self.judged(index).map_or(WaitState::NotKnown, |(_, judgement)| {
                WaitState::of(goal, judgement, Sessions::NotCounted, None)
            }),
        }
    }

    fn judged(&self, index: usize) -> Option<(&ServiceStatus, &Judgement)> {
        let mut judged = self.status.services.iter().zip(&self.services);
        judged.find_map(|(status, (of, judgement))| (*of == index).then_some((status, judgement)))
    }

    /// Returns the words about a wait in this state.
    pub(crate) fn wait_words(&self, state: WaitState, goal: Goal, service: Option<usize>) -> String {
        let known = service.map(|index| self.judged(index).map(|(status, _)| status));
        match known {
            Some(None) => "the endpoints of the Service are not known yet".to_owned(),
            known => acknowledgement::wait(state, goal, &self.status, known.flatten(), self.not_ready_for),
        }
    }

    /// Returns the JSON of an answer to a wait in this state, without the name of the Service.
    pub(crate) fn wait_reply(&self, state: WaitState, goal: Goal, service: Option<usize>) -> WaitReply {
        let judged = service.and_then(|index| self.judged(index));
        let judgement = judged.map_or(&self.node, |(_, judgement)| judgement);
        let is_about =
            |kind: &ProberKind| service.is_none_or(|index| kind.is_about(SubjectKind::Service(index)));
        let probers = self.status.probers.iter().zip(&self.kinds).enumerate();
        let shown =
            probers.filter(|(_, (prober, kind))| is_about(kind) && prober.standing != Standing::Occasional);
        let records = shown.map(|(position, (prober, _))| ProberRecord {
            drainable: prober.drainable || service.is_some(),
            acknowledged: judgement.of_prober(position).map(|progress| progress.is_done()),
            ..prober.clone()
        });
        WaitReply {
            goal,
            state,
            why: self.wait_words(state, goal, service),
            interval_ms: judgement.slowest.map(millis),
            drain: DrainSummary::of(&self.status, judged.map(|(status, _)| status)),
            probers: records.take(WaitReply::MAX_PROBERS).collect(),
            service: None,
        }
    }
}
