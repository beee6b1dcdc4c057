//! The settings of a Service and the Forwards take effect. The tests look at connections.

use crate::lab::Lab;
use crate::servers::{answers, get, get_from, local, node_address, node_name, serve_requests};
use nodegate_testbed::http::{TIMEOUT, connect_from};
use nodegate_testbed::network::ports;
use serde_json::json;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// Returns true if a request from this local address is answered.
fn asks(client: [u8; 4], port: u16) -> bool {
    connect_from(client, local(port), TIMEOUT).is_ok_and(answers)
}

#[test]
fn only_clients_in_the_source_ranges_are_served() {
    let mut lab = Lab::new(2);
    let ranges = json!({"loadBalancerSourceRanges": ["10.0.0.0/8", "127.0.0.0/30", "nonsense"]});
    let port = lab.add("web", &json!({"spec": ranges}));
    let range = json!({"service.beta.kubernetes.io/load-balancer-source-ranges": "127.0.0.1/32,fd00::/8"});
    let older = lab.add("older", &json!({"metadata": {"annotations": range}}));
    lab.start(&[port, older]);
    assert!(asks([127, 0, 0, 3], port) && asks([127, 0, 0, 1], older), "{}", lab.log());
    let before = lab.served.lock().unwrap().clone();
    assert!(!asks([127, 0, 0, 4], port) && !asks([127, 0, 0, 2], older), "{}", lab.log());
    assert_eq!(*lab.served.lock().unwrap(), before);
    lab.until_metric("nodegate_haproxy_problems{kind=\"source-ranges\"}", 1.0);
}

#[test]
fn two_services_have_one_port_on_two_addresses_and_a_busy_port_is_left_out() {
    let port = ports::free();
    let mut lab = Lab::new(1);
    lab.arguments = vec!["--bind=127.0.0.1,127.0.0.2".to_owned()];
    lab.add_at(port, "plain", &json!({}));
    for (name, address) in [("web", "127.0.0.2"), ("nowhere", "127.0.0.3")] {
        lab.add_at(port, name, &json!({"spec": {"loadBalancerIP": address}}));
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = taken.local_addr().unwrap().port();
    lab.add_at(busy, "busy", &json!({}));
    lab.start(&[port]);
    let there = SocketAddr::from(([127, 0, 0, 2], port));
    lab.until("the other address answers", || get_from(there).is_ok());
    for kind in ["address", "busy"] {
        lab.until_metric(&format!("nodegate_haproxy_problems{{kind=\"{kind}\"}}"), 1.0);
    }
    drop(taken);
    lab.until("it is published when it is free", || get(busy).is_ok());
}

#[test]
fn a_forward_leads_to_the_chosen_nodes_and_asks_for_the_named_checks() {
    let (router, plain) = (ports::free(), ports::free());
    let mut lab = Lab::new(3);
    let asked = Arc::<Mutex<BTreeSet<_>>>::default();
    let seen = asked.clone();
    lab.check_port = serve_requests(move |at, request| {
        seen.lock().unwrap().insert((at, request.split(' ').nth(1).unwrap_or_default().to_owned()));
        "200 OK"
    });
    lab.sim.label(&node_name(1), "role", Some("infra"));
    let forwards =
        format!("router={router}:{0}@role=infra?node_ready,okd_router_1936;plain={plain}:{0}", lab.node_port);
    lab.arguments = vec![format!("--forward={forwards}")];
    // A Service can't have a Forward's port.
    lab.add_at(plain, "thief", &json!({}));
    lab.start(&[router, plain]);
    assert_eq!((lab.reached(router), lab.reached(plain)), (vec![1], vec![0, 1, 2]));
    let path = "/health?check=node_ready,okd_router_1936&drain=404".to_owned();
    let is_asked = |node| asked.lock().unwrap().contains(&(node_address(node), path.clone()));
    lab.until("the named checks are asked for", || is_asked(1));
    assert!(!is_asked(0), "of the chosen nodes alone");
    lab.until_metric("nodegate_haproxy_problems{kind=\"conflict\"}", 1.0);
    lab.drain("nodegate_forward_plain", 0);
    assert_eq!(lab.reached(plain), [1, 2]);
    assert!(lab.explain().contains("forward router"), "{}", lab.explain());
    assert!(get(router).is_ok());
}
