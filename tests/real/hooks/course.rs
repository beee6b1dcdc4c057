//! The course of an ending: when balancers have acknowledged and pods end, and which requests are lost.

use crate::site::{Site, WAYS, Way, drain, listens};
use nodegate_testbed::real_cluster::DEADLINE;
use nodegate_testbed::waiting::until_within;
use nodegate_testbed::watching::seen;
use std::thread;
use std::time::{Duration, Instant};

/// The time for which clients go on after all has ended.
const AFTERWARDS: Duration = Duration::from_secs(5);

/// The longest time for which the agent gives the answer that it gave before.
const RENDERED: Duration = Duration::from_millis(100);

/// What came when after the signal.
#[derive(Default)]
pub(super) struct Course {
    pub(super) out: Option<Duration>,
    pub(super) acknowledged: Option<Duration>,
    pub(super) plain: Option<Duration>,
    pub(super) held: Option<Duration>,
    pub(super) agent: Option<Duration>,
}

impl Course {
    /// Watches pods and agent until `is_over`.
    pub(super) fn watch(site: &Site<'_>, began: Instant, is_over: impl Fn(&Self) -> bool) -> Self {
        let mut course = Self::default();
        let step = || {
            let [plain, held, agent] =
                [Way::Plain.address(), Way::Held.address(), site.agent].map(|at| !listens(at));
            // The agent last, however long all of that takes: an end that is seen without acknowledged came
            // too early.
            thread::sleep(RENDERED);
            let state = drain(site.agent);
            let now = began.elapsed();
            note(&mut course.out, now, state["verdict"].as_str().is_some_and(|is| is != "ready"));
            note(&mut course.acknowledged, now, state["acknowledged"] == true);
            note(&mut course.plain, now, plain);
            note(&mut course.held, now, held);
            note(&mut course.agent, now, agent);
            is_over(&course).then_some(())
        };
        until_within(DEADLINE, step, || "the pods go on".to_owned());
        course
    }

    pub(super) fn pods_have_ended(&self) -> bool {
        self.plain.is_some() && self.held.is_some()
    }

    pub(super) fn acknowledged_and_pods_ended(&self) -> bool {
        self.acknowledged.is_some() && self.pods_have_ended()
    }

    pub(super) fn all_has_ended(&self) -> bool {
        self.agent.is_some() && self.pods_have_ended()
    }

    pub(super) fn is_acknowledged_before(&self, end: Option<Duration>) -> bool {
        self.acknowledged.zip(end).is_some_and(|(acknowledged, end)| acknowledged <= end)
    }

    /// Lets the clients go on for a while, prints the line of the documents' table, and returns the requests
    /// lost without and with a hook.
    pub(super) fn report(&self, what: &str, site: &Site<'_>, began: Instant) -> [u32; 2] {
        thread::sleep(AFTERWARDS);
        let requests = WAYS.map(|way| site.requests(way, began));
        let times = [self.out, self.acknowledged, self.plain, self.held, self.agent]
            .map(|time| time.map_or("-".to_owned(), |time| format!("{:.1} s", time.as_secs_f64())));
        let lost = requests.map(|way| {
            let last = way.last_lost.map(|last| last.saturating_duration_since(began).as_secs_f64());
            let until = last.map_or_else(String::new, |last| format!(", until {last:.1} s"));
            format!("{} of {}{until}", way.lost, way.all)
        });
        seen(what, &format!("| {} | {} |", times.join(" | "), lost.join(" | ")));
        requests.map(|way| way.lost)
    }

    /// Asserts that the hook did what it is for, and that there was something to do.
    pub(super) fn held_until_acknowledged(&self, what: &str, [lost_plain, lost_held]: [u32; 2]) {
        assert!(
            self.is_acknowledged_before(self.held),
            "{what}: acknowledged {:?}, ended {:?}",
            self.acknowledged,
            self.held
        );
        assert!(self.plain < self.acknowledged, "{what}: the pod without a hook waited, too");
        assert!(lost_plain > 0, "{what}: no request was lost without a hook");
        assert_eq!(lost_held, 0, "{what}: lost in spite of the hook");
    }
}

fn note(slot: &mut Option<Duration>, now: Duration, is_so: bool) {
    if slot.is_none() && is_so {
        *slot = Some(now);
    }
}

pub(super) fn header() {
    seen(
        "ending",
        "| 503 | acknowledged | pod without the hook | pod with it | agent | lost without the hook | lost with it |",
    );
}
