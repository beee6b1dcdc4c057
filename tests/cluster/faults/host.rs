//! Faults of the agent's host.

use super::connections::REPLACED;
use super::scene::{Api, CORDONED, FRESH, Scene, cluster};
use super::table::Row;
use nodegate_testbed::programs;
use nodegate_testbed::stub::{Act, Stub, answer};
use nodegate_testbed::{Agent, until};
use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const HOUR: i64 = 3600;

pub(crate) fn clock_set_back() -> Row {
    clock_set(-HOUR)
}

pub(crate) fn clock_set_forward() -> Row {
    clock_set(HOUR)
}

/// Sets the wall clock, as an operator may. The monotonic clock, which times everything, can't be set.
fn clock_set(by: i64) -> Row {
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
        scene.cluster.cordon();
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
        scene.cluster.uncordon();
    });
    scene.never_stale();
    scene.lost_watch_is_logged_once();
    scene.recovers(FRESH);
    scene.row(&[FRESH, CORDONED, FRESH])
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
pub(crate) fn few_descriptors() -> Row {
    let cluster = cluster();
    let mut command = Command::new("prlimit");
    command.arg("--nofile=64:64").arg(programs::agent());
    let agent = cluster.launch(command);
    let mut scene = Scene::of(cluster, agent);
    scene.logged_once("the limit of file descriptors allows fewer connections");
    let idle = scene.fault(|scene| {
        let idle = idle_clients(scene, 10);
        scene.cluster.sim.reset_connections();
        scene.cluster.cordon();
        idle
    });
    scene.notices(CORDONED, REPLACED);
    scene.lasts();
    assert!(scene.agent.metric("nodegate_connections_evicted_total") >= Some(CLIENTS - 64.0));
    scene.heal(|scene| {
        drop(idle);
        scene.cluster.uncordon();
    });
    scene.never_stale();
    scene.recovers(FRESH);
    scene.row(&[FRESH, CORDONED, FRESH])
}

const CLIENTS: f64 = 300.0;

/// Opens idle connections, `in_one_go` between two probes. With capacity for sixteen connections, more at
/// once would close a probe's connection before its request.
fn idle_clients(scene: &Scene, in_one_go: u32) -> Vec<TcpStream> {
    let come = |number: u32| {
        if number.is_multiple_of(in_one_go) {
            scene.prober.wait(1);
        }
        TcpStream::connect(scene.agent.address()).unwrap()
    };
    (0..300).map(come).collect()
}

/// Adds a check whose target accepts and never answers.
pub(crate) fn probe_target_never_answers() -> Row {
    let stub = Stub::start(answer("200 OK", "ok"));
    let check = format!("--http-check=web={}", stub.url("/"));
    let settings =
        ["--check-settings=http:web:interval=200ms,timeout=500ms", "--default-checks=node_ready,http:web"];
    let mut scene = Scene::with(cluster(), &[&check, settings[0], settings[1]]);
    let hangs = "503 Timeout after 500ms";
    scene.fault(|_| stub.now(Act::Hang));
    scene.notices(hangs, Duration::from_secs(2));
    scene.logged_once("local check fails");
    assert_eq!(scene.agent.metric(r#"nodegate_check_passed{check="http:web",configured="true"}"#), Some(0.0));
    scene.heal(|_| stub.now(answer("200 OK", "ok")));
    scene.never_stale();
    scene.recovers(FRESH);
    until("the log", || (scene.agent.logged("local check passes") >= 1).then_some(()));
    scene.row(&[FRESH, hangs, FRESH])
}
