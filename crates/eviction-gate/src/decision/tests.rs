//! The rules, row by row, and properties of all decisions about all replies at all times.

use super::case::HoldMode;
use super::*;
use crate::facts::drains::{DrainAge, Drains};
use crate::facts::reduced_objects::ReadNode;
use nodegate_agent_api::DrainSummary;
use nodegate_readiness::probers::AckSettings;
use nodegate_readiness::{Kept, Verdict};
use proptest::prelude::*;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn summary() -> DrainSummary {
    DrainSummary {
        kept: None,
        was_kept: false,
        node: Some("n1".to_owned()),
        uid: Some("u1".to_owned()),
        start_id: "s".to_owned(),
        verdict: Some(Verdict::Draining),
        since_ms: 1000,
        stale: false,
        acknowledged: Some(false),
        acknowledged_ready: Some(false),
        released: Some(false),
        acknowledged_probers: 1,
        probers: 2,
        needs_ms: None,
        waiting_for: vec!["10.0.0.6 (lb2) /health".to_owned()],
        not_known: None,
        not_known_code: None,
        balancers: false,
        host: None,
        settings: AckSettings::default(),
    }
}

fn drain(agent: &AgentReply, annotation: Option<EvictWhen>, age: Duration) -> Drain<'_> {
    Drain { node: "worker-1", not_ready_for: None, is_excluded: false, annotation, agent, seen_for: age, age }
}

fn said(change: impl FnOnce(&mut DrainSummary)) -> AgentReply {
    let mut said = summary();
    change(&mut said);
    AgentReply::Summary(Box::new(said))
}

fn limits() -> Limits {
    Limits {
        evict_when: EvictWhen::Acknowledged,
        hold: HoldMode::All,
        max_hold: Duration::from_mins(1),
        unknown_hold: None,
    }
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
    assert_eq!((held.answer, held.why), (Answer::Denied { retry_soon: false }, Why::KEPT));
    let text =
        "node worker-1: kept in the pool: 1 of 2 nodes is drained (--max-drained 50%), worker-2 for longest";
    assert_eq!(held.message, text);
    for (since, why, was_kept) in
        [(1, Why::WAITING, true), (61, Why::MAX_HOLD, true), (1, Why::MAX_HOLD, false)]
    {
        let leaves = said(|summary| (summary.since_ms, summary.was_kept) = (1000 * since, was_kept));
        assert_eq!(decide_at(age, None, &leaves, &limits()).why, why, "{since} s");
    }
    let stale = said(|summary| (summary.stale, summary.kept) = (true, kept));
    assert_eq!(decide_at(age, None, &stale, &limits()).why, Why::MAX_HOLD);
}

/// Decides about a pod on a node whose drain has this age, as this replica has seen all of it.
fn decide_at(age: Duration, annotation: Option<EvictWhen>, agent: &AgentReply, limits: &Limits) -> Decision {
    decide(&drain(agent, annotation, age), limits)
}

fn after(agent: &AgentReply, seconds: u32) -> Decision {
    decide_at(SECOND * seconds, None, agent, &limits())
}

fn denied(why: Why, retry_soon: bool) -> (Answer, Why) {
    (Answer::Denied { retry_soon }, why)
}

fn outcome(agent: &AgentReply, seconds: u32) -> (Answer, Why) {
    let decision = after(agent, seconds);
    (decision.answer, decision.why)
}

const UNACKNOWLEDGED: Answer = Answer::AllowedUnacknowledged;

#[test]
fn the_acknowledgement_ends_a_hold() {
    assert_eq!(outcome(&said(|s| s.acknowledged = Some(true)), 1), (Answer::Allowed, Why::ACKNOWLEDGED));
    let waiting = said(|_| {});
    assert_eq!(outcome(&waiting, 1), denied(Why::WAITING, true));
    assert_eq!(outcome(&waiting, 10), denied(Why::WAITING, false));
    let message = "node worker-1: 1 of 2 load balancers have acknowledged the drain; waiting for 10.0.0.6 (lb2) /health; without --balancers every regular client of the agent counts as one";
    assert_eq!(after(&waiting, 1).message, message);
    assert_eq!(outcome(&waiting, 61), (UNACKNOWLEDGED, Why::MAX_HOLD));
    assert_eq!(
        after(&waiting, 61).message,
        format!("{message}; the drain is older than 60s: evicting anyway")
    );
    let many = said(|s| (s.probers, s.waiting_for) = (7, ["a", "b", "c", "d"].map(str::to_owned).into()));
    assert!(after(&many, 1).message.contains("waiting for a, b, c and 3 more; without"));
    // The agent's own date counts if it is older, and acknowledged counts for more than any date.
    assert_eq!(outcome(&said(|s| s.since_ms = 61_000), 1), (UNACKNOWLEDGED, Why::MAX_HOLD));
    let acknowledged_late = said(|s| (s.since_ms, s.acknowledged) = (3_600_000, Some(true)));
    assert_eq!(outcome(&acknowledged_late, 90), (Answer::Allowed, Why::ACKNOWLEDGED));
}

#[test]
fn an_agent_has_five_seconds_to_leave_ready() {
    let ready = said(|s| (s.verdict, s.since_ms) = (Some(Verdict::Ready), 3_600_000));
    assert_eq!(outcome(&ready, 0), denied(Why::NOT_OUT, true));
    assert_eq!(outcome(&ready, 4), denied(Why::NOT_OUT, true));
    assert_eq!(outcome(&ready, 5), (UNACKNOWLEDGED, Why::MISMATCH));
    let stale = said(|s| (s.verdict, s.stale) = (Some(Verdict::Ready), true));
    assert_eq!(outcome(&stale, 6), denied(Why::STALE, true));
}

#[test]
fn missing_probers_hold_only_where_they_are_required() {
    for code in ["no_probers", "too_few"] {
        let without_probers = |change: fn(&mut DrainSummary)| {
            said(|s| {
                (s.acknowledged, s.not_known_code, s.probers) = (None, Some(code.to_owned()), 0);
                change(s);
            })
        };
        assert_eq!(outcome(&without_probers(|_| {}), 0), (Answer::Allowed, Why::NO_PROBERS));
        for demanding in
            [without_probers(|s| s.balancers = true), without_probers(|s| s.settings.probers = Some(2))]
        {
            assert_eq!(outcome(&demanding, 29), denied(Why::NO_PROBERS, false));
            assert_eq!(outcome(&demanding, 30), (UNACKNOWLEDGED, Why::NO_PROBERS));
            let excluded = Drain { is_excluded: true, ..drain(&demanding, None, SECOND) };
            assert_eq!(decide(&excluded, &limits()), Decision::allowed(Why::OUT_BY_LABEL));
        }
    }
}

#[test]
fn an_unknown_acknowledgement_holds_for_half_a_minute() {
    let listening = said(|s| {
        (s.acknowledged, s.not_known_code) = (None, Some("listening".to_owned()));
        s.not_known = Some("the agent has listened for 3 s".to_owned());
    });
    assert_eq!(after(&listening, 3).message, "node worker-1: the agent has listened for 3 s");
    let misconfigured = said(|s| (s.acknowledged, s.verdict) = (None, None));
    let stale = said(|s| s.stale = true);
    let (silent, wrong) =
        (AgentReply::NoReply("refused".to_owned()), AgentReply::WrongAgent("another".to_owned()));
    assert_eq!(after(&wrong, 30).message, "node worker-1: another; held for 30s: evicting anyway");
    for (word, why) in [
        (listening, Why::NOT_KNOWN),
        (misconfigured, Why::NOT_KNOWN),
        (stale, Why::STALE),
        (silent, Why::UNREACHABLE),
        (wrong, Why::WRONG_AGENT),
    ] {
        assert_eq!(outcome(&word, 0), denied(why, true));
        assert_eq!(outcome(&word, 29), denied(why, false));
        assert_eq!(outcome(&word, 30), (UNACKNOWLEDGED, why));
    }
    assert_eq!(outcome(&AgentReply::Overloaded, 60), denied(Why::OVERLOADED, false));
    assert_eq!(outcome(&AgentReply::Overloaded, 61), (UNACKNOWLEDGED, Why::MAX_HOLD));
}

#[test]
fn a_dead_node_is_not_waited_for() {
    let agent = AgentReply::NoReply("no whole answer within 1s".to_owned());
    for (dead_for, answer) in [(None, "denied"), (Some(29), "denied"), (Some(30), "allowed")] {
        let not_ready_for = dead_for.map(Duration::from_secs);
        let drain = Drain { not_ready_for, ..drain(&agent, None, Duration::ZERO) };
        assert_eq!(decide(&drain, &limits()).answer.as_str(), answer, "{dead_for:?}");
    }
}

#[test]
fn annotations_select_pods_and_events() {
    let decide_as = |annotation, hold, agent: &AgentReply, seconds: u32| {
        let decision = decide_at(SECOND * seconds, annotation, agent, &Limits { hold, ..limits() });
        (decision.answer, decision.why)
    };
    let (waiting, acknowledged) =
        (said(|_| {}), said(|s| (s.acknowledged, s.released) = (Some(true), Some(false))));
    let free = said(|s| (s.acknowledged, s.released) = (Some(true), Some(true)));
    let unknown = said(|s| (s.acknowledged, s.released) = (Some(true), None));
    let (now, released) = (Some(EvictWhen::Now), Some(EvictWhen::Released));
    assert_eq!(decide_as(now, HoldMode::All, &waiting, 1), (Answer::Allowed, Why::ANNOTATED_NOW));
    assert_eq!(decide_as(None, HoldMode::Annotated, &waiting, 1), (Answer::Allowed, Why::NOT_ANNOTATED));
    assert_eq!(
        decide_as(Some(EvictWhen::Acknowledged), HoldMode::Annotated, &waiting, 1),
        denied(Why::WAITING, true)
    );
    assert_eq!(decide_as(released, HoldMode::All, &acknowledged, 1), denied(Why::SESSIONS, true));
    assert_eq!(decide_as(released, HoldMode::All, &acknowledged, 61), (UNACKNOWLEDGED, Why::MAX_HOLD));
    assert_eq!(decide_as(released, HoldMode::All, &free, 1), (Answer::Allowed, Why::RELEASED));
    assert_eq!(decide_as(released, HoldMode::All, &unknown, 30), (UNACKNOWLEDGED, Why::NOT_KNOWN));
}

/// What an agent may do to the age of a drain: the reply to the review with this number, after so many seconds.
type Behaviour = (&'static str, fn(u64, u64) -> AgentReply);

const BEHAVIOURS: [Behaviour; 6] = [
    ("waits for a balancer", |_, after| said(|s| s.since_ms = after * 1000)),
    ("hangs", |_, _| AgentReply::NoReply("no answer within 1s".to_owned())),
    ("is restarted each time", |number, _| said(|s| (s.start_id, s.since_ms) = (number.to_string(), 100))),
    ("goes stale and fresh", |number, _| said(|s| (s.stale, s.since_ms) = (number % 2 == 0, 0))),
    ("alternates between ready and draining", |number, _| {
        said(|s| {
            (s.since_ms, s.verdict) =
                (0, Some(if number % 2 == 0 { Verdict::Ready } else { Verdict::Draining }));
        })
    }),
    ("claims a later start each time", |number, after| {
        said(|s| {
            (s.start_id, s.since_ms) = ("5eed".to_owned(), (after * 1000).saturating_sub(number * 50_000));
        })
    }),
];

/// Reviews alternate between both replicas; the Node has a date, as the node controller gives it.
#[test]
fn no_agent_makes_a_hold_longer_than_its_limit() {
    for (name, behaviour) in BEHAVIOURS {
        for pause in [1, 30, 122, 600] {
            let (replicas, start) = ([Drains::default(), Drains::default()], nodegate_clock::now());
            let mut last_denial = None;
            for number in 0..1000 {
                let after = Duration::from_secs(number * pause);
                let read = ReadNode { drained_for: Some(after), ..ReadNode::default() };
                let agent = behaviour(number, number * pause);
                let drains = &replicas[usize::from(number % 2 == 1)];
                let DrainAge { seen_for, age } = drains.seen(&read, start + after, false);
                if let AgentReply::Summary(summary) = &agent {
                    drains.out_for(read.key(), Duration::from_millis(summary.since_ms), start + after);
                }
                let drain = Drain { seen_for, ..drain(&agent, None, age) };
                if !decide(&drain, &limits()).answer.is_allowed() {
                    last_denial = Some(after);
                }
            }
            assert!(last_denial <= Some(limits().max_hold), "{name}, {pause} s: {last_denial:?}");
        }
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
        6 => any_summary().prop_map(|said| AgentReply::Summary(Box::new(said))),
        1 => ".{0,400}".prop_map(AgentReply::NoReply),
        1 => ".{0,400}".prop_map(AgentReply::WrongAgent),
        1 => Just(AgentReply::Overloaded),
    ]
}

fn any_annotation() -> impl Strategy<Value = Option<EvictWhen>> {
    prop::option::of(prop::sample::select(vec![EvictWhen::Acknowledged, EvictWhen::Released, EvictWhen::Now]))
}

prop_compose! {
    fn any_limits()(hold in any::<bool>(), max in 1..300_u64, unknown in 0..300_u64,
        when in any::<bool>()) -> Limits {
        Limits {
            evict_when: if when { EvictWhen::Acknowledged } else { EvictWhen::Released },
            hold: if hold { HoldMode::All } else { HoldMode::Annotated },
            max_hold: Duration::from_secs(max),
            unknown_hold: Some(Duration::from_secs(unknown.min(max))),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_drain_is_held_beyond_its_limit(agent in any_reply(), limits in any_limits(), annotation in any_annotation(), ms in 0..700_000_u64) {
        let (age, longest) = (Duration::from_millis(ms), limits.max_hold);
        let decision = decide_at(age, annotation, &agent, &limits);
        if age > longest {
            prop_assert!(decision.answer.is_allowed(), "{decision:?}");
        }
        if let (Answer::Denied { .. }, AgentReply::Summary(said)) = (decision.answer, &agent)
            && !said.stale && matches!(said.verdict, Some(Verdict::Draining | Verdict::NotReady))
        {
            prop_assert!(Duration::from_millis(said.since_ms) <= longest, "{decision:?}");
        }
    }

    #[test]
    fn the_acknowledgement_is_never_held(agent in any_summary(), limits in any_limits(), ms in 0..700_000_u64) {
        let out = DrainSummary { verdict: Some(Verdict::Draining), stale: false, acknowledged: Some(true), ..agent };
        let agent = AgentReply::Summary(Box::new(out));
        let decision = decide_at(Duration::from_millis(ms), Some(EvictWhen::Acknowledged), &agent, &limits);
        prop_assert_eq!((decision.answer, decision.why), (Answer::Allowed, Why::ACKNOWLEDGED));
    }

    /// Only a known reason lets an eviction go on without a message.
    #[test]
    fn an_eviction_goes_on_silently_only_if_it_may(agent in any_reply(), limits in any_limits(), annotation in any_annotation(), ms in 0..700_000_u64) {
        let decision = decide_at(Duration::from_millis(ms), annotation, &agent, &limits);
        if decision.answer != Answer::Allowed {
            prop_assert!(!decision.message.is_empty());
            return Ok(());
        }
        let is_safe = match (&agent, decision.why) {
            (_, Why::ANNOTATED_NOW) => annotation == Some(EvictWhen::Now),
            (_, Why::NOT_ANNOTATED) => annotation.is_none() && limits.hold == HoldMode::Annotated,
            (AgentReply::Summary(said), Why::ACKNOWLEDGED | Why::RELEASED) => said.acknowledged == Some(true) && !said.stale,
            (AgentReply::Summary(said), Why::NO_PROBERS) => !said.balancers && said.settings.probers.is_none() && said.acknowledged.is_none(),
            _ => false,
        };
        prop_assert!(is_safe, "{decision:?} of {agent:?}");
    }

    /// Waiting never turns an allowed eviction into a refused one.
    #[test]
    fn an_older_drain_is_never_held_more(agent in any_reply(), limits in any_limits(), annotation in any_annotation(), early in 0..700_000_u64, more in 0..700_000_u64) {
        let at = |ms| decide_at(Duration::from_millis(ms), annotation, &agent, &limits).answer;
        if at(early).is_allowed() {
            prop_assert!(at(early + more).is_allowed());
        }
    }

    #[test]
    fn messages_are_bounded_and_without_control_characters(agent in any_reply(), ms in 0..100_000_u64) {
        let node = "n".repeat(253);
        let drain = Drain { node: &node, ..drain(&agent, None, Duration::from_millis(ms)) };
        let message = decide(&drain, &limits()).message;
        prop_assert!(message.chars().count() < 1400 && !message.contains(|c: char| c.is_control()), "{message}");
    }
}
