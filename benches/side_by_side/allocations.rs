//! Heap allocations per request. The server is the agent's own crate on one thread, with an allocator that
//! counts.

use crate::failure::Failure;
use crate::load::{Connections, End, Load};
use nodegate_agent::{AgentSettings, AssembledAgent, Environment};
use nodegate_readiness::{Catalog, Condition, ConditionStatus, Moment, Node, NodeFacts, Policy};
use nodegate_server::{App, ServeOptions, Sharing};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Returns the number of allocations that one more request costs.
pub(crate) fn per_request(connections: Connections, requests: u32) -> Result<f64, Failure> {
    let few = count(connections, u64::from(requests))?;
    let many = count(connections, u64::from(requests) * 2)?;
    #[expect(clippy::cast_precision_loss, reason = "a few per request")]
    let more = many.saturating_sub(few) as f64;
    Ok(more / f64::from(requests))
}

/// Counts all allocations of a server that lives for this number of requests.
fn count(connections: Connections, requests: u64) -> Result<u64, Failure> {
    let (stop, stopped) = oneshot::channel::<()>();
    let listener = nodegate_server::bind(Some(Ipv4Addr::LOCALHOST.into()), 0, Sharing::Exclusive)?;
    let load = Load { address: listener.local_addr(), connections, clients: 1, rate: None };
    let client = thread::spawn(move || {
        let outcome = load.run(End::Requests(requests));
        // The server runs for as long as this thread.
        let _ = stop.send(());
        outcome
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let app = app(runtime.handle());
    let mut served = Ok(());
    let counted = allocation_counter::measure(|| {
        let stopped = async { drop(stopped.await) };
        served = runtime.block_on(nodegate_server::serve(listener, app, ServeOptions::default(), stopped));
    });
    served?;
    client.join().map_err(|_| "the client panicked")??;
    Ok(counted.count_total)
}

/// Returns the app of an agent with a ready node. The node stays fresh for longer than a benchmark takes.
fn app(runtime: &Handle) -> Arc<App> {
    let settings = AgentSettings {
        policy: Policy { stale_after: Duration::from_hours(1), ..Policy::default() },
        ..AgentSettings::new("worker-1", Catalog::default())
    };
    let (agent, _no_watch) = AssembledAgent::new(settings, Environment::default(), runtime);
    let ready = Condition {
        kind: "Ready".to_owned(),
        status: ConditionStatus::True,
        reason: "KubeletReady".to_owned(),
    };
    let facts = NodeFacts { conditions: vec![ready], ..NodeFacts::default() };
    agent.board.prove(Moment::default());
    agent.board.set_node(Node::Present(facts), Moment::default(), SystemTime::now());
    agent.open();
    agent.app
}
