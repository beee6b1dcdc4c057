//! A cluster whose nodes are all cordoned at once: how many leave the pool, and when (`--max-drained`).

use crate::agent::SimulatedAgent;
use crate::network::{Address, Network};
use crate::trace::Trace;
use crate::world::under_simulated_time;
use fastrand::Rng;
use nodegate_agent::AgentSettings;
use nodegate_kube_sim::{Effect, FaultScope, Rule, Sim};
use nodegate_readiness::{Catalog, Policy};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::sleep;

const NODES: usize = 50;
const LIMIT: usize = NODES / 2;
const TOKEN: &str = "agent";
const LOOK_EVERY: Duration = Duration::from_millis(50);

struct Fleet {
    sim: Sim,
    agents: Vec<(String, SimulatedAgent)>,
    cordoned: BTreeSet<String>,
    /// The nodes that were out of the pool at the last look.
    out: BTreeSet<String>,
    random: Rng,
}

impl Fleet {
    fn start(seed: u64) -> Self {
        let names: Vec<String> = (0..NODES).map(|number| format!("n{number:02}")).collect();
        let sim = Sim::builder().node_bytes(0).nodes(&names).without_sockets();
        let rules = vec![Rule::allow(&["get", "list", "watch"], "", &["nodes"])];
        sim.service_account(TOKEN, "nodegate", "nodegate", rules);
        let start = |name: String| {
            let trace = Trace::new(false);
            let network = Network::new(sim.servers(), Address::Direct, false, TOKEN, trace.clone());
            let settings = AgentSettings::new(&name, Catalog::default());
            let max_drained = "50%".parse().expect("a share");
            let policy = Policy { max_drained, ..settings.policy };
            let agent = SimulatedAgent::start_with(AgentSettings { policy, ..settings }, &network, &trace);
            (name, agent)
        };
        let agents = names.into_iter().map(start).collect();
        let (cordoned, out) = Default::default();
        Self { sim, agents, cordoned, out, random: Rng::with_seed(seed) }
    }

    /// Returns the nodes that are out. None has returned that is still cordoned.
    fn look(&mut self) -> usize {
        let is_out = |agent: &SimulatedAgent| agent.ask("/health").status != 200;
        let out = self.agents.iter().filter(|(_, agent)| is_out(agent)).map(|(name, _)| name.clone());
        let before = std::mem::replace(&mut self.out, out.collect());
        let mut returned = before.difference(&self.out);
        assert!(returned.all(|name| !self.cordoned.contains(name)), "of {before:?}, {:?} are left", self.out);
        self.out.len()
    }

    async fn cordon_all(&mut self) {
        let mut names: Vec<_> = self.agents.iter().map(|(name, _)| name.clone()).collect();
        match self.random.u32(..3) {
            0 => {}
            1 => names.reverse(),
            _ => self.random.shuffle(&mut names),
        }
        for name in names {
            self.sim.cordon(&name);
            self.cordoned.insert(name);
            sleep(Duration::from_micros(self.random.u64(..20_000))).await;
            self.look();
        }
    }
}

fn play(seed: u64, scene: impl AsyncFnOnce(Fleet)) {
    under_simulated_time(seed, async {
        let fleet = Fleet::start(seed);
        sleep(Duration::from_secs(2)).await;
        scene(fleet).await;
    });
}

#[test]
fn half_of_the_pool_stays_and_each_node_leaves_in_its_turn() {
    for seed in 1..=2 {
        play(seed, async |mut fleet| {
            fleet.cordon_all().await;
            for _ in 0..40 {
                sleep(LOOK_EVERY).await;
                assert!(fleet.look() <= LIMIT, "seed {seed}: {:?}", fleet.out);
            }
            assert_eq!(fleet.look(), LIMIT, "seed {seed}");
            while !fleet.cordoned.is_empty() {
                let back = fleet.random.choice(&fleet.out).expect("a node that is out").clone();
                fleet.sim.uncordon(&back);
                fleet.cordoned.remove(&back);
                // The next one leaves within 30 s.
                for _ in 0..30 {
                    sleep(LOOK_EVERY * 20).await;
                    assert!(fleet.look() <= LIMIT, "seed {seed}: {:?}", fleet.out);
                }
                assert_eq!(fleet.out.len(), fleet.cordoned.len().min(LIMIT), "seed {seed}, after {back}");
            }
        });
    }
}

#[test]
fn without_an_answer_in_time_it_is_as_without_a_budget() {
    let unavailable = Effect::Status { code: 503, retry_after: 0 };
    // Slow, frozen, overloaded, gone.
    for effect in [Effect::Latency { ms: 1500 }, Effect::Hang, unavailable, Effect::CutEvent] {
        play(1, async |mut fleet| {
            let scope = FaultScope::all().resources(&["nodes"]).verbs(&["list"]);
            fleet.sim.faults().add(effect.clone().on(scope));
            fleet.cordon_all().await;
            sleep(Duration::from_secs(5)).await;
            assert_eq!(fleet.look(), NODES, "{effect:?}");
        });
    }
}
