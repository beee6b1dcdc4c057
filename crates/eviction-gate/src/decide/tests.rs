//! The rules, row by row, and properties of all decisions about all replies at all times.

use super::*;
use crate::args::Args;
use crate::decision::EVICT_WHEN_WORDS;
use clap::Parser as _;
use nodegate_agent_api::Status;
use nodegate_agent_client::NodeIdentity;
use nodegate_readiness::Kept;
use nodegate_readiness::probers::AckSettings;
use proptest::prelude::*;
use std::sync::LazyLock;

const SECOND: Duration = Duration::from_secs(1);

fn summary() -> DrainSummary {
    DrainSummary {
        verdict: Some(Verdict::Draining),
        since_ms: 1000,
        acknowledged: Some(false),
        released: Some(false),
        acknowledged_probers: 1,
        probers: 2,
        waiting_for: vec!["10.0.0.6 (lb2) /health".to_owned()],
        ..DrainSummary::of(&Status::default(), None)
    }
}

static NODE: LazyLock<ReadNode> = LazyLock::new(|| ReadNode {
    identity: NodeIdentity { name: "n1".to_owned(), uid: None },
    ..ReadNode::default()
});

fn drain(agent: &AgentReply, annotation: Option<EvictWhen>, age: Duration) -> Drain<'_> {
    Drain { node: &NODE, annotation, agent, seen_for: age, age }
}

#[expect(clippy::unnecessary_wraps, reason = "the other replies are errors")]
fn said(change: impl FnOnce(&mut DrainSummary)) -> AgentReply {
    let mut said = summary();
    change(&mut said);
    Ok(said)
}

fn none(why: Why) -> AgentReply {
    Err((why, "another".to_owned()))
}

fn limits() -> Limits {
    Args::parse_from(["gate"]).limits
}

/// A node waits its turn for as long as it takes; its own hold begins then, whatever the date of its cordon.
#[test]
fn a_kept_node_is_held_until_its_turn_and_from_then_on() {
    let max_drained = "50%".parse().unwrap();
    let first = "worker-2".to_owned();
    let kept = Some(Kept { drained: 1, nodes: 2, max_drained, first, before: Vec::new() });
    let waits = said(|summary| (summary.verdict, summary.kept) = (Some(Verdict::Ready), kept.clone()));
    let age = Duration::from_hours(9);
    let held = decide_at(age, None, &waits, &limits());
    assert_eq!((held.answer, held.why), (DENIED, KEPT));
    let text = "node n1: kept in the pool: 1 of 2 nodes is drained (--max-drained 50%), worker-2 for longest";
    assert_eq!(held.message, text);
    for (since, why, was_kept) in [(1, "waiting", true), (61, "max_hold", true), (1, "max_hold", false)] {
        let leaves = said(|summary| (summary.since_ms, summary.was_kept) = (1000 * since, was_kept));
        assert_eq!(decide_at(age, None, &leaves, &limits()).why, why, "{since} s");
    }
    let stale = said(|summary| (summary.stale, summary.kept) = (true, kept));
    assert_eq!(decide_at(age, None, &stale, &limits()).why, "max_hold");
}

/// Decides about a pod on a node whose drain has this age, as this replica has seen all of it.
fn decide_at(age: Duration, annotation: Option<EvictWhen>, agent: &AgentReply, limits: &Limits) -> Decision {
    decide(&drain(agent, annotation, age), limits)
}

fn after(agent: &AgentReply, seconds: u32) -> Decision {
    decide_at(SECOND * seconds, None, agent, &limits())
}

const UNACKNOWLEDGED: Answer = Answer::AllowedUnacknowledged;
const DENIED: Answer = Answer::Denied { retry_soon: false };
const RETRY: Answer = Answer::Denied { retry_soon: true };

#[test]
fn each_reply_has_its_answers_by_the_age_of_the_drain() {
    let without_probers = |code: &str, change: fn(&mut DrainSummary)| {
        said(|s| {
            (s.acknowledged, s.not_known_code, s.probers) = (None, Some(code.to_owned()), 0);
            change(s);
        })
    };
    let held_30_s = |why| vec![(0, RETRY, why), (29, DENIED, why), (30, UNACKNOWLEDGED, why)];
    let held =
        |why| vec![(0, RETRY, why), (10, DENIED, why), (60, DENIED, why), (61, UNACKNOWLEDGED, "max_hold")];
    let allowed = |why| vec![(0, Answer::Allowed, why), (90, Answer::Allowed, why)];
    let rows = [
        (said(|s| s.acknowledged = Some(true)), allowed("acknowledged")),
        // What is acknowledged counts for more than any date; else that of the agent counts if it is older.
        (said(|s| (s.since_ms, s.acknowledged) = (3_600_000, Some(true))), allowed("acknowledged")),
        (said(|s| s.since_ms = 61_000), vec![(1, UNACKNOWLEDGED, "max_hold")]),
        (said(|_| {}), held("waiting")),
        (
            said(|s| (s.verdict, s.since_ms) = (Some(Verdict::Ready), 3_600_000)),
            vec![(0, RETRY, "not_out"), (4, RETRY, "not_out"), (5, UNACKNOWLEDGED, "mismatch")],
        ),
        (said(|s| (s.verdict, s.stale) = (Some(Verdict::Ready), true)), held_30_s("stale")),
        (said(|s| s.stale = true), held_30_s("stale")),
        (without_probers("no_probers", |_| {}), allowed("no_probers")),
        (without_probers("too_few", |_| {}), allowed("no_probers")),
        (without_probers("no_probers", |s| s.balancers = true), held_30_s("no_probers")),
        (without_probers("too_few", |s| s.settings.probers = Some(2)), held_30_s("no_probers")),
        (without_probers("listening", |_| {}), held_30_s("not_known")),
        (said(|s| (s.acknowledged, s.verdict) = (None, None)), held_30_s("not_known")),
        (none(UNREACHABLE), held_30_s(UNREACHABLE)),
        (none("wrong_agent"), held_30_s("wrong_agent")),
        (none(OVERLOADED), held(OVERLOADED)),
    ];
    for (agent, answers) in rows {
        for (seconds, answer, why) in answers {
            let decision = after(&agent, seconds);
            assert_eq!((decision.answer, decision.why), (answer, why), "{agent:?} after {seconds} s");
        }
    }
}

#[test]
fn a_message_names_what_is_waited_for() {
    let message = "node n1: 1 of 2 load balancers have acknowledged the drain; waiting for 10.0.0.6 (lb2) /health; without --balancers every regular client of the agent counts as one";
    let anyway = |limit| format!("; {limit}: evicting anyway");
    let listening = said(|s| {
        (s.acknowledged, s.not_known_code) = (None, Some("listening".to_owned()));
        s.not_known = Some("the agent has listened for 3 s".to_owned());
    });
    let wrong = none("wrong_agent");
    for (agent, seconds, expected) in [
        (said(|_| {}), 1, message.to_owned()),
        (said(|_| {}), 61, message.to_owned() + &anyway("the drain is older than 60s")),
        (listening, 3, "node n1: the agent has listened for 3 s".to_owned()),
        (wrong, 30, "node n1: another".to_owned() + &anyway("the drain is older than 30s")),
    ] {
        assert_eq!(after(&agent, seconds).message, expected);
    }
    let many = said(|s| (s.probers, s.waiting_for) = (7, ["a", "b", "c", "d"].map(str::to_owned).into()));
    assert!(after(&many, 1).message.contains("waiting for a, b, c and 3 more; without"));
}

#[test]
fn a_dead_node_and_one_that_is_out_by_its_label_are_not_waited_for() {
    let silent = none(UNREACHABLE);
    for (dead_for, answer) in [(None, RETRY), (Some(29), RETRY), (Some(30), UNACKNOWLEDGED)] {
        let node = ReadNode { not_ready_for: dead_for.map(Duration::from_secs), ..ReadNode::default() };
        let drain = Drain { node: &node, ..drain(&silent, None, Duration::ZERO) };
        assert_eq!(decide(&drain, &limits()).answer, answer, "{dead_for:?}");
    }
    let without_probers = said(|s| {
        (s.acknowledged, s.probers, s.balancers) = (None, 0, true);
        s.not_known_code = Some("no_probers".to_owned());
    });
    let node = ReadNode { is_excluded: true, ..ReadNode::default() };
    let excluded = Drain { node: &node, ..drain(&without_probers, None, SECOND) };
    assert_eq!(decide(&excluded, &limits()), Decision::allowed("out_by_label"));
}

#[test]
fn annotations_select_pods_and_events() {
    let with =
        |acknowledged, released| said(|s| (s.acknowledged, s.released) = (Some(acknowledged), released));
    let released = Some(EvictWhen::Released);
    for (annotation, only_annotated, agent, seconds, answer, why) in [
        (Some(EvictWhen::Now), false, with(false, None), 1, Answer::Allowed, "annotated_now"),
        (None, true, with(false, None), 1, Answer::Allowed, "not_annotated"),
        (Some(EvictWhen::Acknowledged), true, with(false, None), 1, RETRY, "waiting"),
        (released, false, with(true, Some(false)), 1, RETRY, "sessions"),
        (released, false, with(true, Some(false)), 61, UNACKNOWLEDGED, "max_hold"),
        (released, false, with(true, Some(true)), 1, Answer::Allowed, "released"),
        (released, false, with(true, None), 30, UNACKNOWLEDGED, "not_known"),
    ] {
        let decision =
            decide_at(SECOND * seconds, annotation, &agent, &Limits { only_annotated, ..limits() });
        assert_eq!((decision.answer, decision.why), (answer, why), "{annotation:?} {agent:?} {seconds}");
    }
}

prop_compose! {
    fn any_summary()(
        verdict in prop_oneof![Just(None), Just(Some(Verdict::Ready)), Just(Some(Verdict::Draining)), Just(Some(Verdict::NotReady))],
        since_ms in prop_oneof![0..200_000_u64, any::<u64>()],
        (stale, balancers, demanded) in any::<(bool, bool, bool)>(),
        acknowledged: Option<bool>,
        released: Option<bool>,
        (acknowledged_probers, probers) in any::<(usize, usize)>(),
        waiting_for in prop::collection::vec(".{0,300}", 0..9),
        not_known in prop::option::of(".{0,600}"),
        code in prop::option::of("no_probers|too_few|listening|stale|.{0,9}"),
    ) -> DrainSummary {
        let settings = AckSettings { probers: demanded.then_some(2), ..AckSettings::default() };
        DrainSummary { verdict, since_ms, stale, acknowledged, released, acknowledged_probers, probers, waiting_for, not_known,
            not_known_code: code, balancers, settings, ..summary() }
    }
}

fn any_reply() -> impl Strategy<Value = AgentReply> {
    prop_oneof![
        6 => any_summary().prop_map(Ok),
        1 => (prop::sample::select(vec![UNREACHABLE, "wrong_agent", OVERLOADED]), ".{0,400}").prop_map(Err),
    ]
}

prop_compose! {
    fn any_limits()(only_annotated: bool, max in 1..300_u64, unknown in 0..300_u64, when in 0..2_usize) -> Limits {
        let [max_hold, unknown_hold] = [max, unknown].map(Duration::from_secs);
        Limits { evict_when: EVICT_WHEN_WORDS[when].1, only_annotated, max_hold, unknown_hold }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]

    #[test]
    fn every_decision_keeps_the_rules(agent in any_reply(), limits in any_limits(),
        annotation in prop::option::of(prop::sample::select(EVICT_WHEN_WORDS.map(|(_, when)| when).to_vec())),
        ms in 0..700_000_u64, more in 0..700_000_u64) {
        let at = |ms| decide_at(Duration::from_millis(ms), annotation, &agent, &limits);
        let (age, decision) = (Duration::from_millis(ms), at(ms));
        // No drain is held beyond its limit, and an older one is never held more.
        prop_assert!(age <= limits.max_hold || decision.answer.is_allowed(), "{decision:?}");
        prop_assert!(!decision.answer.is_allowed() || at(ms + more).answer.is_allowed());
        let is_text = decision.message.chars().count() < 1400 && !decision.message.contains(char::is_control);
        prop_assert!(is_text, "{}", decision.message);
        let Ok(said) = &agent else {
            let of_the_pod = matches!(decision.why, "annotated_now" | "not_annotated");
            prop_assert!(decision.answer != Answer::Allowed || of_the_pod, "{decision:?}");
            return Ok(());
        };
        let is_out = matches!(said.verdict, Some(Verdict::Draining | Verdict::NotReady)) && !said.stale;
        if is_out && !decision.answer.is_allowed() {
            prop_assert!(Duration::from_millis(said.since_ms) <= limits.max_hold, "{decision:?}");
        }
        let is_acknowledged = is_out && said.acknowledged == Some(true);
        if is_acknowledged && annotation == Some(EvictWhen::Acknowledged) {
            prop_assert_eq!((decision.answer, decision.why), (Answer::Allowed, "acknowledged"));
        }
        // Only a known reason lets an eviction go on without a message.
        prop_assert_eq!(decision.answer == Answer::Allowed, decision.message.is_empty());
        let is_safe = decision.answer != Answer::Allowed || match decision.why {
            "annotated_now" => annotation == Some(EvictWhen::Now),
            "not_annotated" => annotation.is_none() && limits.only_annotated,
            "acknowledged" | "released" => is_acknowledged,
            "no_probers" => !said.balancers && said.settings.probers.is_none() && said.acknowledged.is_none(),
            _ => false,
        };
        prop_assert!(is_safe, "{decision:?} of {agent:?}");
    }
}
