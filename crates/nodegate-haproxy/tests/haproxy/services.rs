//! The settings of a Service take effect. The tests look at connections.

use crate::scenario::Scenario;
use crate::servers::{answers, get_from, local};
use nodegate_testbed::http::{TIMEOUT, connect_from};
use nodegate_testbed::network::ports;
use serde_json::json;
use std::net::SocketAddr;

fn asks(client: [u8; 4], port: u16) -> bool {
    connect_from(client, local(port), TIMEOUT).is_ok_and(answers)
}

#[test]
fn only_clients_in_the_source_ranges_are_served() {
    let mut scenario = Scenario::new(2);
    let ranges = json!({"loadBalancerSourceRanges": ["10.0.0.0/8", "127.0.0.0/30", "nonsense"]});
    let port = scenario.add("web", &json!({"spec": ranges}));
    let range = json!({"service.beta.kubernetes.io/load-balancer-source-ranges": "127.0.0.1/32,fd00::/8"});
    let older = scenario.add("older", &json!({"metadata": {"annotations": range}}));
    scenario.start(&[port, older]);
    assert!(asks([127, 0, 0, 3], port) && asks([127, 0, 0, 1], older), "{}", scenario.log());
    let before = scenario.served.lock().unwrap().clone();
    assert!(!asks([127, 0, 0, 4], port) && !asks([127, 0, 0, 2], older), "{}", scenario.log());
    assert_eq!(*scenario.served.lock().unwrap(), before);
    scenario.until_metric("nodegate_haproxy_problems{kind=\"source-ranges\"}", 1.0);
}

#[test]
fn two_services_have_one_port_on_two_addresses() {
    let port = ports::free();
    let mut scenario = Scenario::new(1);
    scenario.arguments = vec!["--bind=127.0.0.1,127.0.0.2".to_owned()];
    scenario.add_at(port, "plain", &json!({}));
    for (name, address) in [("web", "127.0.0.2"), ("nowhere", "127.0.0.3")] {
        scenario.add_at(port, name, &json!({"spec": {"loadBalancerIP": address}}));
    }
    scenario.start(&[port]);
    let there = SocketAddr::from(([127, 0, 0, 2], port));
    scenario.until("the other address answers", || get_from(there).is_ok());
    scenario.until_metric("nodegate_haproxy_problems{kind=\"address\"}", 1.0);
}
