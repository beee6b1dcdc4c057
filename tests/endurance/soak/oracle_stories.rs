//! The oracle itself, without an agent: it accepts correct answers and finds each kind of wrong one.

use super::oracle::{Oracle, Reach, Seen, allowance};
use nodegate_simulation::truth::{ProbeKind, Ready, SimulatedAnswer, Truth, stale_answer};
use std::time::{Duration, Instant};

const STALE_AFTER: Duration = Duration::from_secs(15);
const LAG: Duration = Duration::from_millis(2);
const PROBE: Duration = Duration::from_millis(1);

/// A Node that was ready, and is cordoned after ten seconds.
struct Story {
    oracle: Oracle,
    start: Instant,
    ready: Truth,
    cordoned: Truth,
}

fn at(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

impl Story {
    fn new() -> Self {
        let (start, ready) = (Instant::now(), Truth::healthy());
        let cordoned = Truth { unschedulable: true, ..ready.clone() };
        Self { oracle: Oracle::new(STALE_AFTER, &ready, start), start, ready, cordoned }
    }

    fn write(&mut self, truth: &Truth, when: f64) {
        self.oracle.changing(truth, self.start + at(when));
        self.oracle.changed(self.start + at(when) + PROBE);
    }

    fn breaks(&mut self, reach: Reach, when: f64) {
        self.oracle.breaking(reach, self.start + at(when));
        self.oracle.broken(self.start + at(when) + PROBE);
    }

    fn heals(&mut self, when: f64) {
        self.oracle.healing(self.start + at(when));
    }

    fn probe(&mut self, kind: ProbeKind, answer: SimulatedAnswer, when: f64) -> bool {
        let sent = self.start + at(when);
        self.oracle.judge(&Seen { kind, answer, sent, received: sent + PROBE }, LAG).is_ok()
    }

    fn fresh(&mut self, truth: &Truth, when: f64) -> bool {
        self.probe(ProbeKind::Health, truth.answer(ProbeKind::Health), when)
    }

    fn stale(&mut self, when: f64) -> bool {
        self.probe(ProbeKind::Health, stale_answer(ProbeKind::Health), when)
    }
}

#[test]
fn the_oracle_accepts_a_timely_change_and_rejects_a_late_one() {
    let late = allowance(LAG).as_secs_f64();
    let mut story = Story::new();
    let (ready, cordoned) = (story.ready.clone(), story.cordoned.clone());
    assert!(story.fresh(&ready, 9.9));
    assert!(!story.fresh(&cordoned, 9.9), "nobody knows of a change before it is written");
    story.write(&cordoned, 10.0);
    assert!(story.fresh(&ready, 10.0 + late - 0.005), "on its way");
    assert!(!story.fresh(&ready, 10.0 + late + 0.005), "too late");
    assert!(story.fresh(&cordoned, 10.001));
    assert!(!story.fresh(&ready, 10.02), "what was shown once is not forgotten");
    assert!(!story.stale(10.5), "nothing is stale in fair weather");
}

#[test]
fn the_oracle_rejects_a_body_that_differs_in_a_word() {
    let mut story = Story::new();
    let right = story.ready.answer(ProbeKind::Health);
    let text = String::from_utf8(right.body.to_vec()).unwrap();
    for wrong in [text.replace("ready", "Ready"), text.replace("\"duration_ms\":0", ""), text.clone() + "\n"]
    {
        assert!(!story.probe(ProbeKind::Health, SimulatedAnswer::new(200, &wrong), 1.0), "{wrong}");
    }
    assert!(!story.probe(ProbeKind::Health, SimulatedAnswer::new(503, &text), 1.0));
    assert!(story.probe(ProbeKind::Health, right, 1.0));
}

#[test]
fn the_oracle_expects_the_answer_of_each_kind_of_probe() {
    let ready = Truth::healthy();
    let cordoned = Truth { unschedulable: true, ..ready.clone() };
    let broken = Truth { ready: Ready::False("KubeletNotReady".to_owned()), ..cordoned.clone() };
    let says = |truth: &Truth, kind| truth.answer(kind).text();
    assert_eq!(says(&cordoned, ProbeKind::Drain).split(' ').next(), Some("404"));
    assert_eq!(says(&broken, ProbeKind::Drain).split(' ').next(), Some("503"), "NotReady beats Draining");
    assert_eq!(
        [&ready, &cordoned, &broken].map(|t| says(t, ProbeKind::NodeCheck)),
        ["200 OK", "503 Down", "503 Down"]
    );
    assert_eq!(
        [&ready, &cordoned, &broken].map(|t| says(t, ProbeKind::AgentCheck)),
        ["0 up ready", "0 up drain", "0 down #KubeletNotReady"]
    );
    let pressed = Truth { disk_pressure: true, ..ready.clone() };
    assert!(says(&pressed, ProbeKind::Conditions).starts_with("503"));
    assert_eq!(says(&pressed, ProbeKind::Health), says(&ready, ProbeKind::Health));
}

#[test]
fn the_oracle_expects_the_last_state_in_an_outage_until_it_is_stale() {
    let mut story = Story::new();
    let (ready, cordoned) = (story.ready.clone(), story.cordoned.clone());
    story.write(&cordoned, 10.0);
    assert!(story.fresh(&cordoned, 10.4));
    story.breaks(Reach::Nothing, 10.5);
    story.write(&ready, 11.0);
    assert!(story.fresh(&cordoned, 12.5), "nobody could tell the agent");
    assert!(!story.stale(12.5), "proof was no older than six sevenths of stale-after when it began");
    assert!(story.stale(12.7) && story.fresh(&cordoned, 25.6), "either, until it must be stale");
    assert!(story.stale(26.8));
    assert!(!story.fresh(&cordoned, 26.8), "the cache must be stale by now");
}

#[test]
fn the_oracle_rejects_a_change_missed_for_longer_than_stale_after() {
    let mut story = Story::new();
    let (ready, cordoned) = (story.ready.clone(), story.cordoned.clone());
    story.breaks(Reach::Something { unseen: at(6.0) }, 10.0);
    story.write(&cordoned, 10.5);
    assert!(story.fresh(&ready, 16.0));
    assert!(!story.fresh(&ready, 16.8));
    assert!(story.fresh(&cordoned, 16.8));
}

#[test]
fn the_oracle_ends_an_outage_with_the_first_newer_change() {
    let mut story = Story::new();
    let (ready, cordoned) = (story.ready.clone(), story.cordoned.clone());
    story.breaks(Reach::Nothing, 10.0);
    story.heals(40.0);
    story.write(&cordoned, 40.1);
    assert!(story.stale(41.0), "not yet back");
    assert!(!story.oracle.recovery(story.start + at(41.0)).unwrap().1);
    assert!(story.fresh(&cordoned, 43.0));
    let (took, over) = story.oracle.recovery(story.start + at(50.0)).unwrap();
    assert!(over && took >= at(3.0) && took < at(3.1), "{took:?}");
    assert!(!story.stale(43.1), "fair weather again");
    assert!(!story.fresh(&ready, 43.1));
}

#[test]
fn the_oracle_does_not_end_an_outage_with_a_possibly_stale_answer() {
    let mut story = Story::new();
    let (ready, cordoned) = (story.ready.clone(), story.cordoned.clone());
    story.write(&cordoned, 5.0);
    assert!(story.fresh(&cordoned, 6.0));
    story.breaks(Reach::Nothing, 10.0);
    story.heals(40.0);
    story.write(&ready, 40.1);
    assert!(
        story.probe(ProbeKind::NodeCheck, stale_answer(ProbeKind::NodeCheck), 40.5),
        "OK: ready, or not known"
    );
    assert!(!story.oracle.recovery(story.start + at(40.6)).unwrap().1);
    assert!(story.stale(41.0), "not yet back");
    assert!(story.fresh(&ready, 41.5) && !story.stale(41.6));
}
