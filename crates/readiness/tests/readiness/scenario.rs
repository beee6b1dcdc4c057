//! A board with what the tests need. Time is a number here; nothing waits.

use nodegate_agent_api::Status;
use nodegate_readiness::{
    Board, Catalog, Condition, ConditionStatus, Flip, LocalCheck, LocalResult, Lookup, Moment, Node,
    NodeFacts, Outcome, Policy, Reply, StartMode, Taint, Verdict,
};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

pub(crate) fn at(seconds: u64) -> Moment {
    Moment::from_start(Duration::from_secs(seconds))
}

/// The wall clock, where it does not matter.
pub(crate) const WALL: SystemTime = SystemTime::UNIX_EPOCH;

pub(crate) fn condition(kind: &str, status: ConditionStatus, reason: &str) -> Condition {
    Condition { kind: kind.to_owned(), status, reason: reason.to_owned() }
}

pub(crate) fn facts(status: ConditionStatus, reason: &str) -> NodeFacts {
    NodeFacts { conditions: vec![condition("Ready", status, reason)], ..NodeFacts::default() }
}

pub(crate) fn ready() -> NodeFacts {
    facts(ConditionStatus::True, "KubeletReady")
}

pub(crate) fn broken() -> NodeFacts {
    facts(ConditionStatus::False, "KubeletNotReady")
}

pub(crate) fn node(unschedulable: bool) -> Node {
    Node::Present(NodeFacts { unschedulable, ..ready() })
}

/// Parses a taint in the notation of kubectl.
pub(crate) fn taint(text: &str) -> Taint {
    let (label, effect) = text.split_once(':').unwrap_or((text, ""));
    let (key, value) = label.split_once('=').unwrap_or((label, ""));
    let [key, value, effect] = [key, value, effect].map(str::to_owned);
    Taint { key, value, effect }
}

pub(crate) struct Scenario {
    pub(crate) board: Board,
    flips: Arc<Mutex<Vec<Flip>>>,
}

impl Scenario {
    /// Returns a board without facts.
    pub(crate) fn begin(policy: Policy, default_checks: &[&str]) -> Self {
        Self::with_checks(StartMode::OnDemand, policy, default_checks)
    }

    /// Returns a board without facts whose local checks start like this.
    pub(crate) fn with_checks(begins: StartMode, policy: Policy, default_checks: &[&str]) -> Self {
        let flips = Arc::new(Mutex::new(Vec::new()));
        let timeout = Duration::from_secs(5);
        let locals = ["router", "kubelet"].map(|name| LocalCheck { name: name.to_owned(), timeout, begins });
        let catalog = Catalog::new(locals.into());
        let catalog = catalog.with_services(vec!["ingress/web".parse().unwrap()]);
        let ids: Vec<_> = default_checks.iter().map(|name| catalog.find(name).unwrap()).collect();
        let heard = flips.clone();
        let on_flip = Box::new(move |flip: &Flip| heard.lock().unwrap().push(flip.clone()));
        let board = Board::new(Some("n1".to_owned()), policy, catalog, &ids);
        let _ = board.on_flip.set(on_flip);
        Self { board, flips }
    }

    pub(crate) fn with(policy: Policy, node: Node) -> Self {
        let scenario = Self::begin(policy, &["node_ready"]);
        scenario.board.set_node(node, at(0), WALL);
        scenario.board.prove(at(0));
        scenario.board.open(at(0), WALL);
        scenario
    }

    pub(crate) fn ready() -> Self {
        Self::with(Policy::default(), node(false))
    }

    pub(crate) fn ask(&self, raw: &str, second: u64) -> Reply {
        self.ask_at(raw, at(second))
    }

    pub(crate) fn ask_at(&self, raw: &str, now: Moment) -> Reply {
        match self.board.lookup(raw, now) {
            Lookup::Hit(reply) => reply,
            Lookup::Miss(query) => self.board.answer(raw, &query, now),
            Lookup::Bad(bad) => panic!("{bad}"),
        }
    }

    pub(crate) fn text(&self, raw: &str, second: u64) -> String {
        String::from_utf8(self.ask(raw, second).body.to_vec()).unwrap()
    }

    /// Records the result of a local check at this second, which is valid for ten seconds.
    pub(crate) fn check(&self, name: &str, outcome: Outcome, second: u64) {
        let duration = Duration::from_millis(7);
        let result = LocalResult { outcome, duration, at: at(second), good_until: at(second + 10) };
        let id = self.board.catalog().find(name).unwrap();
        self.board.set_local(id, Some(result), at(second), WALL);
    }

    pub(crate) fn status(&self, second: u64) -> Status {
        self.board.read(at(second), WALL, Status::of)
    }

    pub(crate) fn verdicts(&self) -> Vec<(Verdict, Verdict, String)> {
        let flips = self.flips.lock().unwrap();
        flips.iter().map(|flip| (flip.from, flip.to, flip.reason.to_string())).collect()
    }
}
