//! Hours of the machine in a small world of its own: two API servers on one etcd, a kubelet, followers that do what a step
//! says. An oracle that knows nothing of the rules judges it: what is held and called fresh was true a short time ago.
//!
//! `FRESHNESS_EPISODES=200000 cargo test -p nodegate-node-watch --lib world` plays more of them; a failure names its seed.

use crate::freshness::{Action, Freshness, Input, NodeState, Refusal, Transition, Transitions, Why};
use crate::stream::Stream;
use fastrand::Rng;
use nodegate_kube_follow::Connection;
use nodegate_readiness::Moment;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const STALE_AFTER: u64 = 15_000;
/// What a load balancer may be told for so long, in milliseconds.
const BOUND: u64 = STALE_AFTER + 1000;
/// The same where one of the server's clients of etcd is gone, or one stream of a connection.
const BOUND_OF_ONE_STREAM: u64 = 101_000;
/// After the last fault the truth is told again within this time.
const BACK_WITHIN: u64 = 16_000;

/// After each restoring of etcd versions have another remainder: none is written twice.
const LINEAGES: u64 = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Server {
    /// Its clients of etcd for Nodes and Leases are cut.
    cut: [bool; 2],
    /// Nothing is answered at all.
    frozen: bool,
    /// It answers questions and lists with errors.
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
    /// Every state of the Node that there was, and since when there is another.
    states: Vec<(NodeState, Option<u64>)>,
    version: u64,
    /// How often etcd was restored.
    lineage: u64,
    servers: [Server; 2],
    /// Streams that are open and say nothing, not even bookmarks.
    deaf: [bool; 2],
    followers: [Follower; 2],
    next_connection: u64,
    /// What the agent holds: the number of the state.
    held: Option<usize>,
    proved: Option<Moment>,
    machine: Freshness,
    /// Questions that are under way: when an answer comes, to which, and on which connection.
    questions: Vec<(u64, u64, u64)>,
    /// Whether all answers come at once.
    quick: bool,
    answered_on: u64,
    /// When it was renewed by the clock on the wall, of renewals that are held back.
    held_back: Vec<u64>,
    kubelet: bool,
    leases: bool,
    renewal: u64,
    bookmark: u64,
    set_by: i64,
    asked: u64,
    /// What may happen, a bit each, and how often.
    kinds: u16,
    pace: u64,
    /// Whether this episode has faults with the longer bound.
    one_stream: bool,
}

fn moment(ms: u64) -> Moment {
    Moment::from_start(Duration::from_millis(ms))
}

impl World {
    fn new(seed: u64, transitions: &Arc<Transitions>) -> Self {
        let mut rng = Rng::with_seed(seed);
        let stale_after = Duration::from_millis(STALE_AFTER);
        let machine = Freshness::new(stale_after, 0, rng.fork(), transitions.clone());
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

    // === The machine and who does what it says ===

    fn step(&mut self, input: Input) {
        for action in self.machine.step(input, moment(self.now)) {
            match action {
                Action::ProveNode(at) => {
                    assert!(at <= moment(self.now), "proof from the future");
                    self.proved = self.proved.max(Some(at));
                }
                Action::Ask { question, on_a_new_connection } => self.ask(question, on_a_new_connection),
                Action::MoveToTheAnswer => self.next_connection = self.answered_on,
                Action::Replace(stream, why) => self.replace(stream, why),
                Action::Found(..) | Action::ProveService(..) | Action::LeaseRenewed(_) => {}
            }
        }
        let wakes = self.machine.wake_at();
        assert!(wakes.is_none_or(|at| at > moment(self.now)), "it wants to be woken at once, for ever");
    }

    fn ask(&mut self, question: u64, on_a_new_connection: bool) {
        self.asked += 1;
        let Follower::Watches { connection } = self.followers[0] else { panic!("nobody is watching") };
        let connection = if on_a_new_connection { self.rng.u64(100..1_000_000) } else { connection };
        let server = self.server(connection);
        let never = server.frozen || server.cut[0];
        let takes = if self.quick || self.rng.u8(0..8) > 0 { 400 } else { 4000 };
        if !never {
            self.questions.push((self.now + self.rng.u64(0..takes), question, connection));
        }
    }

    fn replace(&mut self, stream: Stream, why: Why) {
        let index = usize::from(stream == Stream::Lease);
        self.step(Input::Closed(stream));
        let Follower::Watches { connection } = self.followers[index] else { return };
        if index == 0 && why == Why::Deaf {
            self.next_connection = connection;
        }
        self.followers[index] = Follower::Rests { until: self.now + self.rng.u64(1..1500) };
    }

    fn answer(&mut self, question: u64, connection: u64) {
        self.answered_on = connection;
        if self.server(connection).refuses {
            let retry_after = self.rng.bool().then_some(Duration::from_secs(2));
            let refusal = if self.rng.bool() {
                Refusal::Answered { retry_after }
            } else {
                Refusal::Unheard { retry_after }
            };
            return self.step(Input::Unanswered { question, refusal });
        }
        let node = self.states[self.newest()].0.clone();
        self.step(Input::Answered { question, node, connection: Connection::of_client(connection) });
    }

    /// A follower lists and watches; both take no time.
    fn follow(&mut self, index: usize) {
        let stream = [Stream::Node, Stream::Lease][index];
        let connection = match (index, self.followers[0]) {
            (0, _) => self.next_connection,
            (_, Follower::Watches { connection }) => connection,
            (_, Follower::Rests { until }) => {
                self.followers[index] = Follower::Rests { until: until + 10 };
                return;
            }
        };
        self.step(Input::Began(stream));
        let server = self.server(connection);
        if server.frozen || server.cut[index] || server.refuses || (index == 1 && !self.leases) {
            self.followers[index] = Follower::Rests { until: self.now + self.rng.u64(100..10_000) };
            if index == 0 {
                self.next_connection = self.rng.u64(100..1_000_000);
            }
            return;
        }
        let on = Connection::of_client(connection);
        self.step(Input::ListAnswered(stream, on));
        let node = (index == 0).then(|| self.states[self.newest()].0.clone());
        if index == 0 {
            self.held = Some(self.newest());
        }
        self.step(Input::Listed { stream, asked_at: moment(self.now), node });
        self.deaf[index] = false;
        self.followers[index] = Follower::Watches { connection };
        self.step(Input::Accepted(stream, on));
    }

    fn tell_node(&mut self, state: usize) {
        self.held = Some(state);
        let node = Some(self.states[state].0.clone());
        self.step(Input::Bytes(Stream::Node));
        self.step(Input::Changed { stream: Stream::Node, node });
    }

    /// Whether what happens now comes through a follower's watch, and on which connection that is.
    fn hears(&self, index: usize) -> Option<u64> {
        let Follower::Watches { connection } = self.followers[index] else { return None };
        let server = self.server(connection);
        (!server.frozen && !server.cut[index] && !self.deaf[index]).then_some(connection)
    }

    // === The cluster ===

    /// The Node is written.
    fn write(&mut self) {
        self.version += self.rng.u64(1..5) * LINEAGES;
        self.put("a");
    }

    fn put(&mut self, uid: &str) {
        if let Some((_, until)) = self.states.last_mut() {
            *until = Some(self.now);
        }
        let version = self.version.to_string();
        self.states.push((NodeState::Present { uid: uid.to_owned(), version }, None));
        if self.hears(0).is_some() {
            self.tell_node(self.newest());
        }
    }

    fn renew(&mut self) {
        self.renewal = self.now + 10_000;
        if !self.kubelet {
            return;
        }
        if self.hears(1).is_some() {
            self.tell_renewal(self.wall());
        } else if matches!(self.followers[1], Follower::Watches { .. }) && !self.deaf[1] {
            self.held_back.push(self.wall());
        }
    }

    fn tell_renewal(&mut self, at: u64) {
        self.step(Input::Bytes(Stream::Lease));
        self.step(Input::Renewed { at: Some(Self::date(at)), wall: Self::date(self.wall()) });
    }

    /// Servers that are cut off go on with these.
    fn bookmarks(&mut self) {
        self.bookmark = self.now + 60_000;
        for (index, stream) in [Stream::Node, Stream::Lease].into_iter().enumerate() {
            if let Follower::Watches { connection } = self.followers[index]
                && !self.server(connection).frozen
                && !self.deaf[index]
            {
                self.step(Input::Bytes(stream));
            }
        }
    }

    /// What was held back comes all at once.
    fn mended(&mut self) {
        if let (Some(_), Some(held)) = (self.hears(0), self.held) {
            for state in held + 1..self.states.len() {
                self.tell_node(state);
            }
        }
        if self.hears(1).is_some() {
            for at in std::mem::take(&mut self.held_back) {
                self.tell_renewal(at);
            }
        }
    }

    /// The watch of the Node ends and is resumed, and may be told old news.
    fn resume(&mut self) {
        let Follower::Watches { connection } = self.followers[0] else { return };
        self.step(Input::Closed(Stream::Node));
        if self.server(connection).frozen {
            self.followers[0] = Follower::Rests { until: self.now + 3000 };
            self.next_connection = self.rng.u64(100..1_000_000);
            return;
        }
        self.step(Input::Accepted(Stream::Node, Connection::of_client(connection)));
        if let (Some(held), true) = (self.held, self.rng.bool()) {
            self.tell_node(held);
        }
    }

    fn something_happens(&mut self) {
        let server = self.rng.usize(0..2);
        let kind = self.rng.u8(0..16);
        match kind {
            _ if self.kinds & (1 << kind) == 0 => {}
            0..=4 => self.write(),
            5 => self.servers[server].cut = [true; 2],
            6 if self.one_stream => self.servers[server].cut[self.rng.usize(0..2)] = true,
            7 => self.servers[server].frozen = true,
            8 => self.servers[server].refuses = true,
            9 | 10 => {
                self.servers[server] = Server::default();
                self.mended();
            }
            11 => self.resume(),
            12 if self.one_stream => self.deaf[self.rng.usize(0..2)] = true,
            13 => self.set_by += self.rng.i64(-100_000..100_000),
            14 => self.kubelet = !self.kubelet,
            // Etcd is restored, or the Node made again; open watches hear nothing of the first.
            15 if self.one_stream => {
                self.lineage = (self.lineage + 1) % LINEAGES;
                self.version = self.rng.u64(0..=self.version / LINEAGES) * LINEAGES + self.lineage;
                self.deaf = [true; 2];
                let uid = ["a", "b"][self.rng.usize(0..2)];
                self.put(uid);
            }
            _ => {}
        }
    }

    /// One kind of fault alone, often, finds what all of them together hide.
    fn kinds(rng: &mut Rng) -> u16 {
        match rng.u8(0..3) {
            0 => u16::MAX,
            1 => rng.u16(..) | 1,
            _ => rng.u16(..) & rng.u16(..) | 1,
        }
    }

    fn heal(&mut self) {
        self.servers = [Server::default(); 2];
        self.kubelet = true;
        self.quick = true;
        self.mended();
    }

    // === Time and the oracle ===

    /// Plays until then; something happens now and then if anything may.
    fn plays(&mut self, until: u64, eventful: bool) {
        let mut event = self.now;
        while self.now < until {
            if eventful && event <= self.now {
                self.something_happens();
                event = self.now + self.rng.u64(1..self.pace);
            }
            let wakes = self.machine.wake_at().map(|at| {
                // A timer rings late, never early.
                u64::try_from(at.since(Moment::default()).as_nanos().div_ceil(1_000_000)).unwrap()
            });
            let answers = self.questions.iter().map(|(at, _, _)| *at);
            let rests = self.followers.iter().filter_map(|follower| match follower {
                Follower::Rests { until } => Some(*until),
                Follower::Watches { .. } => None,
            });
            let next = rests.chain(wakes).chain(answers).chain([self.renewal, self.bookmark, until]);
            let next = if eventful { next.chain([event]).min() } else { next.min() };
            self.now = next.unwrap().max(self.now);
            self.judge();
            self.one_thing(wakes);
            self.judge();
        }
    }

    fn one_thing(&mut self, wakes: Option<u64>) {
        if let Some(due) = self.questions.iter().position(|(at, _, _)| *at <= self.now) {
            let (_, question, connection) = self.questions.remove(due);
            self.answer(question, connection);
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

    /// What is held and called fresh was true a short time ago.
    fn judge(&self) {
        let Some(held) = self.held.filter(|_| self.is_fresh()) else { return };
        let Some(wrong_since) = self.states[held].1 else { return };
        let bound = if self.one_stream { BOUND_OF_ONE_STREAM } else { BOUND };
        let wrong = self.now - wrong_since;
        assert!(wrong <= bound, "fresh and wrong for {wrong} ms of {bound}");
    }
}

/// Faults for some minutes; then all is well, and must be.
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
    // No Services are watched here, and the kubelet's clock is ours.
    let not_here = |taken: Transition| {
        matches!(taken, Transition::LeaseFromTheFuture | Transition::LeaseWithoutDate)
            || format!("{taken:?}").starts_with("Service")
    };
    let never = transitions.counts().filter(|(taken, count)| *count == 0 && !not_here(*taken));
    let never: Vec<Transition> = never.map(|(taken, _)| taken).collect();
    assert!(never.is_empty(), "ways that were never gone: {never:?}");
}

#[test]
fn an_idle_hour_costs_few_questions() {
    for (leases, at_most) in [(true, 45), (false, 285)] {
        let mut world = World::new(1, &Arc::default());
        (world.leases, world.quick) = (leases, true);
        world.plays(world.now + 3_600_000, false);
        assert!(world.is_fresh());
        assert!(world.asked <= at_most, "{} questions, {at_most} allowed", world.asked);
    }
}
