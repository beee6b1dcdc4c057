//! Benchmarks of the core by itself, from the API server's bytes to the bytes of an answer.
#![allow(missing_docs, clippy::expect_used, reason = "Criterion's macros write the rest")]
#![allow(clippy::disallowed_methods, reason = "what code does is measured from outside of it")]

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::{Request, Uri};
use nodegate_agent::{AgentSettings, AssembledAgent, Environment};
use nodegate_kube_follow::node_facts;
use nodegate_kube_sim::{NodeShape, make_node};
use nodegate_readiness::check::verdict;
use nodegate_readiness::{
    Board, Catalog, CheckReport, Moment, Node, NodeFacts, Outcome, Policy, Query, Reply,
};
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::runtime::Builder;

/// The size of the status that a kubelet with 50 images posts.
const NODE_BYTES: usize = 20_000;

const QUERY: &str = "check=node_ready,custom_conditions&drain=404";

fn node() -> Vec<u8> {
    let shape = NodeShape { bytes: NODE_BYTES };
    make_node("worker-1", 0, &shape).to_string().into_bytes()
}

fn facts() -> NodeFacts {
    node_facts(&node()).expect("the simulator's nodes are sound")
}

fn report(name: &str, outcome: Outcome) -> CheckReport {
    CheckReport::from_memory(name, outcome, false)
}

/// Returns an agent whose ports are open, with these facts.
fn agent(facts: NodeFacts) -> AssembledAgent {
    let runtime = Builder::new_current_thread().build().expect("a runtime without tasks");
    let settings = AgentSettings::new("worker-1", Catalog::default());
    let (agent, _no_watch) = AssembledAgent::new(settings, Environment::default(), runtime.handle());
    agent.board.prove(Moment::default());
    agent.board.set_node(Node::Present(facts), Moment::default(), SystemTime::UNIX_EPOCH);
    agent.board.open(Moment::default(), SystemTime::UNIX_EPOCH);
    agent
}

fn board(facts: NodeFacts) -> Arc<Board> {
    agent(facts).board
}

/// Measures the cost of one watch event.
fn events(criterion: &mut Criterion) {
    let json = node();
    criterion.bench_function("facts of a 20 kB Node", |bench| bench.iter(|| node_facts(black_box(&json))));

    let (ready, policy) = (Node::Present(facts()), Policy::default());
    let rules = || policy.node_ready(black_box(&ready), false);
    criterion.bench_function("rules of node_ready", |bench| bench.iter(rules));

    let reports = [report("node_ready", Outcome::Pass), report("kubelet", Outcome::fail("refused"))];
    criterion.bench_function("verdict of two checks", |bench| bench.iter(|| verdict(black_box(&reports))));
    let render = || Reply::render(black_box(&reports), None);
    criterion.bench_function("rendering of an answer with two checks", |bench| bench.iter(render));

    let cordoned = NodeFacts { unschedulable: true, ..facts() };
    let board = board(facts());
    let mut flip = [Node::Present(facts()), Node::Present(cordoned)].into_iter().cycle();
    criterion.bench_function("a flip on the board", |bench| {
        bench.iter(|| {
            let node = flip.next().unwrap_or(Node::Unknown);
            board.set_node(node, Moment::default(), SystemTime::UNIX_EPOCH);
        });
    });
}

/// Measures the cost of one probe.
fn probes(criterion: &mut Criterion) {
    let board = board(facts());
    let now = Moment::default();
    let parse = || Query::parse(black_box(QUERY), board.catalog());
    criterion.bench_function("parsing of a query", |bench| bench.iter(parse));
    let default = || board.lookup(black_box(""), now);
    criterion.bench_function("lookup of /health", |bench| bench.iter(default));

    let query = Query::parse(QUERY, board.catalog()).expect("a sound query");
    board.answer(QUERY, &query, now);
    let known = || board.lookup(black_box(QUERY), now);
    criterion.bench_function("lookup of a query seen before", |bench| bench.iter(known));
}

/// Measures the cost of noting the sender of a probe.
fn notes(criterion: &mut Criterion) {
    let (app, now) = (agent(facts()).app, Moment::default());
    let request = || {
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.uri_mut() = Uri::from_static("/health");
        request
    };
    let peer = Ipv4Addr::new(10, 0, 0, 1).into();
    criterion.bench_function("an answer", |bench| {
        bench.iter_batched(request, |request| app.respond(request, now), BatchSize::SmallInput);
    });
    criterion.bench_function("an answer, and who has asked is noted", |bench| {
        bench.iter_batched(request, |request| app.respond_to(request, now, peer), BatchSize::SmallInput);
    });
}

criterion_group!(core, events, probes, notes);
criterion_main!(core);
