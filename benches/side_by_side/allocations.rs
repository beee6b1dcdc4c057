//! Heap allocations per request. The server is the agent's own crate on one thread, with an allocator that
//! counts.

use crate::failure::Failure;
use crate::load::{Connections, End, Load};
use nodegate_readiness::{
    Board, Catalog, Condition, ConditionStatus, Liveness, Moment, Node, NodeFacts, Policy, Timeline,
};
use nodegate_server::{App, AppParts, Metrics, NoLocalChecks, ServeOptions};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};
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
    let listener = nodegate_server::bind(Some(Ipv4Addr::LOCALHOST.into()), 0)?;
    let load = Load { address: listener.local_addr()?, connections, clients: 1, rate: None };
    let client = thread::spawn(move || {
        let outcome = load.run(End::Requests(requests));
        // The server runs for as long as this thread.
        let _ = stop.send(());
        outcome
    });
    let app = Arc::new(app()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut served = Ok(());
    let counted = allocation_counter::measure(|| {
        let stopped = async { drop(stopped.await) };
        served = runtime.block_on(nodegate_server::serve(listener, app, ServeOptions::default(), stopped));
    });
    served?;
    client.join().map_err(|_| "the client panicked")??;
    Ok(counted.count_total)
}

/// Returns an app with a ready node. The node stays fresh for longer than a benchmark takes.
fn app() -> Result<App, Failure> {
    let timeline = Timeline::new(Instant::now());
    let catalog = Catalog::new(Vec::new());
    let node_ready = catalog.find(nodegate_readiness::check::NODE_READY).ok_or("no check of that name")?;
    let board = Board::new(
        Some("worker-1".to_owned()),
        Policy { stale_after: Duration::from_hours(1), ..Policy::default() },
        catalog,
        &[node_ready],
        Box::new(|_| {}),
    );
    let ready = Condition {
        kind: "Ready".to_owned(),
        status: ConditionStatus::True,
        reason: "KubeletReady".to_owned(),
    };
    let facts = NodeFacts { conditions: vec![ready], ..NodeFacts::default() };
    board.prove(Moment::default());
    board.set_node(Node::Present(facts), Moment::default(), SystemTime::now());
    board.open(Moment::default(), SystemTime::now());
    Ok(App::new(AppParts {
        board: Arc::new(board),
        timeline,
        liveness: Arc::new(Liveness::new(Moment::default())),
        activator: Arc::new(NoLocalChecks),
        metrics: Arc::new(Metrics::default()),
        version: env!("CARGO_PKG_VERSION"),
        revision: None,
    }))
}
