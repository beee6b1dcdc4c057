//! Exhausted file descriptors. The limit is per process, so this test has its own process.

use crate::scenario::{Client, HangingChecks, Scenario};
use nodegate_testbed::until;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::env::current_exe;
use std::fs::File;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[test]
fn accepting_goes_on_when_descriptors_come_back() {
    let test = "descriptors::in_a_process_of_its_own";
    let ran = Command::new(current_exe().unwrap()).args(["--ignored", "--exact", test]).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "started by the other test"]
fn in_a_process_of_its_own() {
    let hangs = Arc::new(HangingChecks::default());
    let server = Scenario { local: vec!["kubelet"], activator: hangs.clone(), ..Scenario::default() }.serve();
    let mut idle = server.connect();
    assert_eq!(idle.ask("/nodecheck").body, "OK");
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(256), ..limit }).unwrap();
    let mut hoard: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();

    // The kernel takes a descriptor for the next connection before it waits for one.
    hoard.pop();
    let mut first = server.connect();
    hang(&mut first, &hangs);

    // The client takes the last descriptor, so the server must close an idle connection to get one.
    hoard.pop();
    let mut waits = server.connect();
    assert_eq!(waits.ask("/nodecheck").body, "OK");
    assert!(idle.is_closed());

    // No idle connection is left to close; the server can only wait for a descriptor.
    hang(&mut waits, &hangs);
    drop(idle);
    let mut late = server.connect();
    late.send("GET /nodecheck HTTP/1.0\r\n\r\n");
    drop(hoard);
    assert!(late.read_to_close().ends_with("OK"));
    for mut busy in [first, waits] {
        assert_eq!(busy.response().status, 503);
    }
}

/// Sends a request whose answer takes a while.
fn hang(client: &mut Client, hangs: &HangingChecks) {
    client.send("GET /health?check=kubelet HTTP/1.1\r\nHost: a\r\n\r\n");
    until("the request to be read: before that its connection is an idle one", || {
        hangs.started.swap(false, Ordering::SeqCst).then_some(())
    });
}
