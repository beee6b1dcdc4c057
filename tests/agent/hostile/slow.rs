//! Slow clients: slow to send their requests, or slow to read the answers.

use super::client::{connect, connect_many};
use super::scene::Scene;
use nodegate_testbed::http::is_closed;
use nodegate_testbed::until;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Instant;

/// A number below `--max-connections`, so that the agent ends the connections because they are slow, not
/// because they are many.
const SOME: usize = 900;

#[test]
fn request_heads_sent_byte_by_byte_are_cut_off() {
    let mut scene = Scene::begin("900 slow heads", &[]);
    let mut slow = connect_many(scene.address(), SOME);
    let start = Instant::now();
    let head = b"GET /health HTTP/1.1\r\nHost: a\r\nX-Patience: ";
    for round in 0.. {
        let byte = head.get(round).copied().unwrap_or(b'a');
        // The second byte after the agent closed a connection fails to be sent.
        slow.retain_mut(|stream| stream.write_all(&[byte]).is_ok() && !is_closed(stream));
        if slow.is_empty() {
            break;
        }
        if round == 5 {
            scene.look();
        }
        scene.probe_on();
        assert!(start.elapsed().as_secs() < 60, "{} are left", slow.len());
    }
    assert_eq!(scene.agent.metric("nodegate_connections_evicted_total"), Some(0.0));
    scene.end();
}

/// Sends as many requests as the socket takes, and reads nothing.
fn ask_without_reading(stream: &mut TcpStream) {
    let requests = b"GET /status.json?pretty HTTP/1.1\r\nHost: a\r\n\r\n".repeat(64);
    stream.set_nonblocking(true).unwrap();
    let mut sent = 0;
    // The agent may close the connection at any time.
    while let Ok(wrote) = stream.write(&requests[sent % requests.len()..]) {
        sent += wrote;
    }
}

/// Returns the bytes that the kernel holds for the agent's connections, and the number of connections.
fn kernel_memory(port: u16) -> (usize, usize) {
    let filter = format!("sport = :{port}");
    let output = Command::new("ss").args(["--tcp", "--memory", "--numeric", "--no-header", &filter]).output();
    let text = String::from_utf8(output.expect("ss, of iproute2").stdout).unwrap();
    let sockets: Vec<&str> = text.split("skmem:(").skip(1).collect();
    // r: received and not read; w: to be sent or acknowledged.
    let held = |socket: &&str| -> usize {
        let fields = socket.split([',', ')']);
        fields.filter_map(|field| field.strip_prefix(['r', 'w'])?.parse::<usize>().ok()).sum()
    };
    (sockets.iter().map(held).sum(), sockets.len())
}

#[test]
fn unread_answers_take_little_kernel_memory() {
    let mut scene = Scene::begin("60 that never read", &[]);
    // Longer than a moment: by default, Linux would grow the buffers for unread data.
    for _ in 0..4 {
        // The agent closes each of them after 5 s, which may be less than a round on a busy machine.
        let mut deaf = connect_many(scene.address(), 60);
        let (held, sockets) = until("most of them to be there", || {
            deaf.iter_mut().for_each(ask_without_reading);
            let (held, sockets) = kernel_memory(scene.address().port());
            (sockets > 30).then_some((held, sockets)).or_else(|| {
                deaf = connect_many(scene.address(), 60);
                None
            })
        });
        eprintln!("60 that never read: the kernel holds {} KiB for {sockets} connections", held / 1024);
        assert!(held / sockets < 64 * 1024, "{held} bytes for {sockets} connections");
        scene.probe_on();
        scene.look();
    }
    scene.end();
}

#[test]
fn a_hundred_thousand_pipelined_requests_are_answered() {
    const REQUESTS: usize = 100_000;
    let mut scene = Scene::begin("100,000 pipelined", &[]);
    let reader = connect(scene.address());
    let mut writer = reader.try_clone().unwrap();
    let flood = std::thread::spawn(move || {
        let batch = b"GET /nodename HTTP/1.1\r\nHost: a\r\n\r\n".repeat(100);
        for _ in 0..REQUESTS / 100 {
            writer.write_all(&batch).unwrap();
        }
    });
    let mut answers = 0;
    for line in BufReader::new(reader).lines() {
        // A body does not end with a line feed, so the next answer follows on its line.
        answers += line.unwrap().matches("Node: \"n1\"").count();
        if answers == REQUESTS - 1 {
            break;
        }
    }
    flood.join().unwrap();
    scene.look();
    scene.end();
}

#[test]
fn silent_connections_are_closed() {
    let scene = Scene::begin("silent", &[]);
    let mut silent = connect_many(scene.address(), 20);
    until("the header timeout", || silent.iter_mut().all(is_closed).then_some(()));
    scene.end();
}
