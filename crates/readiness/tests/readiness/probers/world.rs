//! A node, its probers, and a clock that is a number.

use crate::board::{Scenario, node};
use nodegate_readiness::probers::{
    AckOverrides, AckSettings, Acknowledgement, DrainStatus, GivenAnswer, HaproxyReport, PoolChange,
    ProbeHistory, ProberRecord, Standing, Traffic, acknowledged,
};
use nodegate_readiness::status::Status;
use nodegate_readiness::{HostSignals, Moment, Reply, Verdict};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, SystemTime};

const WALL: SystemTime = SystemTime::UNIX_EPOCH;

/// A simulated prober with its own interval.
pub(crate) struct Prober {
    pub(crate) number: u8,
    pub(crate) every_ms: u64,
    pub(crate) next_ms: u64,
    pub(crate) until_ms: u64,
    pub(crate) request: &'static str,
    pub(crate) drainable: bool,
    pub(crate) name: Option<&'static str>,
    pub(crate) asked: Option<ProbeHistory>,
    /// The variation of its interval in percent, as with HAProxy's `spread-checks`.
    pub(crate) spread: u64,
    /// The number of consecutive answers to the prober itself that took the node out.
    pub(crate) heard: u32,
    pub(crate) random: u64,
}

impl Prober {
    /// Returns the time to its next probe.
    fn pause(&mut self) -> u64 {
        let most = self.every_ms * self.spread / 100;
        // Knuth's generator; the high half is random enough.
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.every_ms - most + (self.random >> 33) % (2 * most + 1)
    }
}

/// Returns a balancer that probes from the start, and never stops.
pub(crate) fn balancer(number: u8, every_ms: u64) -> Prober {
    Prober {
        number,
        every_ms,
        next_ms: u64::from(number) * 37 % every_ms,
        until_ms: u64::MAX,
        request: "/health",
        drainable: true,
        name: None,
        asked: None,
        spread: 0,
        heard: 0,
        random: number.into(),
    }
}

/// An agent on a node, and the time.
pub(crate) struct World {
    scenario: Scenario,
    pub(crate) probers: Vec<Prober>,
    pub(crate) now_ms: u64,
    /// The last time at which the agent could not remember a prober.
    pub(crate) overflown_ms: Option<u64>,
    pub(crate) traffic: Option<Traffic>,
    /// True if the API server is in contact.
    pub(crate) proof: bool,
    pub(crate) settings: AckSettings,
}

impl World {
    /// Creates a ready node whose agent begins to listen now.
    pub(crate) fn new(probers: impl IntoIterator<Item = Prober>) -> Self {
        Self {
            scenario: Scenario::ready(),
            probers: probers.into_iter().collect(),
            // On a board, the very first moment means "never".
            now_ms: 1,
            overflown_ms: None,
            traffic: None,
            proof: true,
            settings: AckSettings::default(),
        }
    }

    fn now(&self) -> Moment {
        Moment::from_start(Duration::from_millis(self.now_ms))
    }

    /// Cordons or uncordons the node.
    pub(crate) fn cordon(&self, unschedulable: bool) {
        self.scenario.board.set_node(node(unschedulable), self.now(), WALL);
    }

    /// Has the host say this of its own shutdown.
    pub(crate) fn host(&self, signals: HostSignals) {
        self.scenario.board.set_host(signals, self.now(), WALL);
    }

    /// Lets time pass, with all probes in it.
    pub(crate) fn pass(&mut self, ms: u64) {
        let until = self.now_ms + ms;
        loop {
            let next = self.probers.iter().map(|prober| prober.next_ms).min().unwrap_or(u64::MAX);
            // Each second the API server sends proof, and the timers of the agent run.
            let beat = self.now_ms - self.now_ms % 1000 + 1000;
            self.now_ms = next.max(self.now_ms).min(beat).min(until);
            if self.now_ms == beat {
                if self.proof {
                    self.scenario.board.prove(self.now());
                }
                self.scenario.board.tick(self.now(), WALL);
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

    /// Sends the probes that are due.
    fn ask(&mut self) {
        for n in 0..self.probers.len() {
            if self.probers[n].next_ms > self.now_ms {
                continue;
            }
            let out = self.ask_as(n);
            let prober = &mut self.probers[n];
            prober.heard = if out { prober.heard + 1 } else { 0 };
            prober.next_ms += prober.pause();
            if prober.next_ms > prober.until_ms {
                prober.next_ms = u64::MAX;
            }
        }
    }

    /// Sends a probe from that prober's address with its probe request; returns true if the answer takes the
    /// node out.
    pub(crate) fn ask_as(&mut self, n: usize) -> bool {
        let (now, turned) = (self.now(), self.scenario.board.last_pool_change());
        let reply = self.answer(n);
        let given = GivenAnswer { verdict: reply.verdict.unwrap(), code: Some(reply.status) };
        let prober = &mut self.probers[n];
        prober.asked = Some(match prober.asked {
            None => ProbeHistory::first(given, now),
            Some(asked) => asked.again(given, turned.into(), now),
        });
        given.verdict != Verdict::Ready
    }

    fn answer(&self, n: usize) -> Reply {
        let query = self.probers[n].request.split_once('?').map_or("", |(_, query)| query);
        let now = self.now();
        match self.scenario.board.lookup(query, now) {
            nodegate_readiness::Lookup::Hit(reply) => reply,
            nodegate_readiness::Lookup::Miss(parsed) => self.scenario.board.answer(query, &parsed, now),
            nodegate_readiness::Lookup::Bad(bad) => panic!("{bad}"),
        }
    }

    fn record(&self, prober: &Prober) -> Option<ProberRecord> {
        let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, prober.number));
        let request = prober.request.to_owned();
        let mut record =
            ProberRecord::new(address, request, prober.drainable, prober.asked.as_ref()?, self.now());
        record.haproxy = prober.name.map(|name| HaproxyReport {
            node: "lb".to_owned(),
            server: name.to_owned(),
            state: None,
            sessions: Some(7),
        });
        Some(record)
    }

    /// Returns the agent's status as the next program parses it.
    pub(crate) fn status(&self) -> Status {
        serde_json::from_str(&serde_json::to_string(&self.judged()).unwrap()).unwrap()
    }

    fn judged(&self) -> Status {
        let now = self.now();
        let records = self.probers.iter().filter_map(|prober| self.record(prober)).collect();
        let opened = self.scenario.board.opened().unwrap();
        let overflown = self.overflown_ms.map(|ms| Moment::from_start(Duration::from_millis(ms)));
        let listening = now.since(overflown.map_or(opened, |overflown| overflown.max(opened)));
        let since = now.since(self.scenario.board.last_pool_change());
        let overflows = u64::from(overflown.is_some());
        let traffic = self.traffic.clone();
        let drain =
            DrainStatus { traffic, ..DrainStatus::unjudged(since, listening, overflows, self.settings) };
        Status::read(&self.scenario.board, "1.2.3", now, WALL).with_probers(records, drain)
    }

    pub(crate) fn acknowledged(&self) -> Option<bool> {
        self.judged().drain.unwrap().acknowledged
    }

    pub(crate) fn judge(&self, change: PoolChange, overrides: &AckOverrides) -> Acknowledgement {
        acknowledged(&self.status(), change, overrides)
    }

    /// Lets time pass until all have acknowledged; returns the time that this took.
    pub(crate) fn until_acknowledged(&mut self, at_most_ms: u64) -> Option<u64> {
        let began = self.now_ms;
        while self.now_ms - began < at_most_ms {
            if self.acknowledged() == Some(true) {
                return Some(self.now_ms - began);
            }
            self.pass(50);
        }
        None
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

    pub(crate) fn verdict(&self) -> Option<Verdict> {
        self.judged().verdict
    }
}
