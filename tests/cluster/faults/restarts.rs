//! Agents that start while no API server answers.

use super::scene::{Api, CORDONED, FRESH, STALE_AFTER_ARG, SYNCED, Scene, cluster};
use super::table::Row;
use nodegate_testbed::network::ports;
use nodegate_testbed::programs;
use nodegate_testbed::{Agent, Cluster};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Starts the agent of a drained node before the API server: no load balancer may get Ready.
pub(crate) fn drained_node_booted_before_the_api_server() -> Row {
    let cluster = cluster();
    cluster.cordon();
    cluster.wait(cluster.sim.kill());
    let agent = thread::scope(|scope| {
        let agent = scope.spawn(|| cluster.agent(&[]));
        thread::sleep(Duration::from_secs(8));
        cluster.wait(cluster.sim.restart(false)).unwrap();
        agent.join().unwrap()
    });
    let mut scene = Scene::probed(cluster, agent);
    scene.fault(|_| {});
    scene.never_stale();
    scene.goes_on();
    scene.row(&[CORDONED])
}

/// Replaces an agent that holds a drain. The successor can't see the cordon, so it takes the drain over.
pub(crate) fn agent_replaced_in_an_outage() -> Row {
    let (cluster, port) = (cluster(), ports::free().to_string());
    let start = |cluster: &Cluster, args: &[&str]| -> Agent {
        let mut command = Command::new(programs::agent());
        command.args([STALE_AFTER_ARG, "--on-stale=keep-drain"]).args(args).env("LISTEN_PORT", &port);
        cluster.launch(command)
    };
    let first = start(&cluster, &[SYNCED]);
    let mut scene = Scene::of(cluster, first);
    scene.cluster.cordon();
    scene.first(CORDONED, Instant::now());
    scene.fault(|scene| scene.cluster.wait(scene.cluster.sim.kill()));
    scene.notices_itself("a stale cache", |agent| {
        (agent.metric("nodegate_cache_stale") == Some(1.0)).then_some(())
    });
    let second = start(&scene.cluster, &[]);
    scene.lasts();
    let (ended, log) = std::mem::replace(&mut scene.agent, second).terminate();
    assert!(ended.success(), "{log}");
    scene.logged_once("taking over the last known facts of the node");
    scene.heal(|scene| {
        scene.cluster.uncordon();
        scene.cluster.wait(scene.cluster.sim.restart(false)).unwrap();
    });
    scene.recovers(FRESH);
    scene.row(&[FRESH, CORDONED, FRESH])
}
