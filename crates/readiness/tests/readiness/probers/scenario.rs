//! A node, its probers, and a clock that is a number.

use crate::scenario::{self, WALL, node};
use nodegate_readiness::probers::{
    AckSettings, GivenAnswer, Judgement, PoolChange, ProbeHistory, ProberKind, ProberRecord, Standing,
    Subject, SubjectKind, judge,
};
use nodegate_readiness::{HostSignals, Moment, Node, Verdict};
use std::time::Duration;

pub(crate) struct Prober {
    pub(crate) number: u8,
    pub(crate) every_ms: u64,
    pub(crate) next_ms: u64,
    pub(crate) request: &'static str,
    pub(crate) kind: ProberKind,
    pub(crate) asked: Option<ProbeHistory>,
    /// The variation of its interval in percent, as with HAProxy's `spread-checks`.
    pub(crate) spread: u64,
    /// The number of consecutive answers to the prober itself that took the node out.
    pub(crate) heard: u32,
    pub(crate) random: u64,
}

impl Prober {
    fn pause(&mut self) -> u64 {
        let most = self.every_ms * self.spread / 100;
        // Knuth's generator; the high half is random enough.
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.every_ms - most + (self.random >> 33) % (2 * most + 1)
    }
}

pub(crate) fn balancer(number: u8, every_ms: u64) -> Prober {
    Prober {
        number,
        every_ms,
        next_ms: u64::from(number) * 37 % every_ms,
        request: "/health",
        kind: ProberKind::Node { ignores_label: false },
        asked: None,
        spread: 0,
        heard: 0,
        random: number.into(),
    }
}

pub(crate) struct Scenario {
    node: scenario::Scenario,
    pub(crate) probers: Vec<Prober>,
    pub(crate) now_ms: u64,
    /// The last time at which the agent could not remember a prober.
    pub(crate) overflown_ms: Option<u64>,
    /// True if the API server is in contact.
    pub(crate) proof: bool,
    pub(crate) settings: AckSettings,
    /// True with `--balancers`.
    pub(crate) needs_probers: bool,
    /// The Services without a ready endpoint here.
    pub(crate) services_out: Vec<usize>,
}

impl Scenario {
    pub(crate) fn new(probers: impl IntoIterator<Item = Prober>) -> Self {
        Self {
            node: scenario::Scenario::ready(),
            probers: probers.into_iter().collect(),
            // On a board, the very first moment means "never".
            now_ms: 1,
            overflown_ms: None,
            proof: true,
            settings: AckSettings::default(),
            needs_probers: false,
            services_out: Vec::new(),
        }
    }

    fn now(&self) -> Moment {
        Moment::from_start(Duration::from_millis(self.now_ms))
    }

    pub(crate) fn cordon(&self, unschedulable: bool) {
        self.set(node(unschedulable));
    }

    pub(crate) fn set(&self, node: Node) {
        self.node.board.set_node(node, self.now(), WALL);
    }

    pub(crate) fn host(&self, signals: HostSignals) {
        self.node.board.set_host(signals, self.now(), WALL);
    }

    pub(crate) fn pass(&mut self, ms: u64) {
        let until = self.now_ms + ms;
        loop {
            let next = self.probers.iter().map(|prober| prober.next_ms).min().unwrap_or(u64::MAX);
            // Each second the API server sends proof, and the timers of the agent run.
            let beat = self.now_ms - self.now_ms % 1000 + 1000;
            self.now_ms = next.max(self.now_ms).min(beat).min(until);
            if self.now_ms == beat {
                if self.proof {
                    self.node.board.prove(self.now());
                }
                self.node.board.tick(self.now(), WALL);
            }
            self.ask();
            if self.now_ms >= until {
                return;
            }
        }
    }

    pub(crate) fn pass_seconds(&mut self, seconds: u64) {
        self.pass(seconds * 1000);
    }

    fn ask(&mut self) {
        for n in 0..self.probers.len() {
            if self.probers[n].next_ms > self.now_ms {
                continue;
            }
            let out = self.ask_as(n);
            let prober = &mut self.probers[n];
            prober.heard = if out { prober.heard + 1 } else { 0 };
            prober.next_ms += prober.pause();
        }
    }

    /// Sends a probe as that prober; returns true if the answer takes the node out.
    pub(crate) fn ask_as(&mut self, n: usize) -> bool {
        let (now, changed) = (self.now(), self.node.board.last_signal());
        let query = self.probers[n].request.split_once('?').map_or("", |(_, query)| query);
        let reply = self.node.ask_at(query, now);
        let given = GivenAnswer { verdict: reply.verdict, code: Some(reply.status) };
        let prober = &mut self.probers[n];
        prober.asked = Some(match prober.asked {
            None => ProbeHistory::first(given, now),
            Some(asked) => asked.again(given, changed, now),
        });
        given.verdict != Verdict::Ready
    }

    pub(crate) fn records(&self) -> Vec<ProberRecord> {
        let record = |prober: &Prober| {
            let address = format!("10.0.0.{}", prober.number);
            let (request, sees_drains) = (prober.request.to_owned(), prober.kind.sees_drains());
            Some(ProberRecord::new(address, request, sees_drains, prober.asked.as_ref()?, self.now()))
        };
        self.probers.iter().filter_map(record).collect()
    }

    pub(crate) fn listening_since(&self) -> Moment {
        let opened = self.node.board.opened().unwrap();
        self.overflown_ms.map_or(opened, |ms| opened.max(Moment::from_start(Duration::from_millis(ms))))
    }

    pub(crate) fn judge_by(&self, settings: &AckSettings) -> Judgement {
        let (board, now) = (&self.node.board, self.now());
        let asked = self.probers.iter().filter_map(|prober| Some((prober.kind, prober.asked?)));
        let probers: Vec<_> = asked.collect();
        let is_going_down = board.state().host.is_some_and(|host| host.shutdown);
        let by_label_alone = board.is_out_by_label_alone(now);
        let subject = Subject {
            of: SubjectKind::Node {
                by_label_alone,
                services_out: &self.services_out,
                needs_probers: self.needs_probers,
            },
            verdict: Some(self.verdict()),
            is_stale: board.freshness(now).stale && !is_going_down,
            listening_since: self.listening_since(),
            is_overflown: self.overflown_ms.is_some(),
            probers: &probers,
        };
        judge(&subject, settings, now)
    }

    pub(crate) fn judge(&self) -> Judgement {
        self.judge_by(&self.settings)
    }

    pub(crate) fn acknowledged(&self) -> Option<bool> {
        self.judge().is_acknowledged(PoolChange::Out)
    }

    pub(crate) fn acknowledged_ready(&self) -> Option<bool> {
        self.judge().is_acknowledged(PoolChange::Back)
    }

    pub(crate) fn not_known(&self) -> &'static str {
        match self.judge().acknowledgement {
            Err(unknown) => unknown.code(),
            known => panic!("{known:?}"),
        }
    }

    pub(crate) fn missing(&self) -> Vec<usize> {
        let awaited = self.judge().awaited;
        awaited.into_iter().filter(|(_, progress)| !progress.is_done()).map(|(index, _)| index).collect()
    }

    /// Lets time pass until all have acknowledged; returns the milliseconds that this took.
    pub(crate) fn until_acknowledged(&mut self) -> u64 {
        let began = self.now_ms;
        while self.acknowledged() != Some(true) {
            assert!(self.now_ms - began < 600_000, "{:?}", self.judge());
            self.pass(50);
        }
        self.now_ms - began
    }

    pub(crate) fn standing(&self, n: usize) -> Standing {
        self.probers[n].asked.unwrap().standing(self.now())
    }

    pub(crate) fn stop(&mut self, n: usize) {
        self.probers[n].next_ms = u64::MAX;
    }

    pub(crate) fn begin(&mut self, n: usize) {
        self.probers[n].next_ms = self.now_ms;
    }

    pub(crate) fn verdict(&self) -> Verdict {
        nodegate_readiness::board::why(&self.node.board.default_reports(self.now())).0
    }

    pub(crate) fn since_ms(&self) -> u128 {
        self.now().since(self.node.board.last_signal()).as_millis()
    }
}
