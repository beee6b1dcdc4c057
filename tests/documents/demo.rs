//! `make demo`, as a user runs it. The tour needs kubectl.

use crate::running_demo::{Running, demo};
use nodegate_testbed::network::ports::{Loopback, free_row};

#[test]
fn every_step_of_the_demos_tour_succeeds() {
    let output = demo(Loopback::new(), free_row()).args(["--tour", "--haproxy"]).output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{text}\n{errors}", output.status);
    for seen in ["6 of 6 steps showed what they should", "requests through HAProxy, 0 lost"] {
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
