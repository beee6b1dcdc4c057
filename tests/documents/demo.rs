//! `make demo`, as a user runs it. The tour needs kubectl.

use crate::running_demo::{Running, demo};
use nodegate_testbed::network::ports::{Loopback, free_row};
use nodegate_testbed::process::signal;
use std::net::{SocketAddr, TcpListener};

#[test]
fn every_step_of_the_demos_tour_succeeds() {
    let output = demo(Loopback::new(), free_row()).args(["--tour", "--haproxy"]).output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{text}\n{errors}", output.status);
    for seen in [
        "✓ all three Ready, /health 200, after",
        "✓ worker-1 Draining (Unschedulable), /health 503, after",
        "✓ worker-1 Ready, /health 200, after",
        "✓ worker-2 NotReady (KubeletNotReady), /health 503, after",
        "✓ worker-2 Ready, /health 200, after",
        "✓ worker-1 Draining all the same, /health 503, after",
        "✓ worker-1's agent replaced its watch",
        "✓ all three stale, failing open, /health 200, after",
        "✓ worker-1 calls it a guess: the API server was last heard",
        "before that the node was Draining: cordoned (Unschedulable); the answer fails open",
        "✓ worker-3 fresh again, /health 200, after",
        "✓ worker-1 Draining again, /health 503, after",
        "✓ worker-2 Draining: the cordon was not missed, /health 503, after",
        "✓ worker-1's agent knows both balancers",
        "told 2/2 balancers: all of them",
        "no session is left",
        "✓ 0 pods take requests on worker-1",
        "✓ 0 requests lost",
        "6 of 6 steps showed what they should",
        "requests through HAProxy, 0 lost",
    ] {
        assert!(text.contains(seen), "no {seen:?} in\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "colours in a pipe:\n{text}");
}

#[test]
fn the_demo_leaves_nothing_behind_after_a_signal() {
    for name in ["INT", "TERM", "HUP"] {
        let mut demo = Running::start(&["--no-haproxy"]);
        assert_eq!(demo.agents().len(), 3);
        demo.signal(name);
        let (status, rest) = demo.end();
        assert_eq!(status.code(), Some(0), "SIG{name}: {rest}");
        demo.assert_nothing_left();
    }
}

#[test]
fn an_agent_that_dies_ends_the_demo() {
    let mut demo = Running::start(&["--no-haproxy"]);
    signal(demo.agents()[0], "KILL");
    let (status, rest) = demo.end();
    assert_eq!(status.code(), Some(1), "{rest}");
    assert!(
        rest.contains("died: signal: 9 (SIGKILL); the end of its log:") && rest.contains("listening"),
        "{rest}"
    );
    demo.assert_nothing_left();
}

#[test]
fn a_cordon_in_the_demo_moves_haproxys_traffic_without_a_failure() {
    let mut demo = Running::start(&["--haproxy"]);
    demo.kubectl(&["cordon", "worker-1"]);
    demo.wait_for("worker-1   0/s  0 open DRAIN");
    demo.kubectl(&["uncordon", "worker-1"]);
    demo.wait_for("worker-1  Draining  -> Ready");
    demo.signal("INT");
    let (status, rest) = demo.end();
    assert_eq!(status.code(), Some(0), "{rest}");
    assert!(rest.contains("requests through HAProxy, 0 lost"), "{rest}");
    demo.assert_nothing_left();
}

#[test]
fn the_demo_names_a_port_that_is_taken() {
    let network = Loopback::new();
    let taken = SocketAddr::from((network.address(12), 25_001));
    let _other = TcpListener::bind(taken).unwrap();
    let output = demo(network, free_row()).arg("--no-haproxy").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]));
    let expected = format!("demo: {taken} for the agent of worker-2 is not free");
    assert!(errors.starts_with(&expected), "{errors}");
}

#[test]
fn the_demo_reports_a_wrong_argument_in_one_line() {
    let output = demo(Loopback::new(), free_row()).arg("--bogus").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(errors.contains("--bogus") && errors.lines().count() == 1, "{errors}");
}
