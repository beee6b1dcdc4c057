//! Tests of the progress lines of a wait, and of its result.

use super::world::{World, balancer};
use nodegate_agent_client::{WaitEnd, Waiting};
use nodegate_readiness::probers::{AckOverrides, Goal, Traffic};
use std::time::Duration;

struct Watch {
    waiting: Waiting,
    began_ms: u64,
    lines: Vec<String>,
}

impl Watch {
    fn begin(world: &World, goal: Goal, overrides: AckOverrides) -> Self {
        Self { waiting: Waiting::new(goal, overrides, None), began_ms: world.now_ms, lines: Vec::new() }
    }

    fn look(&mut self, world: &World) -> Option<WaitEnd> {
        let elapsed = Duration::from_millis(world.now_ms - self.began_ms);
        let progress = self.waiting.step(Ok(&world.status()), elapsed);
        self.lines.extend(progress.lines);
        progress.ended
    }

    fn until_end(&mut self, world: &mut World) -> WaitEnd {
        loop {
            if let Some(ended) = self.look(world) {
                return ended;
            }
            world.pass(500);
        }
    }
}

/// Returns the result of a wait, and its lines.
fn wait(world: &mut World, goal: Goal, overrides: AckOverrides) -> (WaitEnd, Vec<String>) {
    let mut watch = Watch::begin(world, goal, overrides);
    (watch.until_end(world), watch.lines)
}

fn acknowledged(world: &mut World) -> (WaitEnd, Vec<String>) {
    wait(world, Goal::Acknowledged, AckOverrides::default())
}

fn after_a_while(mut world: World) -> World {
    world.pass_seconds(200);
    world.cordon(true);
    world
}

#[test]
fn each_is_named_when_it_gets_there() {
    let mut world = after_a_while(World::new([balancer(1, 2000), balancer(2, 1000)]));
    let (ended, lines) = acknowledged(&mut world);
    assert_eq!(
        lines,
        [
            "waiting  10.0.0.1 /health, probes every 2 s",
            "waiting  10.0.0.2 /health, probes every 1 s",
            "acknowledged  10.0.0.2 /health: 4 times in a row, probes every 1 s",
            "acknowledged  10.0.0.1 /health: 4 times in a row, probes every 2 s",
            "acknowledged after 6 s: 2 balancers",
        ]
    );
    assert_eq!((ended, ended.exit_code()), (WaitEnd::Reached, 0));
    world.cordon(false);
    let (ended, lines) = wait(&mut world, Goal::Ready, AckOverrides::default());
    assert_eq!((ended, lines.last().unwrap().as_str()), (WaitEnd::Reached, "ready after 6 s: 2 balancers"));
}

#[test]
fn a_node_that_is_not_taken_out_has_not_acknowledged() {
    let mut world = World::new([balancer(1, 2000)]);
    world.pass_seconds(200);
    let (ended, lines) = acknowledged(&mut world);
    assert_eq!((ended, ended.exit_code()), (WaitEnd::TimedOut, 1));
    assert!(lines.contains(&"the node is Ready: nothing takes it out yet".to_owned()), "{lines:?}");
    assert!(
        lines.last().unwrap().starts_with("not acknowledged after 2 min: the node is Ready"),
        "{lines:?}"
    );
}

#[test]
fn a_balancer_that_never_asks_is_not_known() {
    let mut world = after_a_while(World::new([]));
    let began = world.now_ms;
    let (ended, lines) = acknowledged(&mut world);
    assert_eq!((ended, ended.exit_code(), world.now_ms), (WaitEnd::NotKnown, 3, began), "waiting can't help");
    assert_eq!(
        lines.last().unwrap(),
        "not known whether acknowledged: no balancer probes this agent regularly"
    );
    let mut world = after_a_while(World::new([balancer(1, 2000)]));
    let overrides = AckOverrides { probers: Some(2), ..AckOverrides::default() };
    let (ended, lines) = wait(&mut world, Goal::Acknowledged, overrides);
    assert_eq!(ended, WaitEnd::NotKnown);
    assert!(lines.last().unwrap().contains("1 of 2 required balancers"), "{lines:?}");
}

#[test]
fn a_slow_balancer_is_given_its_time() {
    for (every_ms, at_most) in [(10_000, 41), (60_000, 241)] {
        let mut world = World::new([balancer(1, every_ms), balancer(2, 2000)]);
        world.pass_seconds(300);
        world.cordon(true);
        let began = world.now_ms;
        assert_eq!(acknowledged(&mut world).0, WaitEnd::Reached);
        assert!(world.now_ms - began <= at_most * 1000, "{every_ms}");
    }
}

#[test]
fn one_that_dies_is_named_and_given_up_when_it_is_gone() {
    let mut world = after_a_while(World::new([balancer(1, 2000), balancer(2, 2000)]));
    world.pass(3000);
    world.stop(1);
    let (ended, lines) = acknowledged(&mut world);
    assert_eq!(ended, WaitEnd::Reached);
    assert!(lines.iter().any(|line| line.starts_with("silent   10.0.0.2 /health: nothing for")), "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("gone     10.0.0.2 /health")), "{lines:?}");
    assert!(lines.last().unwrap().ends_with("the one balancer that probes"), "{lines:?}");
    // A slow balancer: the timeout comes before it is gone.
    let mut world = World::new([balancer(1, 2000), balancer(2, 30_000)]);
    world.pass_seconds(200);
    world.cordon(true);
    world.stop(1);
    let (ended, lines) = acknowledged(&mut world);
    assert_eq!((ended, ended.exit_code()), (WaitEnd::TimedOut, 1));
    let last = lines.last().unwrap();
    assert!(last.contains("10.0.0.2 /health (got it 0 of 4 times, silent for"), "{last}");
}

#[test]
fn an_agent_that_is_replaced_in_the_middle_is_waited_for() {
    let world = after_a_while(World::new([balancer(1, 2000)]));
    let mut watch = Watch::begin(&world, Goal::Acknowledged, AckOverrides::default());
    assert_eq!(watch.look(&world), None);
    let refused = watch.waiting.step(Err("connection refused"), Duration::from_secs(1));
    assert_eq!(refused.lines, ["no answer of the agent: connection refused"]);
    let mut next = World::new([balancer(1, 2000)]);
    next.cordon(true);
    watch.began_ms = 0;
    assert_eq!(watch.until_end(&mut next), WaitEnd::Reached);
    assert!((90_000..91_000).contains(&next.now_ms), "{}", next.now_ms);
    assert!(watch.lines.iter().any(|line| line.starts_with("not known yet: the agent has listened for")));
}

#[test]
fn an_agent_that_never_answers_is_given_up() {
    let mut waiting = Waiting::new(Goal::Acknowledged, AckOverrides::default(), None);
    let mut step = |seconds| waiting.step(Err("connection refused"), Duration::from_secs(seconds));
    assert_eq!(step(0).lines.len(), 1);
    assert_eq!(step(9).lines.len(), 0);
    let last = step(10);
    assert_eq!(last.ended, Some(WaitEnd::NotKnown));
    assert_eq!(last.lines, ["not known whether acknowledged: no answer of the agent: connection refused"]);
}

#[test]
fn a_prober_that_no_drain_reaches_is_named() {
    let mut undrainable = balancer(2, 2000);
    undrainable.request = "/health?check=custom_conditions";
    undrainable.drainable = false;
    let mut world = after_a_while(World::new([balancer(1, 2000), undrainable]));
    let (ended, lines) = acknowledged(&mut world);
    assert_eq!(ended, WaitEnd::Reached);
    let line = "ignored  10.0.0.2 /health?check=custom_conditions: can't see drains, because no drain changes its \
         answer; not waited for";
    assert!(lines.contains(&line.to_owned()), "{lines:?}");
    let named = ": 1 of 2 balancers; 10.0.0.2 /health?check=custom_conditions can't see drains";
    assert!(lines.last().unwrap().ends_with(named), "{lines:?}");
}

#[test]
fn released_is_acknowledged_and_no_connection() {
    let traffic = |established| {
        Some(Traffic { ports: vec![443], established: Some(established), age_ms: Some(500), error: None })
    };
    let mut world = after_a_while(World::new([balancer(1, 2000)]));
    world.traffic = traffic(14);
    let mut watch = Watch::begin(&world, Goal::Released, AckOverrides::default());
    for _ in 0..100 {
        assert_eq!(watch.look(&world), None);
        world.pass(500);
    }
    assert_eq!(watch.lines.last().unwrap(), "all acknowledged; 14 sessions are left");
    assert_eq!(world.status().drain.unwrap().released, Some(false));
    world.traffic = traffic(0);
    assert_eq!(watch.look(&world), Some(WaitEnd::Reached));
    assert_eq!(
        watch.lines.last().unwrap(),
        "released after 50 s: no session left; acknowledged: the one balancer that probes"
    );
    assert_eq!(world.status().drain.unwrap().released, Some(true));
}
