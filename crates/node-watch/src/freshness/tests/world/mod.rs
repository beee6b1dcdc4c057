//! Simulates hours in a small world: two API servers on one etcd, a kubelet, and followers that execute the
//! actions of each step. An oracle that does not know the rules judges it: a cached state that counts as
//! fresh was true a short time ago.
//!
//! `FRESHNESS_EPISODES=200000 cargo test -p nodegate-node-watch --lib world` plays more of them; a failure
//! names its seed.

mod agent;
mod cluster;

use crate::freshness::{FreshnessMonitor, Input, NodeVersion, Transition, Transitions};
use fastrand::Rng;
use nodegate_readiness::Moment;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const STALE_AFTER: u64 = 15_000;
/// The longest time in milliseconds for which a wrong state may count as fresh.
const BOUND: u64 = STALE_AFTER + 1000;
/// The same limit if a server loses one of its etcd clients, or a connection loses one stream.
const BOUND_OF_ONE_STREAM: u64 = 101_000;
/// The time after the last fault within which the state is right again.
const BACK_WITHIN: u64 = 16_000;

/// The number of lineages of versions. After each restore of etcd they have another remainder, so none is
/// written twice.
const LINEAGES: u64 = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Server {
    /// True if its etcd client for Nodes, or for Leases, is cut off.
    cut: [bool; 2],
    /// True if it answers nothing at all.
    frozen: bool,
    /// True if it answers checks and lists with errors.
    refuses: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Follower {
    Rests { until: u64 },
    Watches { connection: u64 },
}

#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
struct World {
    rng: Rng,
    now: u64,
    /// All states of the Node, each with the time of the next one.
    states: Vec<(NodeVersion, Option<u64>)>,
    version: u64,
    /// The number of restores of etcd.
    lineage: u64,
    servers: [Server; 2],
    /// True for streams that are open and silent, without bookmarks.
    deaf: [bool; 2],
    followers: [Follower; 2],
    next_connection: u64,
    /// The number of the state in the agent's cache.
    held: Option<usize>,
    proved: Option<Moment>,
    machine: FreshnessMonitor,
    /// An event in flight: its arrival, and the state of the Node in it.
    late: Option<(u64, usize)>,
    questions: Vec<Question>,
    /// True if all answers come at once.
    quick: bool,
    answered_on: u64,
    /// The times of delayed renewals by the wall clock.
    held_back: Vec<u64>,
    kubelet: bool,
    leases: bool,
    renewal: u64,
    bookmark: u64,
    set_by: i64,
    asked: u64,
    /// The kinds of faults, one bit each; `pace` is their largest gap.
    kinds: u16,
    pace: u64,
    /// True if this episode has faults with the longer limit.
    one_stream: bool,
}

/// A check in flight.
struct Question {
    /// The arrival of the answer.
    at: u64,
    number: u64,
    connection: u64,
    /// The answer, if the server has read it.
    read: Option<NodeVersion>,
}

fn moment(ms: u64) -> Moment {
    Moment::from_start(Duration::from_millis(ms))
}

impl World {
    fn new(seed: u64, transitions: &Arc<Transitions>) -> Self {
        let mut rng = Rng::with_seed(seed);
        let stale_after = Duration::from_millis(STALE_AFTER);
        let machine = FreshnessMonitor::new(stale_after, 0, rng.fork(), transitions.clone());
        let now = rng.u64(100_000..200_000);
        let (one_stream, leases) = (rng.u8(0..4) == 0, rng.u8(0..4) > 0);
        let (kinds, pace) = (Self::kinds(&mut rng), [3000, 20_000, 200_000][rng.usize(0..3)]);
        let mut world = Self {
            rng,
            now,
            states: Vec::new(),
            version: 100,
            lineage: 0,
            servers: [Server::default(); 2],
            deaf: [false; 2],
            followers: [Follower::Rests { until: now }; 2],
            next_connection: 0,
            held: None,
            proved: None,
            machine,
            late: None,
            questions: Vec::new(),
            quick: false,
            answered_on: 0,
            held_back: Vec::new(),
            kubelet: true,
            leases,
            renewal: now,
            bookmark: now + 60_000,
            set_by: 0,
            asked: 0,
            kinds,
            pace,
            one_stream,
        };
        world.write();
        world
    }

    fn server(&self, connection: u64) -> Server {
        self.servers[usize::from(connection % 2 == 1)]
    }

    fn wall(&self) -> u64 {
        (1_800_000_000_000 + self.now).checked_add_signed(self.set_by).unwrap()
    }

    fn date(ms: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(ms)
    }

    fn newest(&self) -> usize {
        self.states.len() - 1
    }

    // === Time and the oracle ===

    /// Simulates up to a time, with random faults if `eventful`.
    fn plays(&mut self, until: u64, eventful: bool) {
        let mut event = self.now;
        while self.now < until {
            if eventful && event <= self.now {
                self.something_happens();
                event = self.now + self.rng.u64(1..self.pace);
            }
            let wakes = self.machine.wake_at().map(|at| {
                // A timer fires late, never early.
                u64::try_from(at.since(Moment::default()).as_nanos().div_ceil(1_000_000)).unwrap()
            });
            let answers = self.questions.iter().map(|question| question.at);
            let rests = self.followers.iter().filter_map(|follower| match follower {
                Follower::Rests { until } => Some(*until),
                Follower::Watches { .. } => None,
            });
            let late = self.late.map(|(at, _)| at);
            let next =
                rests.chain(wakes).chain(answers).chain(late).chain([self.renewal, self.bookmark, until]);
            let next = if eventful { next.chain([event]).min() } else { next.min() };
            self.now = next.unwrap().max(self.now);
            self.judge();
            self.one_thing(wakes);
            self.judge();
        }
    }

    fn one_thing(&mut self, wakes: Option<u64>) {
        if let Some(due) = self.questions.iter().position(|question| question.at <= self.now) {
            let question = self.questions.remove(due);
            self.answer(question);
        } else if let Some((_, state)) = self.late.filter(|(at, _)| *at <= self.now) {
            self.tell_in_order(state);
        } else if wakes.is_some_and(|at| at <= self.now) {
            self.step(Input::Woke { wall: Self::date(self.wall()) });
        } else if self.renewal <= self.now {
            self.renew();
        } else if self.bookmark <= self.now {
            self.bookmarks();
        } else {
            for index in 0..2 {
                if matches!(self.followers[index], Follower::Rests { until } if until <= self.now) {
                    self.follow(index);
                }
            }
        }
    }

    fn is_fresh(&self) -> bool {
        self.proved.is_some_and(|at| moment(self.now).since(at) <= Duration::from_millis(STALE_AFTER))
    }

    /// Checks that a cached state that counts as fresh was true a short time ago.
    fn judge(&self) {
        let Some(held) = self.held.filter(|_| self.is_fresh()) else { return };
        let Some(wrong_since) = self.states[held].1 else { return };
        let bound = if self.one_stream { BOUND_OF_ONE_STREAM } else { BOUND };
        let wrong = self.now - wrong_since;
        assert!(wrong <= bound, "fresh and wrong for {wrong} ms of {bound}");
    }
}

/// Simulates faults for some minutes; then all is well, and must stay so.
fn episode(seed: u64, transitions: &Arc<Transitions>) -> u64 {
    let mut world = World::new(seed, transitions);
    world.plays(world.now + 180_000, true);
    world.heal();
    let one_stream = if world.one_stream { BOUND_OF_ONE_STREAM } else { 0 };
    world.plays(world.now + BACK_WITHIN + one_stream, false);
    let began = world.now;
    while world.now < began + 120_000 {
        assert!(world.is_fresh(), "stale although all is well");
        assert_eq!(world.held, Some(world.newest()), "wrong although all is well");
        world.plays(world.now + 1000, false);
    }
    world.asked
}

fn episodes() -> u64 {
    std::env::var("FRESHNESS_EPISODES").map_or(1000, |text| text.parse().unwrap())
}

#[test]
fn what_is_called_fresh_was_true_a_short_time_ago() {
    let transitions = Arc::new(Transitions::default());
    for seed in 0..episodes() {
        let played = std::panic::catch_unwind(|| episode(seed, &transitions));
        assert!(played.is_ok(), "seed {seed}");
    }
    // The simulation has no Services, no clock skew of the kubelet, no replaying server, and no watch resumed
    // on another server. It is also rare that a Lease arrives for 70 s beside a silent watch while a check
    // hangs.
    let not_here = |taken: Transition| {
        matches!(
            taken,
            Transition::LeaseFromTheFuture
                | Transition::LeaseWithoutDate
                | Transition::LeaseWithoutBookmarks
                | Transition::LeaseOnAnotherServer
                | Transition::NodeEventFromThePast
                | Transition::Gathered
        ) || format!("{taken:?}").starts_with("Service")
    };
    let never = transitions.counts().filter(|(taken, count)| *count == 0 && !not_here(*taken));
    let never: Vec<Transition> = never.map(|(taken, _)| taken).collect();
    assert!(never.is_empty(), "ways that were never gone: {never:?}");
}

/// The Node is not written at all. A kubelet writes it every five minutes, and each time is proof.
#[test]
fn an_idle_hour_costs_few_questions() {
    const HOURS: u64 = 20;
    for (leases, at_most) in [(true, 45), (false, 285)] {
        let questions = (0..HOURS).map(|seed| {
            let mut world = World::new(seed, &Arc::default());
            (world.leases, world.quick) = (leases, true);
            world.plays(world.now + 3_600_000, false);
            assert!(world.is_fresh());
            assert!(world.asked <= at_most, "{} questions, {at_most} allowed", world.asked);
            world.asked
        });
        println!("questions in an idle hour, Leases {leases}: {}", questions.sum::<u64>() / HOURS);
    }
}
