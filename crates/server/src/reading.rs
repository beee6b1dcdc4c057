//! One reading of an agent: its whole status, and one judgement of the node and of each Service, which everything shows.

use crate::probers::{Prober, Probers};
use nodegate_agent_api::{
    DrainStatus, DrainSummary, Goal, ProberRecord, ServiceStatus, Standing, Status, WaitReply, WaitState,
    WaitingFor,
};
use nodegate_agent_client::{acknowledgement, hints};
use nodegate_readiness::moment::millis;
use nodegate_readiness::probers::{
    Judgement, PoolChange, ProbeHistory, ProberKind, Sessions, Subject, SubjectKind, judge,
};
use nodegate_readiness::{Board, BoardView, Moment, Timeline, Verdict};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Reads an agent.
pub(crate) struct Reader {
    pub(crate) board: Arc<Board>,
    pub(crate) probers: Arc<Probers>,
    pub(crate) timeline: Timeline,
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
    /// The judgement of each Service in the status.
    services: Vec<Judgement>,
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
        let mut status = Status::of(board);
        status.start_id.clone_from(&self.start_id);
        status.port_taken.clone_from(&self.port_taken.lock().unwrap_or_else(PoisonError::into_inner));
        status.probers = probers.iter().map(|prober| prober.to_record(now)).collect();
        let blind = status.probers.iter().filter(|prober| prober.misses_drains());
        status.drain.cant_see_drains =
            blind.map(|prober| format!("{} {}", prober.who(), prober.request)).collect();
        status.drain.balancers = self.probers.settings.balancers.parts();
        let known: Vec<_> = probers.iter().map(|prober| (prober.kind(), prober.history)).collect();
        let judged = status.services.iter().map(|service| {
            self.judge(board, SubjectKind::Service(service.index), Some(service), &status, &known)
        });
        let services: Vec<_> = judged.collect();
        let (services, drains): (Vec<_>, Vec<_>) = services.into_iter().unzip();
        status.services.iter_mut().zip(drains).for_each(|(service, drain)| service.drain = drain);
        let out = status.services.iter().filter(|service| service.local_endpoints == 0);
        let services_out: Vec<_> = out.map(|service| service.index).collect();
        let of = SubjectKind::Node {
            by_label_alone: board.is_out_by_label_alone(now),
            services_out: &services_out,
            needs_probers: self.probers.balancers_are_named(),
        };
        let (node, drain) = self.judge(board, of, None, &status, &known);
        status.drain = drain;
        let unreachable = || board.kubelet_unreachable().as_ref().map(hints::kubelet_unreachable);
        let delay = || hints::shutdown_delay(status.host?, status.drain.needs_ms);
        let taken = status.port_taken.as_deref().map(|answer| hints::port_taken(answer).into());
        let excluded = || hints::excluded_control_plane(status.reason.as_ref(), &board.state().node);
        status.hint = taken.or_else(excluded).or_else(|| unreachable().or_else(delay).map(Into::into));
        let not_ready_for = (status.verdict == Some(Verdict::NotReady)).then(|| now.since(board.flipped()));
        for (index, prober) in status.probers.iter_mut().enumerate() {
            prober.acknowledged = node.of_prober(index);
        }
        Reading { status, not_ready_for, node, kinds: probers.iter().map(Prober::kind).collect(), services }
    }

    /// Judges the node or a Service of this status. Returns also what follows for its drain, in words where a person
    /// reads it.
    fn judge(
        &self,
        board: &BoardView<'_>,
        of: SubjectKind<'_>,
        service: Option<&ServiceStatus>,
        status: &Status,
        probers: &[(ProberKind, ProbeHistory)],
    ) -> (Judgement, DrainStatus) {
        let (listening_since, overflows) = self.probers.listening(service.is_none(), board.now);
        let settings = self.probers.settings.acknowledged;
        let subject = Subject {
            of,
            verdict: service.map_or(status.verdict, |service| Some(service.verdict())),
            is_stale: service.map_or_else(|| status.is_based_on_stale_cache(), |service| service.stale),
            listening_since,
            is_overflown: overflows > 0,
            probers,
        };
        let judgement = judge(&subject, &settings, board.now);
        let unknown = judgement.acknowledgement.as_ref().err();
        let missing =
            judgement.awaited.iter().filter(|(_, progress)| unknown.is_none() && !progress.is_done());
        let waiting_for = missing.filter_map(|(index, progress)| {
            let prober = status.probers.get(*index)?;
            let why = acknowledgement::lacks(progress, prober);
            Some(WaitingFor { prober: prober.who(), request: prober.request.clone(), why })
        });
        let who = |index: usize| status.probers.get(index).map(ProberRecord::who).unwrap_or_default();
        let (name, before) =
            service.map_or((None, &status.drain), |service| (Some(&*service.service), &service.drain));
        let done = judgement.awaited.iter().filter_map(|(index, _)| judgement.of_prober(*index));
        let acknowledged = judgement.is_acknowledged(PoolChange::Out);
        // Nothing counts the sessions of a single Service.
        let traffic = self.probers.settings.traffic.as_ref().filter(|_| service.is_none());
        let traffic = traffic.map(|counted| counted());
        let released = match acknowledgement::sessions(traffic.as_ref()) {
            Sessions::Unknown | Sessions::NotCounted => acknowledged.filter(|acknowledged| !acknowledged),
            Sessions::Left => acknowledged.map(|_| false),
            Sessions::Ended => acknowledged,
        };
        let is_released_unknown = acknowledged.is_some() && released.is_none();
        let drain = DrainStatus {
            acknowledged,
            released,
            released_not_known: is_released_unknown
                .then(|| acknowledgement::sessions_not_known(traffic.as_ref())),
            acknowledged_ready: judgement.is_acknowledged(PoolChange::Back),
            acknowledged_probers: done.filter(|is_done| *is_done).count(),
            probers: judgement.awaited.len(),
            needs_ms: judgement.slowest.map(|interval| millis(settings.time(PoolChange::Out, interval))),
            waiting_for: waiting_for.collect(),
            not_known: unknown
                .map(|unknown| acknowledgement::not_known(unknown, name, who, &before.cant_see_drains)),
            not_known_code: unknown.map(|unknown| unknown.code().to_owned()),
            settings,
            listening_ms: millis(board.now.since(listening_since)),
            overflows,
            traffic,
            ..before.clone()
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
            // Never `NotReadyForLong`: a rollout takes a Service out, no fault, and slow balancers are waited for.
            Some(index) => self.judged(index).map_or(WaitState::NotKnown, |(_, judgement)| {
                WaitState::of(goal, judgement, Sessions::NotCounted, None)
            }),
        }
    }

    fn judged(&self, index: usize) -> Option<(&ServiceStatus, &Judgement)> {
        let mut judged = self.status.services.iter().zip(&self.services);
        judged.find(|(service, _)| service.index == index)
    }

    /// Returns the JSON of an answer to a wait in this state, without the name of the Service.
    pub(crate) fn wait_reply(&self, state: WaitState, goal: Goal, service: Option<usize>) -> WaitReply {
        let judged = service.and_then(|index| self.judged(index));
        let status = judged.map(|(status, _)| status);
        let why = if service.is_some() && judged.is_none() {
            "the endpoints of the Service are not known yet".to_owned()
        } else {
            acknowledgement::wait(state, goal, &self.status, status, self.not_ready_for)
        };
        let judgement = judged.map_or(&self.node, |(_, judgement)| judgement);
        let is_about =
            |kind: &ProberKind| service.is_none_or(|index| kind.is_about(SubjectKind::Service(index)));
        let probers = self.status.probers.iter().zip(&self.kinds).enumerate();
        let shown =
            probers.filter(|(_, (prober, kind))| is_about(kind) && prober.standing != Standing::Occasional);
        // A Service going out changes the answer to each of its probers.
        let records = shown.map(|(position, (prober, _))| ProberRecord {
            sees_drains: prober.sees_drains || service.is_some(),
            acknowledged: judgement.of_prober(position),
            ..prober.clone()
        });
        WaitReply {
            goal,
            state,
            why,
            interval_ms: judgement.slowest.map(millis),
            drain: DrainSummary::of(&self.status, status),
            probers: records.take(WaitReply::MAX_PROBERS).collect(),
            service: None,
        }
    }
}
