//! Probes cost no API request, and an agent holds few connections.

use super::lab::Lab;
use nodegate_testbed::Agent;
use nodegate_testbed::watching::{Watching as _, seen};

const PROBES: u32 = 2_000;

impl Lab {
    /// Asserts that the agent never held more connections than allowed.
    pub(crate) fn assert_few_connections(&self) {
        let peak = self.proxy.peak();
        assert!(peak <= 3, "the agent held {peak} API connections at once");
    }

    /// Returns the cost for the API server: requests by the agent's count, connections and bytes by the
    /// proxy's.
    fn cost(&self, agent: &Agent) -> (f64, u64, u64) {
        let requests = agent.metric_sum("nodegate_api_requests_total");
        (requests, self.proxy.accepted(), self.proxy.bytes_to_server())
    }
}

/// Returns true once the API server has accepted the watches of the Node and of the Lease.
pub(crate) fn watches(agent: &Agent) -> bool {
    agent.metric(r#"nodegate_api_requests_total{verb="watch",code="200"}"#) >= Some(2.0)
}

#[test]
fn two_thousand_probes_cost_the_api_server_nothing() {
    let lab = Lab::start();
    let agent = lab.ready_agent(&[]);
    agent.until_so("both watches", watches);
    // The agent's own rare requests may fall into one series of probes, but not into each.
    let costs_nothing = |_: &u32| {
        let before = lab.cost(&agent);
        assert!((0..PROBES).all(|_| agent.health().status == 200));
        lab.cost(&agent) == before
    };
    let series = (1..=3).find(costs_nothing);
    let (requests, connections, bytes) = lab.cost(&agent);
    let cost = format!("{requests} requests, {connections} connections, {bytes} bytes sent");
    assert!(series.is_some(), "three series of {PROBES} probes did not go by without a request: {cost}");
    lab.assert_few_connections();
    seen(
        "no API request per probe",
        &format!("{cost} before and after {PROBES} probes; at most {} connections at once", lab.proxy.peak()),
    );
}
