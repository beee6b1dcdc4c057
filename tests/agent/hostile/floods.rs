//! Floods of connections.

use super::client::{connect, connect_many, reset};
use super::scene::Scene;
use nodegate_testbed::http::{is_closed, read_all};
use nodegate_testbed::network::ports;
use nodegate_testbed::until;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

/// Ten times the capacity of the agent.
const MANY: usize = 10_000;
/// The default of `--max-connections`.
const CAP: f64 = 1024.0;
/// The connection of the metrics request itself, which the agent answers at once.
const ASKING: f64 = 1.0;

const ASK: &[u8] = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n";

/// Gets one answer on a connection that stays open.
fn speak_once(stream: &mut TcpStream) {
    stream.write_all(ASK).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 200");
}

#[test]
fn ten_thousand_idle_connections_do_not_disturb_the_balancer() {
    let mut scene = Scene::begin("10,000 idle", &[]);
    let idle = scene.flood(MANY, || connect(scene.address()));
    let first = scene.look();
    assert!(scene.agent.metric("nodegate_connections").unwrap() <= CAP + ASKING);
    // On a busy machine many connections end earlier, because they send no request in time.
    assert!(scene.agent.metric("nodegate_connections_evicted_total").unwrap() > 0.0);
    assert_eq!(scene.agent.metric("nodegate_connections_refused_total"), Some(0.0));
    // The agent's verdict stays correct, too.
    scene.cluster.sim.cordon(nodegate_testbed::cluster::NODE);
    scene.agent.wait_reason("Unschedulable");
    scene.cluster.sim.uncordon(nodegate_testbed::cluster::NODE);
    scene.agent.wait_ready();
    // A second flood while the first connections are open: it costs no more memory.
    let more = scene.flood(MANY / 5, || connect(scene.address()));
    let second = scene.look();
    assert!(second.memory < first.memory + 4096, "{first:?} {second:?}");
    drop((idle, more));
    scene.end();
}

#[test]
fn thousands_of_kept_connections_do_not_evict_the_balancer() {
    let mut scene = Scene::begin("3,000 kept alive", &[]);
    let spoken = scene.flood(3000, || {
        let mut stream = connect(scene.address());
        speak_once(&mut stream);
        stream
    });
    scene.look();
    assert!(scene.agent.metric("nodegate_connections").unwrap() <= CAP + ASKING);
    drop(spoken);
    // These connections are as good as the balancer's own, but the balancer's is never the longest idle one.
    scene.end();
}

#[test]
fn a_kept_balancer_connection_outlives_a_flood_between_two_probes() {
    let scene = Scene::begin("kept and slow", &[]);
    // A balancer that probes every few seconds; between two probes the flood replaces the connection table
    // twice.
    let mut kept = connect(scene.address());
    speak_once(&mut kept);
    // On a busy machine some connections of a flood end before the table is full.
    let mut idle = Vec::new();
    until("evictions", || {
        idle = scene.flood(2500, || connect(scene.address()));
        (scene.agent.metric("nodegate_connections_evicted_total")? >= 1000.0).then_some(())
    });
    let mut rest = [0; 4096];
    let _ = kept.read(&mut rest).unwrap();
    speak_once(&mut kept);
    drop(idle);
    scene.end();
}

#[test]
fn thousands_of_resets_do_not_disturb_the_balancer() {
    let mut scene = Scene::begin("6,000 resets", &[]);
    for n in 0..6000 {
        let mut stream = connect(scene.address());
        let _ = match n % 3 {
            0 => Ok(()),
            1 => stream.write_all(b"GET /health HT"),
            _ => stream.write_all(ASK),
        };
        reset(stream);
    }
    scene.look();
    scene.end();
}

#[test]
fn thousands_of_half_closed_connections_are_answered_and_closed() {
    let mut scene = Scene::begin("2,000 half-closed", &[]);
    let mut half: Vec<TcpStream> = (0..2000)
        .map(|n| {
            let mut stream = connect(scene.address());
            let _ = match n % 3 {
                0 => Ok(()),
                1 => stream.write_all(b"GET /health HT"),
                _ => stream.write_all(ASK),
            };
            stream.shutdown(Shutdown::Write).unwrap();
            stream
        })
        .collect();
    scene.look();
    // The test does not wait for the connections to time out: the agent answers those with a whole request
    // and closes all.
    for (n, stream) in half.iter_mut().enumerate() {
        let answer = read_all(stream);
        assert_eq!(answer.starts_with("HTTP/1.1 200 "), n % 3 == 2, "{n}: {answer}");
    }
    scene.end();
}

#[test]
fn a_flood_of_the_agent_check_does_not_disturb_http() {
    let port = ports::free();
    let mut scene = Scene::begin("agent-check", &[&format!("--agent-check-port={port}")]);
    let agent_check = (scene.address().ip(), port).into();
    let idle = connect_many(agent_check, 2500);
    for n in 0..2500 {
        let mut stream = connect(agent_check);
        if n % 2 == 0 {
            let _ = stream.write_all(&[0xff; 8192]);
        }
        reset(stream);
    }
    scene.look();
    let mut haproxy = connect(agent_check);
    assert_eq!(read_all(&mut haproxy), "up ready\n");
    for mut stream in idle {
        // The agent answers at once, or the connection is closed if it was not accepted before the next
        // thousand came.
        let answer = read_all(&mut stream);
        assert!(answer == "up ready\n" || answer.is_empty(), "{answer}");
    }
    // The agent neither reads nor waits for bytes after its answer.
    let mut chatty = connect(agent_check);
    let _ = chatty.write_all(&b"x".repeat(1 << 20));
    until("the chatty one to be closed", || is_closed(&mut chatty).then_some(()));
    scene.end();
}
