//! The status page of the real agent, in each state, as a browser shows it. The screenshots are in
//! target/screenshots.

mod browser;
mod looks;
mod probers;

use browser::Browser;
use looks::look;
use nodegate_testbed::{Agent, Cluster, NODE, ProbeReply, until};
use std::collections::BTreeSet;
use std::net::TcpListener;

/// Returns the number of flips on the page.
fn flips(agent: &Agent) -> usize {
    agent.get("/status.json").json()["flips"].as_array().unwrap().len()
}

#[test]
fn the_page_shows_each_state_without_relying_on_colour() {
    let browser = Browser::start();
    let cluster = Cluster::start();
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = format!("db={}", port.local_addr().unwrap());
    let args = ["--stale-after=3s", "--tcp-check", &own, "--background-checks=tcp:db"];
    let agent = cluster.ready_agent(&args);
    let mut symbols = BTreeSet::new();

    let ready = look(&browser, &agent, "ready");
    assert_eq!(
        (ready.title.as_str(), ready.word.as_str(), ready.why.as_str()),
        ("Ready · n1", "Ready", "may get new traffic")
    );
    assert_eq!(ready.lanes, ["ready@0"]);
    for text in ["tcp:db", "✓ passes", "Not running", "has not changed since the start"] {
        assert!(ready.text.contains(text), "no {text:?} in {}", ready.text);
    }
    symbols.insert(ready.symbol);

    cluster.sim.cordon(NODE);
    agent.wait_reason("Unschedulable");
    let draining = look(&browser, &agent, "draining");
    assert_eq!((draining.word.as_str(), draining.why.as_str()), ("Draining", "cordoned (Unschedulable)"));
    assert_eq!(draining.lanes, ["ready@0", "draining@1"]);
    assert!(
        draining.text.contains("drains") && draining.flips[0].contains("Ready → Draining"),
        "{draining:?}"
    );
    symbols.insert(draining.symbol);

    assert!(cluster.sim.set_ready(NODE, "False", "KubeletNotReady"));
    agent.wait_reason("KubeletNotReady");
    let not_ready = look(&browser, &agent, "not-ready");
    assert_eq!(not_ready.word, "NotReady");
    assert_eq!(not_ready.lanes, ["ready@0", "draining@1", "not-ready@2"]);
    symbols.insert(not_ready.symbol);

    assert!(cluster.sim.set_ready(NODE, "True", "KubeletReady"));
    cluster.sim.uncordon(NODE);
    agent.wait_ready();
    let again = look(&browser, &agent, "ready-again");
    assert!(again.text.contains("last: ") && again.flips.len() >= 3, "{again:?}");

    cluster.wait(cluster.sim.kill());
    agent.wait_for("stale", ProbeReply::is_stale);
    let stale = look(&browser, &agent, "stale");
    assert_eq!((stale.title.as_str(), stale.word.as_str()), ("Ready? · n1", "Ready?"));
    assert!(stale.text.contains("A guess: the API server was last heard"), "{}", stale.text);
    assert_eq!(stale.lanes.last().unwrap(), "ready guess@0");
    assert_eq!(symbols.len(), 3, "each verdict has an outline of its own: {symbols:?}");
}

#[test]
fn the_page_shows_a_misconfigured_agent_and_one_without_data() {
    let browser = Browser::start();
    let cluster = Cluster::start();
    let nobody = Agent::start("", &cluster.kubeconfig(), &[]);
    let misconfigured = look(&browser, &nobody, "misconfigured");
    assert_eq!(misconfigured.word, "Misconfigured");
    assert!(misconfigured.text.contains("fieldPath: spec.nodeName"), "{}", misconfigured.text);
    assert!(misconfigured.lanes.is_empty());

    cluster.wait(cluster.sim.kill());
    let deaf = cluster.agent(&["--stale-after=2s"]);
    let before = look(&browser, &deaf, "before-sync");
    assert_eq!(before.word, "Ready?");
    assert!(before.text.contains("has not been heard since the start"), "{}", before.text);
    assert_eq!(before.lanes, ["ready guess@0"]);
}

#[test]
fn the_page_fits_fifty_flips_and_escapes_hostile_reasons() {
    let browser = Browser::start();
    let cluster = Cluster::start();
    let agent = cluster.ready_agent(&[]);
    for _ in 0..26 {
        cluster.sim.cordon(NODE);
        agent.wait_reason("Unschedulable");
        cluster.sim.uncordon(NODE);
        agent.wait_ready();
    }
    let evil = "<script>document.title='x'</script><img src=http://127.0.0.1:1/x>".repeat(6);
    assert!(cluster.sim.set_ready(NODE, "False", &evil));
    until("the last flip", || agent.get("/status.json").body.contains("<img").then_some(()));
    assert_eq!(flips(&agent), 50);
    let flapping = look(&browser, &agent, "flapping");
    assert_eq!((flapping.title.as_str(), flapping.flips.len()), ("NotReady · n1", 50));
    assert!(flapping.why.contains("<script>document.title"), "{}", flapping.why);
    assert!(flapping.lanes.len() >= 50, "{:?}", flapping.lanes);
}

#[test]
fn the_page_reloads_itself_without_scripts() {
    let browser = Browser::start();
    let cluster = Cluster::start();
    let agent = cluster.ready_agent(&[]);
    let tab = browser.tab();
    tab.call("Emulation.setScriptExecutionDisabled", &serde_json::json!({"value": true}));
    tab.load(&format!("http://{}/", agent.address()));
    let title = || tab.value("document.title");
    assert_eq!(title(), "Ready · n1");
    cluster.sim.cordon(NODE);
    agent.wait_reason("Unschedulable");
    tab.wait_for("Page.loadEventFired");
    assert_eq!(title(), "Draining · n1");
}
