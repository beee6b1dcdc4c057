//! The course of an ending: when balancers have acknowledged and pods end, and which requests are lost.

use crate::scenario::{HELD, PLAIN, Scenario, WAYS, drain, listens};
use nodegate_testbed::real_cluster::{seen, until_so};
use std::thread;
use std::time::{Duration, Instant};

/// The time for which clients go on after all has ended.
const AFTERWARDS: Duration = Duration::from_secs(5);
/// The longest time for which the agent gives the answer that it gave before.
const RENDERED: Duration = Duration::from_millis(100);

/// What came when after the signal.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    pub(crate) began: Instant,
    pub(crate) out: Option<Duration>,
    pub(crate) acknowledged: Option<Duration>,
    /// The time at which all pods were asked to end.
    pub(crate) ending: Option<Duration>,
    pub(super) plain: Option<Duration>,
    pub(super) held: Option<Duration>,
    pub(super) agent: Option<Duration>,
}

impl Course {
    /// Causes an ending, and watches pods and agent until `is_over`.
    pub(crate) fn of(scenario: &Scenario<'_>, end: impl FnOnce(), is_over: fn(&Self) -> bool) -> Self {
        thread::scope(|scope| {
            let watching = scope.spawn(|| Self::watch(scenario, is_over));
            end();
            watching.join().unwrap()
        })
    }

    fn watch(scenario: &Scenario<'_>, is_over: fn(&Self) -> bool) -> Self {
        let began = Instant::now();
        let [out, acknowledged, ending, plain, held, agent] = [None; 6];
        let mut course = Self { began, out, acknowledged, ending, plain, held, agent };
        let step = || {
            let ending = scenario.pods.are_ending();
            let [plain, held, agent] =
                [PLAIN.address(), HELD.address(), scenario.agent].map(|at| !listens(at));
            // The agent last: an end that is seen without acknowledged came too early.
            thread::sleep(RENDERED);
            let state = drain(scenario.agent);
            let now = began.elapsed();
            for (time, is_so) in [
                (&mut course.out, state["verdict"].as_str().is_some_and(|is| is != "ready")),
                (&mut course.acknowledged, state["acknowledged"] == true),
                (&mut course.ending, ending),
                (&mut course.plain, plain),
                (&mut course.held, held),
                (&mut course.agent, agent),
            ] {
                *time = time.or(is_so.then_some(now));
            }
            is_over(&course)
        };
        until_so(step, || "the pods go on".to_owned());
        course
    }

    pub(super) fn acknowledged_and_pods_ended(&self) -> bool {
        self.acknowledged.is_some() && self.plain.is_some() && self.held.is_some()
    }

    pub(super) fn all_has_ended(&self) -> bool {
        self.agent.is_some() && self.plain.is_some() && self.held.is_some()
    }

    /// Prints the line of the documents' table, and returns the requests lost without and with a hook.
    pub(super) fn report(&self, what: &str, scenario: &Scenario<'_>) -> [u32; 2] {
        thread::sleep(AFTERWARDS);
        let requests = WAYS.map(|way| scenario.requests(way, self.began));
        let times = [self.out, self.acknowledged, self.plain, self.held, self.agent]
            .map(|time| time.map_or("-".to_owned(), |time| format!("{time:.1?}")));
        let lost = requests.map(|way| {
            let last = way.last_lost.map(|last| last.saturating_duration_since(self.began));
            let until = last.map_or_else(String::new, |last| format!(", until {last:.1?}"));
            format!("{} of {}{until}", way.lost, way.all)
        });
        seen(what, format!("| {} | {} |", times.join(" | "), lost.join(" | ")));
        requests.map(|way| way.lost)
    }

    /// Asserts that the hook did what it is for, and that there was something to do.
    pub(super) fn held_until_acknowledged(&self, what: &str, [lost_plain, lost_held]: [u32; 2]) {
        assert!(self.acknowledged.is_some() && self.acknowledged <= self.held, "{what}: {self:?}");
        assert!(self.plain < self.acknowledged, "{what}: the pod without a hook waited, too");
        assert!(lost_plain > 0, "{what}: no request was lost without a hook");
        assert_eq!(lost_held, 0, "{what}: lost in spite of the hook");
    }
}

pub(super) fn header() {
    let columns = "503 | acknowledged | pod without the hook | pod with it | agent | lost without the hook";
    seen("ending", format!("| {columns} | lost with it |"));
}
