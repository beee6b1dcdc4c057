//! Faults of the agent's host.

use super::scene::{CORDONED, FRESH, REPLACED, Scene, cluster};
use nodegate_testbed::{Agent, NODE, programs, until};
use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

const HOUR: i64 = 3600;

#[test]
fn the_age_of_the_cache_survives_a_clock_set_back() {
    clock_set(-HOUR, "clock set back an hour");
}

#[test]
fn the_age_of_the_cache_survives_a_clock_set_forward() {
    clock_set(HOUR, "clock set forward an hour");
}

/// Sets the wall clock, as an operator may. The monotonic clock, which times everything, can't be set.
fn clock_set(by: i64, fault: &str) {
    let cluster = cluster();
    let clock = cluster.dir.path().join("clock");
    fs::write(&clock, "+0").unwrap();
    let mut command = Command::new(programs::agent());
    command.env("LD_PRELOAD", libfaketime()).env("FAKETIME_TIMESTAMP_FILE", &clock);
    command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    let agent = cluster.launch(command);
    let mut scene = Scene::of(cluster, agent);

    scene.fault(|scene| {
        fs::write(&clock, format!("{by:+}")).unwrap();
        // A connection with the new time, and a change that arrives on it.
        scene.cluster.sim.reset_connections();
        scene.cluster.sim.cordon(NODE);
    });
    scene.notices(CORDONED, REPLACED);
    scene.lasts();
    let off = flipped_at(&scene.agent) - now();
    assert!((off - by).abs() < 60, "the agent's clock is {off} s off, not {by}");
    // The age does not stop until the wall clock is back at its old time, either.
    let age = || scene.agent.metric("nodegate_cache_age_seconds").filter(|age| *age > 0.0);
    let age = until("the cache to grow older", age);
    assert!(age < 15.0, "{age}");
    scene.heal(|scene| {
        fs::write(&clock, "+0").unwrap();
        scene.cluster.sim.uncordon(NODE);
    });
    scene.never_stale();
    scene.lost_watch_is_logged_once();
    scene.recovers(FRESH);
    scene.ends(fault, &[FRESH, CORDONED, FRESH]);
}

fn libfaketime() -> PathBuf {
    let libraries = fs::read_dir("/usr/lib").unwrap().flatten();
    let mut found = libraries.map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"));
    found.find(|path| path.exists()).expect("Debian's libfaketime is needed")
}

fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

/// Returns the time of the last flip by the agent's clock.
fn flipped_at(agent: &Agent) -> i64 {
    let flips = agent.get("/status.json").json()["flips"].as_array().unwrap().clone();
    flips.iter().find_map(|flip| flip["at_unix_ms"].as_i64()).unwrap() / 1000
}

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
            // With capacity for sixteen connections, more at once would close a probe's connection before its
            // request.
            if number.is_multiple_of(10) {
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
    assert!(scene.agent.metric("nodegate_connections_evicted_total") >= Some(f64::from(CLIENTS) - 64.0));
    scene.heal(|scene| {
        drop(idle);
        scene.cluster.sim.uncordon(NODE);
    });
    scene.never_stale();
    scene.recovers(FRESH);
    scene.ends("64 file descriptors, 300 idle clients, API reset", &[FRESH, CORDONED, FRESH]);
}
