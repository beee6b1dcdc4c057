//! The list of probers on the page: balancers that name themselves, one that doesn't, and hostile requests.

use super::browser::Browser;
use super::looks::look;
use nodegate_testbed::http::{ask, exchange};
use nodegate_testbed::network::ports;
use nodegate_testbed::{Agent, Cluster, NODE, until};
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, sleep};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);
const MARKUP: &str = "<script>document.title='x'</script><img src=http://127.0.0.1:1/x>";

/// Returns a request of HAProxy with `http-check send-state`.
fn haproxy(node: &str, server: &str, path: &str) -> String {
    let state = format!("UP 2/3; name={server}; node={node}; weight=1/2; scur=13/22; qcur=0");
    format!("GET {path} HTTP/1.0\r\nX-Haproxy-Server-State: {state}\r\n\r\n")
}

/// Ends the probers, also when a test fails, because the thread scope waits for them.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends the request again and again until `stop` is set.
fn goes_on<'a>(scope: &'a Scope<'a, '_>, stop: &'a AtomicBool, to: SocketAddr, request: String) {
    scope.spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            exchange(to, &request, PATIENCE).unwrap();
            sleep(Duration::from_millis(200));
        }
    });
}

/// Returns the number of regular probers, except for the test's own that waits for the agent, and that of all
/// probers.
fn probers(agent: &Agent) -> (usize, usize) {
    let status = agent.get("/status.json").json();
    let probers = status["probers"].as_array().unwrap();
    let goes_on = |prober: &&Value| prober["standing"] == "regular" && prober["question"] != "/health";
    (probers.iter().filter(goes_on).count(), probers.len())
}

#[test]
fn the_page_lists_the_probers_and_escapes_their_requests() {
    let browser = Browser::start();
    let cluster = Cluster::start();
    let port = ports::free();
    let agent = cluster.ready_agent(&[&format!("--agent-check-port={port}")]);
    let agent_check = SocketAddr::new(agent.address().ip(), port);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ended = Ended(&stop);
        let asks = |request| goes_on(scope, &stop, agent.address(), request);
        asks(haproxy("lb1", "app/worker-1", "/health?check=node_ready,custom_conditions&drain=404"));
        asks("GET /nodecheck HTTP/1.0\r\n\r\n".to_owned());
        goes_on(scope, &stop, agent_check, "lb3/app\n".to_owned());
        asks(format!("GET /health?check={} HTTP/1.0\r\n\r\n", encoded()));
        until("four that go on asking", || (probers(&agent).0 == 4).then_some(()));
        let before = probers(&agent).1;
        hostile(&agent, agent_check);
        assert!(probers(&agent).1 > before, "what is hostile is shown, too");
        let ready = look(&browser, &agent, "asked");
        assert_eq!(ready.title, "Ready · n1");
        let all = [
            "lb1",
            "app/worker-1 is UP 2/3 there, 13\u{a0}sessions",
            "/nodecheck",
            "agent-check",
            "lb3/app",
            "every ",
            "%3Cscript%3Edocument.title",
        ];
        for text in all {
            assert!(ready.text.contains(text), "no {text:?} in {}", ready.text);
        }
        cluster.sim.cordon(NODE);
        agent.wait_reason("Unschedulable");
        let draining = look(&browser, &agent, "asked-draining");
        // Until the agent has listened for a while, any prober may be a stranger.
        for text in ["Out", "of the pool for", "Told is unknown: the agent has listened for"] {
            assert!(draining.text.contains(text), "no {text:?} in {}", draining.text);
        }
    });
}

/// Returns the markup, percent-encoded for a query.
fn encoded() -> String {
    let encoded: Vec<_> = MARKUP.bytes().map(|byte| format!("%{byte:02x}")).collect();
    encoded.concat()
}

/// Sends markup in every field that a client controls, in more requests than the agent keeps of one address.
fn hostile(agent: &Agent, agent_check: SocketAddr) {
    let encoded = encoded();
    for _ in 0..4 {
        for path in [
            format!("/health?check={encoded}"),
            format!("/health?drain={encoded}"),
            format!("/nodecheck?{encoded}"),
        ] {
            let _ = ask(agent.address(), format!("GET {path} HTTP/1.0\r\n\r\n"));
        }
        let _ = ask(agent.address(), haproxy(MARKUP, MARKUP, "/health"));
        let _ = ask(agent.address(), haproxy("\u{1b}[2J\"'&<b>", &"<b>".repeat(500), "/health"));
        let _ = ask(agent_check, format!("{MARKUP}\n"));
    }
}
