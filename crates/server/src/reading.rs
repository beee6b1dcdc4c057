//! One reading of an agent: its whole status, and one judgement of the node and of each Service, which everything shows.

use crate::probers::{Listening, Prober, Probers, date};
use nodegate_agent_api::{
    DrainStatus, DrainSummary, Goal, ProberRecord, ServiceStatus, Standing, Status, WaitReply, WaitState,
    WaitingFor,
};
use nodegate_agent_client::{acknowledgement, hints};
use nodegate_readiness::board::BoardView;
use nodegate_readiness::moment::millis;
use nodegate_readiness::probers::{
    AckProgress, Acknowledgement, Judgement, PoolChange, ProbeHistory, ProberKind, Sessions, Subject,
    SubjectKind, judge,
};
use nodegate_readiness::{Board, KnownService, Moment, Verdict};
use std::sync::Arc;
use std::time::Duration;

/// Reads an agent.
pub(crate) struct Reader {
    pub(crate) board: Arc<Board>,
    pub(crate) probers: Arc<Probers>,
    pub(crate) version: &'static str,
    /// The 16 hexadecimal digits that tell this process from the agents before and after it.
    pub(crate) start_id: String,
}

/// An agent at one moment.
pub(crate) struct Reading {
    pub(crate) status: Status,
    /// For how long the node has been `NotReady`; `None` if it is not.
    not_ready_for: Option<Duration>,
    node: Judgement,
    /// The kind of each prober in the status.
    kinds: Vec<ProberKind>,
    services: Vec<JudgedService>,
}

struct JudgedService {
    index: usize,
    judgement: Judgement,
}

/// The probers, as far as a judgement depends on them, and as the JSON has them.
struct Known<'a> {
    histories: &'a [(ProberKind, ProbeHistory)],
    records: &'a [ProberRecord],
}

impl Reader {
    /// Reads the agent as of `now`, or as of the latest change of the board if that is later.
    pub(crate) fn read(&self, now: Moment) -> Reading {
        // Read before the board, so that no prober has heard more than the board says.
        let probers = self.probers.remembered(now);
        self.board.read(now, nodegate_clock::wall(), |board| self.reading(board, &probers))
    }

    fn reading(&self, board: &BoardView<'_>, probers: &[Prober]) -> Reading {
        let now = board.now();
        let records: Vec<_> = probers.iter().map(|prober| prober.to_record(date(now))).collect();
        let histories: Vec<_> = probers.iter().map(|prober| (prober.kind(), prober.history)).collect();
        let known = Known { histories: &histories, records: &records };
        let mut status = Status { start_id: self.start_id.clone(), ..Status::of(board, self.version) };

        let watched = board.known_services(now);
        let services: Vec<_> =
            watched.into_iter().map(|service| self.service(board, service, &known)).collect();
        let is_out = |(status, judged): &(ServiceStatus, JudgedService)| {
            (status.local_endpoints == 0).then_some(judged.index)
        };
        let services_out: Vec<_> = services.iter().filter_map(is_out).collect();
        let of = SubjectKind::Node {
            by_label_alone: board.is_out_by_label_alone(now),
            services_out: &services_out,
            needs_probers: self.probers.balancers_are_named(),
        };
        let heard = self.probers.listening(true, board, now);
        let (verdict, is_stale) = (status.verdict, status.is_based_on_stale_cache());
        let node = self.judge(of, verdict, is_stale, heard, &known, now);
        let traffic = self.probers.settings.traffic.as_ref().map(|counted| counted());
        let blind = records.iter().filter(|prober| prober.misses_drains());
        let cant_see_drains: Vec<_> =
            blind.map(|prober| format!("{} {}", prober.who(), prober.request)).collect();
        let drain = self.drain(&node, None, heard, board.last_signal(), &known, &cant_see_drains, now);
        status.drain = released(DrainStatus {
            balancers: self.probers.settings.balancers.parts(),
            cant_see_drains,
            traffic,
            ..drain
        });
        let unreachable = || board.kubelet_unreachable(now).as_ref().map(hints::kubelet_unreachable);
        let delay = || hints::shutdown_delay(status.host?, status.drain.needs_ms);
        status.hint = hints::excluded_control_plane(status.reason.as_ref(), &board.published().state.node)
            .or_else(|| unreachable().or_else(delay).map(Into::into));
        let not_ready_for = (verdict == Some(Verdict::NotReady)).then(|| now.since(board.flipped()));
        let (statuses, services) = services.into_iter().unzip();
        status.services = statuses;
        status.probers = records;
        for (index, prober) in status.probers.iter_mut().enumerate() {
            prober.acknowledged = node.of_prober(index).map(|progress| progress.is_done());
        }
        let kinds = histories.into_iter().map(|(kind, _)| kind).collect();
        Reading { status, not_ready_for, node, kinds, services }
    }

    fn service(
        &self,
        board: &BoardView<'_>,
        service: KnownService,
        known: &Known<'_>,
    ) -> (ServiceStatus, JudgedService) {
        let KnownService { index, service, local_endpoints, is_stale, changed } = service;
        let now = board.now();
        let heard = self.probers.listening(false, board, now);
        let verdict = if local_endpoints == 0 { Verdict::NotReady } else { Verdict::Ready };
        let judgement = self.judge(SubjectKind::Service(index), Some(verdict), is_stale, heard, known, now);
        let drain = released(self.drain(&judgement, Some(&service), heard, changed, known, &[], now));
        let status = ServiceStatus { service, local_endpoints, stale: is_stale, drain };
        (status, JudgedService { index, judgement })
    }

    fn judge(
        &self,
        of: SubjectKind<'_>,
        verdict: Option<Verdict>,
        is_stale: bool,
        heard: Listening,
        known: &Known<'_>,
        now: Moment,
    ) -> Judgement {
        let subject = Subject {
            of,
            verdict,
            is_stale,
            listening_since: heard.since,
            is_overflown: heard.overflows > 0,
            probers: known.histories,
        };
        judge(&subject, &self.probers.settings.acknowledged, date(now))
    }

    /// Returns what a judgement says of a drain, in words where a person reads it.
    #[expect(clippy::too_many_arguments, reason = "each is of another source")]
    fn drain(
        &self,
        judgement: &Judgement,
        service: Option<&str>,
        heard: Listening,
        since: Moment,
        known: &Known<'_>,
        cant_see_drains: &[String],
        now: Moment,
    ) -> DrainStatus {
        let settings = self.probers.settings.acknowledged;
        let who = |index: usize| known.records.get(index).map(ProberRecord::who).unwrap_or_default();
        let unknown = match &judgement.acknowledgement {
            Acknowledgement::Unknown(unknown) => Some(unknown),
            Acknowledgement::Yes | Acknowledgement::NotYet => None,
        };
        let missing =
            judgement.awaited.iter().filter(|(_, progress)| unknown.is_none() && !progress.is_done());
        let waiting_for = missing.filter_map(|(index, progress)| {
            let prober = known.records.get(*index)?;
            let why = acknowledgement::lacks(progress, prober);
            Some(WaitingFor { prober: prober.who(), request: prober.request.clone(), why })
        });
        let done = judgement.awaited.iter().filter_map(|(index, _)| judgement.of_prober(*index));
        DrainStatus {
            acknowledged: judgement.is_acknowledged(PoolChange::Out),
            acknowledged_ready: judgement.is_acknowledged(PoolChange::Back),
            acknowledged_probers: done.filter(AckProgress::is_done).count(),
            probers: judgement.awaited.len(),
            needs_ms: judgement.slowest.map(|interval| millis(settings.time(PoolChange::Out, interval))),
            since_ms: millis(now.since(since)),
            waiting_for: waiting_for.collect(),
            not_known: unknown
                .map(|unknown| acknowledgement::not_known(unknown, service, who, cant_see_drains)),
            not_known_code: unknown.map(|unknown| unknown.code().to_owned()),
            settings,
            listening_ms: millis(date(now).since(heard.since)),
            overflows: heard.overflows,
            ..DrainStatus::default()
        }
    }
}

/// Adds whether sessions are left.
fn released(drain: DrainStatus) -> DrainStatus {
    let traffic = drain.traffic.as_ref();
    let (released, released_not_known) = match (drain.acknowledged, acknowledgement::sessions(traffic)) {
        (Some(true), Sessions::Ended) => (Some(true), None),
        (Some(true), Sessions::Left) => (Some(false), None),
        (Some(true), Sessions::Unknown | Sessions::NotCounted) => {
            (None, Some(acknowledgement::sessions_not_known(traffic)))
        }
        (acknowledged, _) => (acknowledged, None),
    };
    DrainStatus { released, released_not_known, ..drain }
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
            Some(index) => self.judged(index).map_or(WaitState::NotKnown, |(_, judged)| {
                WaitState::of(goal, &judged.judgement, Sessions::NotCounted, None)
            }),
        }
    }

    fn judged(&self, index: usize) -> Option<(&ServiceStatus, &JudgedService)> {
        self.status.services.iter().zip(&self.services).find(|(_, judged)| judged.index == index)
    }

    /// Returns the words about a wait in this state.
    pub(crate) fn wait_words(&self, state: WaitState, goal: Goal, service: Option<usize>) -> String {
        let known = service.map(|index| self.judged(index).map(|(status, _)| status));
        match known {
            Some(None) => "the endpoints of the Service are not known yet".to_owned(),
            known => acknowledgement::wait(state, goal, &self.status, known.flatten(), self.not_ready_for),
        }
    }

    /// Returns the JSON of an answer to a wait in this state. `name` is that of the Service.
    pub(crate) fn wait_reply(
        &self,
        state: WaitState,
        goal: Goal,
        service: Option<(usize, String)>,
    ) -> WaitReply {
        let index = service.as_ref().map(|(index, _)| *index);
        let judged = index.and_then(|index| self.judged(index));
        let judgement = judged.map_or(&self.node, |(_, judged)| &judged.judgement);
        let about = |kind: &ProberKind| index.is_none_or(|index| kind.is_about(SubjectKind::Service(index)));
        let probers = self.status.probers.iter().zip(&self.kinds).enumerate();
        let shown =
            probers.filter(|(_, (prober, kind))| about(kind) && prober.standing != Standing::Occasional);
        let records = shown.map(|(position, (prober, _))| ProberRecord {
            drainable: prober.drainable || index.is_some(),
            acknowledged: judgement.of_prober(position).map(|progress| progress.is_done()),
            ..prober.clone()
        });
        WaitReply {
            goal,
            state,
            why: self.wait_words(state, goal, index),
            interval_ms: judgement.slowest.map(millis),
            drain: DrainSummary::of(&self.status, judged.map(|(status, _)| status)),
            probers: records.take(WaitReply::MAX_PROBERS).collect(),
            service: service.map(|(_, name)| name),
        }
    }
}
