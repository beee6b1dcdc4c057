//! `GET /wait`, as `preStop` hooks and scripts send it, and `nodegate wait`. The core's own tests have the rules of each
//! goal.

use super::{HEALTH, SERVICE, asked_for, cordon, endpoints};
use nodegate_kube_sim::{Effect, FaultScope};
use nodegate_testbed::agent::run;
use nodegate_testbed::http::ProbeReply;
use nodegate_testbed::{Agent, http, until};
use std::net::SocketAddr;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const LONG: &str = "timeout=600";

fn wait(agent: &Agent, query: &str) -> ProbeReply {
    send(agent.address(), query)
}

fn send(to: SocketAddr, query: &str) -> ProbeReply {
    let request = format!("GET /wait?{query} HTTP/1.0\r\n\r\n");
    ProbeReply::parse(&http::exchange(to, &request, Duration::from_mins(2)).unwrap()).unwrap()
}

fn said(reply: &ProbeReply) -> (u16, &str) {
    (reply.status, reply.body.trim_end())
}

/// Sends a request that has to wait, and returns when the agent holds it.
fn hook(agent: &Agent, query: &str) -> JoinHandle<ProbeReply> {
    let (to, query) = (agent.address(), format!("{query}&{LONG}"));
    let hook = thread::spawn(move || send(to, &query));
    // Its answer would come at once.
    thread::sleep(Duration::from_millis(500));
    assert!(!hook.is_finished(), "it does not wait: {:?}", hook.join());
    hook
}

/// `nodegate wait` ends as hooks do, and says which balancer has acknowledged.
#[test]
fn waits_end_when_all_balancers_have_acknowledged_and_when_the_node_is_ready_again() {
    let (cluster, agent, _balancers) = asked_for(&[HEALTH; 2]);
    let at = agent.address();
    let acknowledged = format!("for=acknowledged&{LONG}");
    assert_eq!(said(&wait(&agent, &acknowledged)), (200, "the node is not going out"));
    let settled = wait(&agent, &format!("settle=1&{LONG}"));
    assert_eq!(said(&settled), (200, "the node is not going out"));
    // The kubelet starts the hooks of a graceful shutdown before its Node says that it is not ready.
    let early = hook(&agent, "settle=60");
    let waiting = thread::spawn(move || super::wait(at, &[]));
    cordon(&cluster, &agent, true);
    assert_eq!(said(&early.join().unwrap()), (200, "acknowledged: 2 balancers"));
    assert_eq!(said(&wait(&agent, &acknowledged)), (200, "acknowledged: 2 balancers"), "it has come before");
    let (code, lines) = waiting.join().unwrap();
    let last = lines.last().unwrap();
    assert!(
        code == 0 && last.starts_with("acknowledged after ") && last.ends_with(": 2 balancers"),
        "{last}"
    );
    for balancer in ["127.0.9.1", "127.0.9.2"] {
        let acknowledged = format!("acknowledged  {balancer} {HEALTH}: ");
        assert!(lines.iter().any(|line| line.starts_with(&acknowledged)), "{lines:#?}");
    }
    assert_eq!(agent.get("/drain.json").json()["acknowledged"], true);
    agent.next_rendering();
    let shown = String::from_utf8(run(&["status", "--addr", &at.to_string()], &[]).stdout).unwrap();
    for word in [
        "drain  acknowledged by all 2 probers",
        "PROBER",
        "127.0.9.1  /health?drain=503",
        "503 Draining x",
        ", acknowledged",
    ] {
        assert!(shown.contains(word), "{word} in {shown}");
    }

    cordon(&cluster, &agent, false);
    assert_eq!(said(&wait(&agent, &format!("for=ready&{LONG}"))), (200, "ready: 2 balancers"));
    let (code, lines) = super::wait(at, &["--for", "ready"]);
    assert_eq!((code, lines.last().unwrap().starts_with("ready after ")), (0, true), "{lines:#?}");
    assert_eq!(agent.get("/drain.json").json()["acknowledged_ready"], true);
}

#[test]
fn a_hook_names_the_missing_balancers_and_ends_when_the_node_comes_back_or_the_agent_ends() {
    let (cluster, agent, mut balancers) = asked_for(&[HEALTH; 2]);
    // It is waited for until it is gone.
    balancers[1].stop();
    cordon(&cluster, &agent, true);
    let late = wait(&agent, "timeout=3");
    let missing = "not acknowledged within 3 s: 127.0.9.2 /health?drain=503 (got it 0 of 4 times";
    assert!(late.status == 504 && late.body.starts_with(missing), "{late:?}");
    let first = hook(&agent, "for=acknowledged");
    cordon(&cluster, &agent, false);
    assert_eq!(said(&first.join().unwrap()), (200, "the node is not going out"));

    cordon(&cluster, &agent, true);
    let second = hook(&agent, "for=acknowledged");
    let (ended, log) = agent.terminate();
    assert!(ended.success(), "{log}");
    let reply = second.join().unwrap();
    let again = format!("/wait?for=acknowledged&{LONG}");
    assert_eq!((reply.status, reply.header("location")), (307, Some(&*again)), "{reply:?}: to its successor");
}

/// The hook of a pod starts before its slice says that it terminates.
#[test]
fn the_hook_of_a_pod_holds_it_until_the_balancers_of_its_service_have_acknowledged() {
    let (cluster, agent, _balancers) = asked_for(&["/services/shop/web", "/services/shop/web?drain=404"]);
    let acknowledged = format!("for=acknowledged&service={SERVICE}");
    let first = hook(&agent, &acknowledged);
    endpoints(&cluster, 0);
    assert_eq!(said(&first.join().unwrap()), (200, "acknowledged: 2 balancers"));
    let (code, lines) = super::wait(agent.address(), &["--service", SERVICE]);
    assert!(code == 0 && lines.last().unwrap().ends_with(": 2 balancers"), "{lines:#?}");
    agent.next_rendering();
    assert!(agent.get("/").body.contains("shop/web: no ready endpoint here; its balancers know"));
    assert_eq!(agent.metric("nodegate_service_acknowledged{service=\"shop/web\"}"), Some(1.0));
    let ready = format!("for=ready&service={SERVICE}");
    let late = wait(&agent, &format!("{ready}&timeout=1"));
    assert_eq!(said(&late), (504, "not ready within 1 s: shop/web has no ready endpoint here"));
    endpoints(&cluster, 1);
    assert_eq!(said(&wait(&agent, &format!("{ready}&{LONG}"))), (200, "ready: 2 balancers"));

    cordon(&cluster, &agent, true);
    let began = Instant::now();
    let remains = wait(&agent, &format!("{acknowledged}&{LONG}"));
    assert_eq!(said(&remains), (200, "a ready endpoint of the Service remains on this node"));
    assert!(began.elapsed() >= Duration::from_secs(2), "the slice may yet change");
    cluster.sim.faults().add(Effect::Hang.on(FaultScope::all().resources(&["endpointslices"])));
    cluster.sim.close_watches(Some("endpointslices"));
    until("the Service to be stale", || {
        (agent.get("/status.json").json()["services"][0]["stale"] == true).then_some(())
    });
    let late = wait(&agent, &format!("{acknowledged}&settle=0&timeout=1"));
    assert_eq!(
        said(&late),
        (504, "not acknowledged within 1 s: the cache is stale: the verdict may be a guess")
    );
}

/// The last judgement may be a second old when the time to settle is over.
#[test]
fn a_service_that_goes_out_late_in_the_time_to_settle_holds_the_hook() {
    let (cluster, agent, _) = asked_for(&[]);
    let hook = hook(&agent, &format!("service={SERVICE}"));
    // The hook began at least half a second ago, and settles after two.
    thread::sleep(Duration::from_millis(1200));
    endpoints(&cluster, 0);
    let no_prober = "no balancer probes /services/shop/web regularly";
    assert_eq!(said(&hook.join().unwrap()), (200, no_prober), "an endpoint does not remain");
}
