//! Faults of the agent's host.

use super::scene::{CORDONED, FRESH, REPLACED, Scene, cluster};
use nodegate_testbed::{NODE, programs};
use std::net::TcpStream;
use std::process::Command;

/// Starts the agent with few descriptors, floods it with idle clients, and then breaks the connection to the
/// API server.
#[test]
fn idle_clients_leave_descriptors_for_the_api_server() {
    const CLIENTS: u32 = 300;
    let cluster = cluster();
    let mut command = Command::new("prlimit");
    command.arg("--nofile=64:64").arg(programs::agent());
    let agent = cluster.launch(command);
    let mut scene = Scene::of(cluster, agent);
    scene.logged_once("the limit of file descriptors allows fewer connections");
    let idle = scene.fault(|scene| {
        let connect = |number: u32| {
            // Clients of this node have three places here; more of them between two probes would close a probe's
            // connection before its request.
            if number.is_multiple_of(2) {
                scene.prober.wait(1);
            }
            TcpStream::connect(scene.agent.address()).unwrap()
        };
        let idle: Vec<TcpStream> = (0..CLIENTS).map(connect).collect();
        scene.cluster.sim.reset_connections();
        scene.cluster.sim.cordon(NODE);
        idle
    });
    scene.notices(CORDONED, REPLACED);
    scene.lasts();
    // In a crowd, they are closed unread.
    let closed = ["nodegate_connections_evicted_total", "nodegate_connections_refused_total"];
    let closed: f64 = closed.iter().filter_map(|name| scene.agent.metric(name)).sum();
    assert!(closed >= f64::from(CLIENTS) - 64.0, "{closed}");
    scene.heal(|scene| {
        drop(idle);
        scene.cluster.sim.uncordon(NODE);
    });
    scene.never_stale();
    scene.recovers(FRESH);
    scene.ends("64 file descriptors, 300 idle clients, API reset", &[FRESH, CORDONED, FRESH]);
}
