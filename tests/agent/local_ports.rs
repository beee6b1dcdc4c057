//! The ports of kubelet and kube-proxy, on each address of the node on which they may listen.

// The node is a network namespace of its own, so these tests need root, and fail without it.

use nodegate_testbed::network::node_network::NodeNetwork;
use nodegate_testbed::stub::{Act, Stub, answer};
use nodegate_testbed::{Agent, NODE, Scenario, until};

/// Starts a node with an address of each family, whose kubelet reports it as Ready.
fn start() -> (NodeNetwork, Scenario) {
    let (net, cluster) = (NodeNetwork::start(), Scenario::start());
    cluster.sim.set_addresses(NODE, &["10.77.0.2", "fd77::2"]);
    (net, cluster)
}

fn agent((net, cluster): &(NodeNetwork, Scenario), args: &[&str]) -> Agent {
    let agent = net.agent_of(cluster, "gateways=off,nameservers=off", args);
    agent.wait_ready();
    agent
}

fn listen(address: &str, port: u16, act: Act) -> Stub {
    Stub::start_at(format!("{address}:{port}").parse().unwrap(), act)
}

/// The answers, the first one on the address that is tried last.
const ANSWERS: [(&str, &str, &str); 4] = [
    ("[fd77::2]", "501 Not Implemented", "HTTP 501"),
    ("10.77.0.2", "502 Bad Gateway", "HTTP 502"),
    ("[::1]", "503 Service Unavailable", "HTTP 503"),
    ("127.0.0.1", "504 Gateway Timeout", "HTTP 504"),
];

#[test]
fn a_component_is_found_on_each_address_of_the_node() {
    let node = start();
    let agent = agent(&node, &[FAST, "--check-settings=kube_proxy:interval=100ms"]);
    agent.wait_fails("kubelet", "ConnectionRefused");
    for (address, status, reason) in ANSWERS {
        let kubelet = listen(address, 10248, answer(status, ""));
        agent.wait_fails("kubelet", reason);
        kubelet.now(answer("200 OK", "ok"));
        agent.wait_passes("kubelet");
        kubelet.now(answer(status, ""));
        let _kube_proxy = listen(address, 10256, answer(status, ""));
        agent.wait_fails("kube_proxy", reason);
    }
    // A URL of the operator's own is asked alone; a name may have either loopback address.
    for (host, port, reason) in
        [("[::1]", 10248, "HTTP 503"), ("localhost", 10248, "HTTP 50"), ("127.0.0.1", 9, "ConnectionRefused")]
    {
        let set = format!("--check-settings=kubelet:url=http://{host}:{port}/healthz");
        self::agent(&node, &[&set]).wait_fails_with("kubelet", reason);
    }
}

const FAST: &str = "--check-settings=kubelet:interval=100ms";

#[test]
fn a_kubelet_that_no_address_reaches_is_shown_while_the_node_is_ready() {
    let node = start();
    let agent = agent(&node, &[FAST]);
    let metric = |value| {
        until("the metric", || (agent.metric("nodegate_kubelet_unreachable") == Some(value)).then_some(()));
    };
    metric(1.0);
    agent.wait_ready();
    let warning = "the Node is Ready, but the check kubelet fails (ConnectionRefused)";
    until("the page", || agent.get("/").body.contains(warning).then_some(()));
    agent.logs_once(warning);
    let _kubelet = listen("10.77.0.2", 10248, answer("200 OK", "ok"));
    metric(0.0);
    agent.logs_once("no longer contradicts");
    // Nothing depends on it with another setting.
    let strict = self::agent(&node, &[FAST, "--on-unknown=not-ready"]);
    assert_eq!(strict.metric("nodegate_kubelet_unreachable"), Some(0.0));
}

/// Plays kube-proxy with a node port that is the agent's: it takes the traffic before any program gets it.
#[test]
fn another_program_behind_the_agents_port_is_named_while_it_answers() {
    const TAKEN: &str = "another program answers at this node's own address and port";
    let node = start();
    let _application = listen("127.0.0.1", 8080, answer("200 OK", "hello"));
    let rule = |act: &str| {
        let matched = "OUTPUT -d 10.77.0.2 -p tcp --dport 25001 -j REDIRECT --to-ports 8080";
        node.0.node(&format!("iptables -t nat {act} {matched}"));
    };
    rule("-A");
    let agent = agent(&node, &["--listen-address=::", "--listen-port=25001"]);
    until("the other program to be named", || (agent.logged(TAKEN) > 0).then_some(()));
    let status = || {
        agent.next_rendering();
        agent.get("/status.json").json()
    };
    let taken = status();
    assert_eq!(taken["port_taken"], "10.77.0.2:25001: HTTP 200", "{taken}");
    assert!(taken["hint"].as_str().unwrap().contains("(10.77.0.2:25001: HTTP 200)"), "{taken}");
    assert_eq!(agent.metric("nodegate_port_taken"), Some(1.0));
    rule("-D");
    until("the agent to answer itself", || {
        (agent.logged("the agent answers at the node's own address again") > 0).then_some(())
    });
    let own = status();
    assert!(own["port_taken"].is_null(), "{own}");
    // The test's own question alone: the agent is no prober.
    let probers = own["probers"].as_array().unwrap();
    assert!(probers.iter().all(|prober| prober["question"] == "/health"), "{own}");
    assert_eq!(agent.metric("nodegate_port_taken"), Some(0.0));
}
