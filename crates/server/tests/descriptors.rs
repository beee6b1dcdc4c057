//! Out of file descriptors. One test in a process of its own: the limit is the process's.

mod common;

use common::{Scenario, eventually};
use nodegate_readiness::CheckId;
use nodegate_server::Activate;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Default)]
struct Hangs(AtomicBool);

impl Activate for Hangs {
    fn activate(&self, _checks: Vec<CheckId>) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.0.store(true, Ordering::SeqCst);
        Box::pin(pending())
    }
}

#[test]
fn accepting_goes_on_when_descriptors_come_back() {
    let hangs = Arc::new(Hangs::default());
    let server = Scenario { local: vec!["kubelet"], activator: hangs.clone(), ..Scenario::default() }.serve();
    let mut idle = server.connect();
    assert_eq!(idle.ask("/nodecheck").body, "OK");
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(256), ..limit }).unwrap();
    let mut hoard: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();

    // The client takes the last descriptor, so the server must close an idle connection to get one.
    hoard.pop();
    let mut waits = server.connect();
    assert_eq!(waits.ask("/nodecheck").body, "OK");
    assert!(idle.is_closed());

    // Now there is no idle connection left to close, only a descriptor to wait for.
    waits.send("GET /health?check=kubelet HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(eventually(|| hangs.0.load(Ordering::SeqCst)), "until its request is read it is an idle one");
    drop(idle);
    let mut late = server.connect();
    late.send("GET /nodecheck HTTP/1.0\r\n\r\n");
    drop(hoard);
    assert!(late.read_to_close().ends_with(b"OK"));
    assert_eq!(waits.response().status, 503);
}
