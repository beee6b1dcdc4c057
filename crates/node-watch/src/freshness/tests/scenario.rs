//! A state machine with a clock of its own, for scripted scenarios.

use crate::freshness::{
    Action, Check, FreshnessMonitor, Input, NodeVersion, Refusal, Transition, Transitions,
};
use crate::stream::{LEASE, NODE, StreamId, service};
use nodegate_kube_follow::{Connection, FailureReason};
use nodegate_readiness::Moment;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub(super) const STALE_AFTER: Duration = Duration::from_secs(15);
pub(super) const SERVICE: StreamId = service(0);

pub(super) struct Scenario {
    pub(super) machine: FreshnessMonitor,
    pub(super) transitions: Arc<Transitions>,
    pub(super) now: Moment,
    pub(super) proved: Option<Moment>,
    pub(super) said: Vec<Action>,
    pub(super) set_by: i64,
}

pub(super) fn here() -> Connection {
    Connection::default()
}

pub(super) fn elsewhere() -> Connection {
    let mut other = Connection::default();
    other.client = 1;
    other
}

pub(super) fn node(version: u32) -> NodeVersion {
    NodeVersion::Present { uid: "a".to_owned(), version: version.to_string() }
}

impl Scenario {
    /// Returns a state machine that watches a Node of version 1, its Lease and a Service.
    pub(super) fn watching() -> Self {
        let transitions = Arc::new(Transitions::default());
        let machine = FreshnessMonitor::new(STALE_AFTER, 1, fastrand::Rng::with_seed(7), transitions.clone());
        let now = Moment::from_start(Duration::from_secs(1000));
        let (proved, said) = (None, Vec::new());
        let mut scenario = Self { machine, transitions, now, proved, said, set_by: 0 };
        for stream in [NODE, LEASE, SERVICE] {
            scenario.lists(stream, 1);
            scenario.step(Input::Accepted(stream, here()));
        }
        scenario
    }

    pub(super) fn step(&mut self, input: Input) -> &mut Self {
        for action in self.machine.step(input, self.now) {
            if let Action::Prove { at, .. } = action {
                self.proved = self.proved.max(Some(at));
            }
            self.said.push(action);
        }
        self
    }

    pub(super) fn lists(&mut self, stream: StreamId, version: u32) {
        self.step(Input::Began(stream));
        if stream == NODE {
            self.step(Input::Listed { asked_at: self.now, node: node(version) });
        }
    }

    /// Lets time pass with clock events alone, and without answers.
    pub(super) fn passes(&mut self, time: Duration) -> &mut Self {
        let end = self.now.plus(time);
        while let Some(wakes) = self.machine.wake_at().filter(|at| *at <= end) {
            assert!(wakes >= self.now, "woken in the past");
            self.now = wakes;
            let wall = self.wall();
            self.step(Input::Woke { wall });
            assert!(
                self.machine.wake_at().is_none_or(|next| next > wakes),
                "and no step is repeated forever"
            );
        }
        self.now = end;
        self
    }

    pub(super) fn wall(&self) -> SystemTime {
        let set =
            SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(1_800_000_000 + self.set_by).unwrap());
        set + self.now.since(Moment::default())
    }

    pub(super) fn clock_is_set(&mut self, by: i64) -> &mut Self {
        self.set_by += by;
        let wall = self.wall();
        self.step(Input::Woke { wall })
    }

    pub(super) fn seconds(&mut self, seconds: u64) -> &mut Self {
        self.passes(Duration::from_secs(seconds))
    }

    pub(super) fn event(&mut self, version: u32) -> &mut Self {
        self.step(Input::Changed(node(version)))
    }

    pub(super) fn renewal(&mut self, ago: Duration) -> &mut Self {
        let wall = self.wall();
        self.step(Input::Bytes(LEASE)).step(Input::Renewed { at: Some(wall - ago), wall })
    }

    /// Lets time pass until the next check; returns its number, and true if it is on a new connection.
    pub(super) fn asks(&mut self) -> (u64, bool) {
        loop {
            if let Some(asked) = self.asked() {
                return asked;
            }
            let wakes = self.machine.wake_at().expect("it never asks");
            self.passes(wakes.since(self.now));
        }
    }

    /// Returns the last check since the last call.
    pub(super) fn asked(&mut self) -> Option<(u64, bool)> {
        let said = std::mem::take(&mut self.said);
        said.into_iter().rev().find_map(|action| match action {
            Action::Check(Check { number, on_a_new_connection }) => Some((number, on_a_new_connection)),
            _ => None,
        })
    }

    pub(super) fn checks(&mut self, node: NodeVersion, connection: Connection) -> &mut Self {
        let (number, _) = self.asks();
        self.answers(number, node, connection)
    }

    /// Refuses a check, with the seconds of a `Retry-After`; 0 for none.
    pub(super) fn refuses(&mut self, number: u64, refusal: Refusal, seconds: u64) -> &mut Self {
        let retry_after = (seconds > 0).then(|| Duration::from_secs(seconds));
        self.step(Input::Unanswered { number, refusal, retry_after })
    }

    pub(super) fn answers(&mut self, number: u64, node: NodeVersion, connection: Connection) -> &mut Self {
        self.said.clear();
        self.step(Input::Answered { number, node, connection })
    }

    pub(super) fn age(&self) -> Duration {
        self.now.since(self.proved.unwrap())
    }

    /// Returns the date of the Service's last proof among the actions.
    pub(super) fn service_proved(&self) -> Option<Moment> {
        self.said.iter().rev().find_map(|action| match action {
            Action::Prove { at, services, .. } if services == &[0] => Some(*at),
            _ => None,
        })
    }

    pub(super) fn taken(&self, transition: Transition) -> u64 {
        self.transitions.lock().unwrap().get(&transition).copied().unwrap_or_default()
    }

    pub(super) fn replaced(&self, why: FailureReason) -> Vec<StreamId> {
        let replaced = self.said.iter().filter_map(|action| match action {
            Action::Replace(stream, said) if *said == why => Some(*stream),
            _ => None,
        });
        replaced.collect()
    }
}
