//! The commands that servers get, received by a process that plays HAProxy's worker.

use nodegate_haproxy::apply::layout::Layout;
use nodegate_haproxy::apply::mover::Mover;
use nodegate_haproxy::haproxy::socket::Runtime;
use nodegate_haproxy::plan::desired::Desired;
use nodegate_haproxy::plan::facts::{Facts, Family, NodeState, ObservedNode, ObservedService, PortFacts};
use nodegate_haproxy::plan::planner::plan;
use nodegate_haproxy::plan::policy::PlanPolicy;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

/// The states that the worker holds, and the commands that it received.
#[derive(Default)]
struct Worker {
    /// The administrative state of its only server. `agent` is the state of its agent. Both are as HAProxy
    /// shows them.
    admin: u8,
    agent: u8,
    /// True if the worker receives each command and answers that it does not understand it.
    refuses: bool,
    heard: Vec<String>,
}

impl Worker {
    fn answer(&mut self, command: &str) -> String {
        let Self { admin, agent, refuses, .. } = *self;
        match command {
            "show info" => "Version: 2.6.12\nPid: 7\n".to_owned(),
            "show backend" => "# name\nnodegate_nodes\nnodegate_shop_web_80\n".to_owned(),
            "show servers state nodegate_nodes" => {
                format!(
                    "1\n3 nodegate_nodes 1 n1 127.0.0.1 2 {admin} 1 1 4 15 3 4 6 {agent} 0 0 - 1 - 0 2 - - 1\n"
                )
            }
            command => {
                self.heard.push(command.to_owned());
                if refuses { "No such server.\n".to_owned() } else { String::new() }
            }
        }
    }
}

struct Stage {
    _dir: TempDir,
    worker: Arc<Mutex<Worker>>,
    mover: Mover,
}

impl Stage {
    fn new(admin: u8, agent: u8) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("worker.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let worker = Arc::new(Mutex::new(Worker { admin, agent, ..Worker::default() }));
        let plays = worker.clone();
        tokio::spawn(async move {
            loop {
                let Ok((mut stream, _)) = listener.accept().await else { continue };
                let mut line = String::new();
                stream.read_to_string(&mut line).await.unwrap();
                let answers: String =
                    line.trim().split(';').map(|command| plays.lock().unwrap().answer(command)).collect();
                stream.write_all(answers.as_bytes()).await.unwrap();
            }
        });
        let mover = Mover::new(Some(Runtime::Worker(socket)), None, PlanPolicy::default().check);
        Self { _dir: dir, worker, mover }
    }

    /// Returns the commands of one round. `None` if the round fails.
    async fn said(&mut self, desired: &Desired, layout: &Layout) -> Option<Vec<String>> {
        let result = self.mover.round(desired, layout).await;
        let heard = std::mem::take(&mut self.worker.lock().unwrap().heard);
        result.ok().map(|_| heard)
    }

    fn refuses(&self, refuses: bool) {
        self.worker.lock().unwrap().refuses = refuses;
    }
}

/// Returns a plan with one node, or none, and one Service.
fn desired(node: Option<(NodeState, u16)>) -> Desired {
    let mut facts = Facts::default();
    if let Some((state, weight)) = node {
        let addresses = vec![("InternalIP".to_owned(), [127, 0, 0, 1].into())];
        let node = ObservedNode {
            name: "n1".to_owned(),
            state,
            weight: Some(weight.to_string()),
            addresses,
            ..ObservedNode::default()
        };
        facts.nodes.insert("n1".to_owned(), Arc::new(node));
    }
    let port = PortFacts { name: None, port: 80, node_port: 30_000, protocol: "TCP".to_owned() };
    let service = ObservedService {
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        load_balancer: true,
        families: vec![Family::V4],
        ports: vec![port],
        ..ObservedService::default()
    };
    facts.services.insert(("shop".to_owned(), "web".to_owned()), Arc::new(service));
    plan(&facts, &PlanPolicy::default())
}

/// Returns the structure of a HAProxy that has loaded a file with this plan.
fn loaded(desired: &Desired) -> Layout {
    let weights = desired.nodes.iter().map(|node| (node.name.clone(), node.weight)).collect();
    Layout {
        desired: Arc::new(desired.clone()),
        loaded: Arc::new(weights),
        ours: true,
        generation: 1,
        ..Layout::default()
    }
}

const READY: NodeState = NodeState::Ready;
const DRAINING: NodeState = NodeState::Draining;
/// HAProxy's bits: a server that was drained by an administrator, or by an agent that is asked. `ASKED` and
/// `NOT_ASKED` are the states of the agent.
const DRAINED: u8 = 8;
const ASKED: u8 = 22;
const NOT_ASKED: u8 = 18;

#[tokio::test]
async fn what_an_agent_drained_is_not_told_to_be_ready() {
    let mut stage = Stage::new(DRAINED, ASKED);
    let ready = desired(Some((READY, 100)));
    let layout = loaded(&ready);
    assert_eq!(stage.said(&ready, &layout).await.unwrap(), Vec::<String>::new());
    // A drain that the cluster asks for is set by the program, and outlives the agent's drain.
    let said = stage.said(&desired(Some((DRAINING, 100))), &layout).await.unwrap();
    assert_eq!(said, ["disable agent nodegate_nodes/n1", "set server nodegate_nodes/n1 state drain"]);
    let said = stage.said(&ready, &layout).await.unwrap();
    assert_eq!(said, ["set server nodegate_nodes/n1 state ready", "enable agent nodegate_nodes/n1"]);
}

#[tokio::test]
async fn what_we_drained_is_known_by_its_agent_that_is_not_asked() {
    let mut stage = Stage::new(DRAINED, NOT_ASKED);
    let draining = desired(Some((DRAINING, 100)));
    let layout = loaded(&draining);
    assert_eq!(stage.said(&draining, &layout).await.unwrap(), Vec::<String>::new());
    let said = stage.said(&desired(Some((READY, 100))), &layout).await.unwrap();
    assert_eq!(said, ["set server nodegate_nodes/n1 state ready", "enable agent nodegate_nodes/n1"]);
}

#[tokio::test]
async fn a_weight_that_may_have_been_heard_is_said_again() {
    let mut stage = Stage::new(0, ASKED);
    let as_loaded = desired(Some((READY, 100)));
    let layout = loaded(&as_loaded);
    assert_eq!(stage.said(&as_loaded, &layout).await.unwrap(), Vec::<String>::new());
    stage.refuses(true);
    assert_eq!(stage.said(&desired(Some((READY, 7))), &layout).await, None);
    stage.refuses(false);
    // The file that the process has loaded has this weight, and the process may have another one.
    let said = stage.said(&as_loaded, &layout).await.unwrap();
    let weighed = |backend| format!("set server {backend}/n1 weight 100");
    let last_resorts =
        ["nodegate_any_node_tcp_roundrobin_v4", "nodegate_last_resort_tcp_roundrobin_v4"].map(weighed);
    assert_eq!(said, [&[weighed("nodegate_shop_web_80")], last_resorts.as_slice()].concat());
    assert_eq!(stage.said(&as_loaded, &layout).await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn what_was_said_to_a_node_that_went_is_forgotten() {
    let mut stage = Stage::new(0, ASKED);
    let there = desired(Some((DRAINING, 7)));
    let gone = desired(None);
    let (with, without) = (loaded(&desired(Some((READY, 100)))), loaded(&gone));
    assert_eq!(stage.said(&there, &with).await.unwrap().len(), 5);
    assert_eq!(stage.said(&there, &with).await.unwrap(), Vec::<String>::new());
    assert_eq!(stage.said(&gone, &without).await.unwrap(), Vec::<String>::new());
    assert_eq!(stage.said(&there, &with).await.unwrap().len(), 5);
}

#[tokio::test]
async fn a_process_without_our_servers_is_found_out_once() {
    let mut stage = Stage::new(0, ASKED);
    let there = desired(Some((READY, 100)));
    let mut layout = loaded(&there);
    assert_eq!(stage.mover.round(&there, &layout).await.unwrap().missing, Some(0));
    assert_eq!(stage.mover.round(&there, &layout).await.unwrap().missing, None);
    let mut more = there.clone();
    let renamed = more.frontends.iter().cloned().map(|mut frontend| {
        frontend.backend = "nodegate_shop_other_81".to_owned();
        frontend
    });
    more.frontends = renamed.collect();
    layout.desired = Arc::new(more.clone());
    layout.generation += 1;
    // The missing server must be reported although the process does not take all commands.
    stage.refuses(true);
    more.nodes.iter_mut().for_each(|node| node.weight = 7);
    assert_eq!(stage.mover.round(&more, &layout).await.unwrap().missing, Some(1));
}
