//! The node controller's treatment of silent nodes: it distinguishes one silent node from a silent zone.
//! There are four nodes: the real one, and three simulated ones whose Leases a thread renews.

use crate::kubelet::is_unconfirmed;
use nodegate_testbed::Agent;
use nodegate_testbed::real_cluster::{Member, PATIENCE, REAL_NODE, RealCluster, ServerRoute};
use nodegate_testbed::waiting::until_within;
use nodegate_testbed::watching::{Watching as _, seen};
use serde_json::Value;
use std::time::{Duration, Instant};

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// Returns the effects of this node's taint for unreachable nodes.
fn effects(cluster: &RealCluster, node: &str) -> Vec<String> {
    let Ok(node) = cluster.api.get(&format!("/api/v1/nodes/{node}")) else { return Vec::new() };
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let of_key = taints.iter().filter(|taint| taint["key"] == UNREACHABLE);
    let mut effects: Vec<String> =
        of_key.filter_map(|taint| taint["effect"].as_str()).map(str::to_owned).collect();
    effects.sort();
    effects
}

fn wait_effects(cluster: &RealCluster, node: &str, wanted: &[&str]) {
    let as_wanted = || (effects(cluster, node) == wanted).then_some(());
    until_within(PATIENCE, as_wanted, || {
        format!("{node} has {:?} and not {wanted:?}", effects(cluster, node))
    });
}

fn members(cluster: &RealCluster) -> [Member; 3] {
    let members = ["made-up-1", "made-up-2", "made-up-3"].map(|name| cluster.member(name));
    for member in &members {
        cluster.wait_node("True", member.name());
    }
    members
}

/// Returns `--unknown-after` of the agents: `REAL_UNKNOWN_AFTER` in seconds, by default 30 instead of the
/// agent's own 300.
fn unknown_after() -> Duration {
    let seconds = std::env::var("REAL_UNKNOWN_AFTER").map_or(30, |seconds| seconds.parse().expect("seconds"));
    Duration::from_secs(seconds)
}

/// Starts this node's agent on the machine of the real one, whose kubelet it asks.
fn agent_of(cluster: &RealCluster, node: &str) -> Agent {
    let unknown_after = format!("--unknown-after={}s", unknown_after().as_secs());
    cluster.agent(node, ServerRoute::A, "nodegate", &[&unknown_after])
}

/// Waits until the agent of a node with `NoExecute` leaves the pool, and shows that it does so no earlier
/// than it was told to. Returns the age of the taint at that time.
fn leaves(cluster: &RealCluster, node: &str, agent: &Agent) -> Duration {
    let added: jiff::Timestamp = added(cluster, node).expect("timeAdded").parse().unwrap();
    let gone = || Some(agent.health()).filter(|reply| reply.status == 503);
    let out = until_within(unknown_after() + PATIENCE, gone, || agent.all_it_says("a tainted node to leave"));
    // timeAdded is in whole seconds, so it may be up to a second early, and never late.
    let age = jiff::Timestamp::now().duration_since(added).unsigned_abs();
    assert!(age >= unknown_after(), "{node} left when the taint was {age:?} old: {}", out.body);
    assert_eq!(out.reason().as_deref(), Some("NodeStatusUnknown"));
    age
}

/// Shows one silent node of four: the controller gives it `NoExecute`, and the agent leaves the pool when
/// that taint is `--unknown-after` old, though the kubelet on the node answers. When all four are silent, the
/// controller removes the taint, and the agent is in the pool again. One node of the zone may keep it: the
/// controller's two loops race, and one loop misses the node that the other is just tainting.
#[test]
#[ignore = "make real-cluster-test"]
fn one_silent_node_of_four_leaves_and_all_silent_nodes_stay() {
    let cluster = RealCluster::take();
    cluster.grant_agents();
    let members = members(&cluster);
    let agent = agent_of(&cluster, REAL_NODE);
    agent.until_ready();
    let cut = cluster.cut("kubelet");
    let began = Instant::now();
    wait_effects(&cluster, REAL_NODE, &["NoExecute", "NoSchedule"]);
    let tainted = began.elapsed();
    let reply = agent.health();
    assert!(reply.status == 200 && is_unconfirmed(&reply), "its pods are still there: {}", reply.body);
    let age = leaves(&cluster, REAL_NODE, &agent);

    for member in &members {
        member.silence(true);
    }
    let began = Instant::now();
    let nodes: Vec<&str> = members.iter().map(Member::name).chain([REAL_NODE]).collect();
    for node in &nodes {
        cluster.wait_node("Unknown", node);
    }
    wait_effects(&cluster, REAL_NODE, &["NoSchedule"]);
    let keepers = || -> Vec<&str> {
        let keeps = |node: &&&str| effects(&cluster, node).iter().any(|effect| effect == "NoExecute");
        nodes.iter().filter(keeps).copied().collect()
    };
    until_within(PATIENCE, || (keepers().len() <= 1).then_some(()), || format!("{:?} keep it", keepers()));
    let kept = keepers();
    let all = began.elapsed();
    let back = agent.until("an unconfirmed answer", |reply| reply.status == 200 && is_unconfirmed(reply));
    seen(
        "one node of four silent, then all",
        &format!(
            "NoExecute after {:.0} s, out when it was {:.0} s old; all silent: gone after {:.0} s more (kept by {kept:?}), 200 {}",
            tainted.as_secs_f64(),
            age.as_secs_f64(),
            all.as_secs_f64(),
            back.reply.body
        ),
    );
    for member in &members {
        member.silence(false);
    }
    cut.mend();
    cluster.wait_node("True", REAL_NODE);
    wait_effects(&cluster, REAL_NODE, &[]);
}

/// Shows that the real controller gives no node `NoExecute` again while all four are silent, so that no node
/// leaves the pool. There is an agent for each node, probed every second, for `REAL_SILENT_MINUTES`, by
/// default two minutes. Each agent leaves the pool when that taint is `--unknown-after` old, so a taint that
/// stays is seen.
#[test]
#[ignore = "make real-cluster-test"]
fn no_node_leaves_while_all_nodes_are_silent() {
    let cluster = RealCluster::take();
    cluster.grant_agents();
    let members = members(&cluster);
    let nodes: Vec<&str> = members.iter().map(Member::name).chain([REAL_NODE]).collect();
    let agents: Vec<Agent> = nodes.iter().map(|node| agent_of(&cluster, node)).collect();
    for agent in &agents {
        agent.until_ready();
    }
    let minutes =
        std::env::var("REAL_SILENT_MINUTES").map_or(2, |minutes| minutes.parse().expect("a number"));

    let cut = cluster.cut("kubelet");
    for member in &members {
        member.silence(true);
    }
    let silenced = Instant::now();
    for node in &nodes {
        cluster.wait_node("Unknown", node);
    }
    let keepers = || -> Vec<usize> {
        let keeps = |node: &usize| effects(&cluster, nodes[*node]).iter().any(|effect| effect == "NoExecute");
        (0..nodes.len()).filter(keeps).collect()
    };
    until_within(PATIENCE, || (keepers().len() <= 1).then_some(()), || format!("{:?} keep it", keepers()));
    let gone = silenced.elapsed();
    // The one that the controller was just tainting, if any.
    let kept = keepers();
    let began = Instant::now();
    let (mut answers, mut out) = (0_u32, 0_u32);
    while began.elapsed() < Duration::from_mins(minutes) {
        for (number, agent) in agents.iter().enumerate() {
            let reply = agent.health();
            answers += 1;
            out += u32::from(reply.status != 200);
            let may_be_out = kept.contains(&number);
            assert!(
                may_be_out || (reply.status == 200 && is_unconfirmed(&reply)),
                "{} is out after {:?}: {}; NoExecute is kept by {:?}",
                nodes[number],
                began.elapsed(),
                reply.body,
                keepers()
            );
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    assert_eq!(keepers(), kept, "the controller has changed its mind");
    let kept: Vec<&str> = kept.iter().map(|node| nodes[*node]).collect();
    seen(
        &format!("all four nodes silent for {minutes} min"),
        &format!(
            "no NoExecute after {:.0} s (kept by {kept:?}); {answers} answers of four agents, {out} of them 503",
            gone.as_secs_f64()
        ),
    );
    cut.mend();
    for member in &members {
        member.silence(false);
    }
    for (node, agent) in nodes.iter().zip(&agents) {
        cluster.wait_node("True", node);
        wait_effects(&cluster, node, &[]);
        agent.until_ready();
    }
}

/// The controller gives `NoExecute` to one node every ten seconds; this is longer than it takes for all
/// silent nodes here.
const EVICTIONS: Duration = Duration::from_secs(45);

/// Shows what the documents say of a zone in which most nodes are silent. With up to two silent nodes the
/// zone counts as healthy, each gets `NoExecute`, and each leaves the pool; with three of four the controller
/// stops, and a node gets it only before the third is silent.
#[test]
#[ignore = "make real-cluster-test"]
fn the_controller_taints_two_silent_nodes_of_three_but_not_three_of_four() {
    let cluster = RealCluster::take();
    cluster.grant_agents();
    let members = members(&cluster);
    let silence = |silent: &[&Member]| {
        for member in silent {
            member.silence(true);
        }
        for member in silent {
            cluster.wait_node("Unknown", member.name());
            let tainted =
                || effects(&cluster, member.name()).contains(&"NoSchedule".to_owned()).then_some(());
            until_within(PATIENCE, tainted, || format!("{} has no taint", member.name()));
        }
    };
    let all = |silent: &[&Member]| -> Vec<String> {
        silent.iter().map(|member| effects(&cluster, member.name()).join(" and ")).collect()
    };
    let [first, second, third] = &members;
    let silent = [first, second, third];
    silence(&silent);
    let stopped = all(&silent);
    let tainted = |all: &[String]| all.iter().filter(|effects| effects.contains("NoExecute")).count();
    let began = Instant::now();
    while began.elapsed() < EVICTIONS {
        // The one that the controller was just tainting.
        let now = all(&silent);
        assert!(tainted(&now) <= tainted(&stopped) + 1, "{stopped:?}, and later {now:?}");
        std::thread::sleep(Duration::from_secs(1));
    }
    let later = all(&silent);
    assert!(tainted(&later) < silent.len(), "all three have NoExecute: {later:?}");
    seen("three nodes of four silent", &format!("{}; later {}", stopped.join("; "), later.join("; ")));
    for member in &members {
        member.silence(false);
        cluster.wait_node("True", member.name());
        wait_effects(&cluster, member.name(), &[]);
    }
    let [first, second, third] = members;
    drop(third);
    let silent = [&first, &second];
    let agents = silent.map(|member| agent_of(&cluster, member.name()));
    for agent in &agents {
        agent.until_ready();
    }
    silence(&silent);
    let began = Instant::now();
    for member in silent {
        wait_effects(&cluster, member.name(), &["NoExecute", "NoSchedule"]);
    }
    let took = began.elapsed().as_secs_f64();
    let ages = silent.iter().zip(&agents).map(|(member, agent)| leaves(&cluster, member.name(), agent));
    let ages = ages.map(|age| format!("{:.0}", age.as_secs_f64())).collect::<Vec<_>>().join(" and ");
    seen(
        "two nodes of three silent",
        &format!(
            "{}; {took:.0} s after the first taint; out when it was {ages} s old",
            all(&silent).join("; "),
        ),
    );
}

/// Returns the time at which this node got `NoExecute`.
fn added(cluster: &RealCluster, node: &str) -> Option<String> {
    let node = cluster.api.get(&format!("/api/v1/nodes/{node}")).ok()?;
    let taints = node["spec"]["taints"].as_array()?;
    let taint = taints.iter().find(|taint| taint["key"] == UNREACHABLE && taint["effect"] == "NoExecute")?;
    taint.get("timeAdded").and_then(Value::as_str).map(str::to_owned)
}
