//! The table of the fleet.

use crate::crowd::{hangs, sends};
use crate::scenario::{Said, Scenario, out, prober, ready, says, unseeing};
use nodegate_testbed::waiting::until;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn one_of_each() -> Scenario {
    let mut waiting = out("worker-2", "draining", "Unschedulable", 3);
    waiting["probers"] = json!([
        prober("10.0.0.5", "draining", 5, Some(true)),
        prober("10.0.0.6", "draining", 1, Some(false))
    ]);
    waiting["drain"]["acknowledged"] = json!(false);
    waiting["drain"]["waiting_for"] =
        json!([{"prober": "10.0.0.6", "question": "/health", "why": "got it 1 of 4 times"}]);
    waiting["drain"]["traffic"] = json!({"ports": [443], "established": 14, "age_ms": 500});
    waiting["host"] = json!({"shutdown": false, "lock": false});
    let mut stale = ready("worker-3");
    (stale["cache"]["stale"], stale["cache"]["age_ms"]) = (json!(true), json!(240_000));
    stale["reason"] = json!("CacheStale");
    stale["probers"][0]["acknowledged"] = json!(null);
    stale["drain"]["not_known"] = json!("the cache is stale: the verdict may be a guess");
    stale["last_known"] = json!({"verdict": "draining", "reason": "Unschedulable"});
    Scenario::new([
        ("worker-10", says(&ready("worker-10"))),
        ("worker-2", says(&waiting)),
        ("worker-1", says(&out("worker-1", "draining", "Unschedulable", 130))),
        ("worker-3", says(&stale)),
        ("worker-4", says(&out("worker-4", "not-ready", "KubeletNotReady", 7300))),
        ("worker-5", says(&unseeing("worker-5"))),
        ("worker-6", sends("")),
        ("worker-7", hangs()),
    ])
}

#[test]
fn the_most_urgent_nodes_come_first_and_the_worst_is_the_exit_code() {
    let scenario = one_of_each();
    let said = scenario.run(&["--via=node"]);
    said.has(3, &[]);
    let order =
        ["worker-6", "worker-7", "worker-4", "worker-3", "worker-2", "worker-1", "worker-10", "worker-5"];
    assert_eq!(said.order(), order, "{said:#?}");
    for row in [
        "worker-10 Ready - >2 h fresh 3 s 1/1 - 0.1.0",
        "worker-2 Draining Unschedulable 3 s fresh 3 s 1/2 14 0.1.0",
        "worker-1 Draining Unschedulable 2 min fresh 3 s 1/1 - 0.1.0",
        "worker-3 Ready? CacheStale >2 h stale 4 min 0/1? - 0.1.0",
        "worker-4 NotReady KubeletNotReady 2 h fresh 3 s 1/1 - 0.1.0",
        "worker-5 Ready - >2 h fresh 3 s 0/0? - 0.1.0",
        "worker-6 Unknown the connection was closed without an ... - - - - -",
        "worker-7 Unknown no whole answer within 5s - - - - -",
    ] {
        assert_eq!(said.row(row.split(' ').next().unwrap()), row);
    }
    let summary = "8 nodes: 3 Ready, 2 Draining, 1 NotReady, 2 unknown, 1 guessed from a stale cache; \
                   10.0.0.7 GET / can't see drains";
    assert_eq!(said.out.lines().last(), Some(summary));
    assert!(!said.out.contains('\u{1b}') && said.out.is_ascii(), "colours and symbols are for terminals");
    for (nodes, code) in [
        (["worker-10", "worker-5"], 0),
        (["worker-10", "worker-1"], 1),
        (["worker-1", "worker-4"], 2),
        (["worker-4", "worker-6"], 3),
    ] {
        let said = scenario.run(&[&nodes[..], &["--via=node"]].concat());
        assert_eq!((said.code, said.order().len()), (Some(code), 2), "{said:#?}");
    }
}

#[test]
fn nodes_are_chosen_by_labels() {
    let scenario = Scenario::new([("a", says(&ready("a"))), ("b", says(&ready("b")))]);
    scenario.sim.label("b", "pool", Some("edge"));
    assert_eq!(scenario.run(&["-l", "pool=edge"]).order(), ["b"]);
    assert_eq!(scenario.run(&["--selector=pool!=edge"]).order(), ["a"]);
}

#[test]
fn wide_output_has_the_reason_and_the_way_and_json_the_whole_status() {
    let scenario = one_of_each();
    let said = scenario.run(&["-o", "wide", "worker-2", "worker-3", "worker-6"]);
    let addresses: Vec<_> = scenario.crowd.nodes().map(|(_, address)| address.to_string()).collect();
    let answered = format!("{}:{}", addresses[1], scenario.crowd.port());
    let why = "cordoned (Unschedulable); a reboot does not wait for load balancers: nodegate-shutdown holds no lock";
    assert!(said.row("worker-2").ends_with(&format!("0.1.0 {answered} {why}")), "{said:#?}");
    let guess = "may get new traffic; a guess: the API server was last heard 4 min ago; before that the node was Draining: \
                 cordoned (Unschedulable)";
    assert!(said.row("worker-3").contains(guess), "{said:#?}");
    let port = scenario.crowd.port();
    let refused = format!("perhaps --allow-from does not name this machine ({}:{port})", addresses[6]);
    let proxied = "; through the API server: error trying to reach service: EOF";
    let row = said.row("worker-6");
    assert!(row.contains(&refused) && row.ends_with(proxied), "{said:#?}");

    let document: Value = serde_json::from_str(&scenario.run(&["-o", "json", "--via=node"]).out).unwrap();
    let rows = document["nodes"].as_array().unwrap();
    let row = |name: &str| rows.iter().find(|row| row["node"] == name).unwrap();
    let (waiting, silent) = (row("worker-2"), row("worker-7"));
    assert_eq!((&waiting["verdict"], &waiting["via"]), (&json!("draining"), &json!("node")));
    assert_eq!(waiting["status"]["drain"]["waiting_for"][0]["prober"], "10.0.0.6");
    assert_eq!((&silent["verdict"], &silent["status"]), (&Value::Null, &Value::Null));
    assert_eq!(silent["error"], "no whole answer within 5s");
}

/// kubeadm and Talos put this label on every control-plane node, and nothing is wrong with the node.
#[test]
fn a_control_plane_node_out_by_label_is_no_failure() {
    let excluded = |node: &str| says(&out(node, "draining", "ExcludedFromLoadBalancers", 7300));
    let excluded = ["cp-1", "edge-1"].map(|node| (node, excluded(node)));
    let scenario = Scenario::new(excluded.into_iter().chain([("w-1", says(&ready("w-1")))]));
    scenario.sim.label("cp-1", "node-role.kubernetes.io/control-plane", Some(""));
    let by_design = scenario.run(&["cp-1", "w-1"]);
    assert_eq!((by_design.code, by_design.order()), (Some(0), vec!["cp-1", "w-1"]), "{by_design:#?}");
    assert_eq!(by_design.out.lines().last(), Some("2 nodes: 1 Ready, 1 out by design"));
    assert!(by_design.row("cp-1").starts_with("cp-1 Draining ExcludedFromLoadBalancers"), "{by_design:#?}");
    // The same label on a worker counts.
    assert_eq!(scenario.run(&[]).code, Some(1));
    scenario.sim.cordon("cp-1");
    assert_eq!(scenario.run(&["cp-1", "w-1"]).code, Some(1), "cordoned besides");
}

/// The kubelets are alive, but the control plane gets no heartbeat from them.
#[test]
fn unconfirmed_nodes_are_in_the_summary() {
    let unconfirmed = |node: &str| {
        let mut status = ready(node);
        status["unconfirmed"] = json!(true);
        says(&status)
    };
    let (a, b) = (unconfirmed("a"), unconfirmed("b"));
    let scenario = Scenario::new([("a", a), ("b", b), ("c", says(&ready("c")))]);
    let said = scenario.run(&[]);
    assert!(said.row("a").starts_with("a Ready? - >2 h unconfirmed 3 s 1/1"), "{said:#?}");
    assert_eq!(said.out.lines().last(), Some("3 nodes: 3 Ready, 2 unconfirmed"));
    scenario.crowd.now("c", unconfirmed("c"));
    let all = scenario.run(&[]);
    let alarm = "the control plane hears no kubelet: suspect the path from the kubelets to the API server";
    let last = format!("3 nodes: 3 Ready, 3 unconfirmed; {alarm}");
    assert_eq!((all.code, all.out.lines().last()), (Some(0), Some(last.as_str())), "{all:#?}");
}

#[test]
fn unreachable_agents_are_queried_through_the_api_server() {
    let scenario = Scenario::new([("a", says(&ready("a"))), ("b", says(&ready("b")))]);
    scenario.run(&["--via=proxy", "-o", "wide"]).has(0, &["proxy of nodegate-a  may get new traffic"]);
    // No agent listens at this address, and the pod is elsewhere.
    scenario.sim.set_addresses("a", &["::1"]);
    scenario.sim.set_addresses("b", &[""; 0]);
    scenario.run(&["-o", "wide"]).has(0, &["proxy of nodegate-a", "proxy of nodegate-b"]);
    scenario.run(&["--via=node", "b"]).has(3, &["the Node has no InternalIP"]);
    scenario.sim.delete("pods", "nodegate", "nodegate-b");
    let none = "no pod of an agent on this node in the namespace ";
    scenario.run(&["-o", "wide", "b"]).has(3, &[&format!("{none}nodegate (-n)")]);
    scenario.run(&["-o", "wide", "-n", "elsewhere", "a"]).has(3, &[&format!("{none}elsewhere (-n)")]);
}

#[test]
fn three_hanging_agents_of_a_thousand_are_rows_and_delay_no_others() {
    let scenario = Scenario::new((0..1000).map(|number: usize| {
        let node = format!("worker-{number}");
        let behaviour = match number {
            17 | 170 | 700 => hangs(),
            _ => says(&ready(&node)),
        };
        (node, behaviour)
    }));
    let began = Instant::now();
    // macOS allows 256 open files; connections to the API server may need as many as those to agents.
    let mut limited = scenario.equip(Command::new("prlimit"));
    let port = format!("--port={}", scenario.crowd.port());
    let program = env!("CARGO_BIN_EXE_kubectl-nodegate");
    limited.args(["--nofile=128", program, "--via=node", "--agent-timeout=20s", &port]);
    let said = Said::of(&limited.output().unwrap());
    assert_eq!(said.out.lines().last(), Some("1000 nodes: 997 Ready, 3 unknown"), "{:#?}", said.order());
    assert_eq!(said.order()[..4], ["worker-17", "worker-170", "worker-700", "worker-0"]);
    // The hanging agents take 20 s together; one after the other they would take three times as long.
    assert!(began.elapsed() < Duration::from_mins(1), "{:?}", began.elapsed());
}

/// Runs the plugin on a terminal, with `script` of util-linux.
fn on_a_terminal(scenario: &Scenario, environment: &str, args: &str) -> Command {
    let (program, port) = (env!("CARGO_BIN_EXE_kubectl-nodegate"), scenario.crowd.port());
    let line = format!("stty cols 120 rows 10; {environment} {program} --port={port} {args}");
    let mut script = scenario.equip(Command::new("script"));
    script.args(["-qec", &line, "/dev/null"]).env_remove("NO_COLOR").stdin(Stdio::null());
    script
}

/// The table at first, then a line for each change.
#[test]
fn a_pipe_gets_a_line_for_each_change() {
    let scenario = Scenario::new([("a", says(&ready("a"))), ("b", says(&ready("b")))]);
    let mut child = scenario.command(&["-w"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut next = |wanted: &str| lines.find(|line| line.contains(wanted)).unwrap();
    next("2 nodes: 2 Ready");
    scenario.crowd.now("b", says(&out("b", "draining", "Unschedulable", 0)));
    let line = next("Draining");
    assert!(line.ends_with("b  Draining  Unschedulable  acknowledged 1/1  sessions -"), "{line}");
    assert!(line.starts_with("20") && line.contains("Z  b  "), "{line}");
    scenario.crowd.now("b", sends(""));
    scenario.sim.delete("pods", "nodegate", "nodegate-b");
    next("b  Unknown  the connection was closed without an answer; perhaps --allow-from");
    drop(lines);
    scenario.crowd.now("b", says(&ready("b")));
    let status = until("the end", || child.try_wait().unwrap());
    assert!(status.code().is_some() || !status.success(), "{status}");
}

#[test]
fn a_terminal_gets_a_coloured_table_that_is_updated_in_place() {
    let scenario = one_of_each();
    let plain = on_a_terminal(&scenario, "NO_COLOR=1", "--via=node").output().unwrap();
    let text = String::from_utf8_lossy(&plain.stdout).into_owned();
    assert!(text.contains("✖ NotReady") && !text.contains('\u{1b}'), "{text}");
    let mut child = on_a_terminal(&scenario, "", "-w --via=node --agent-timeout=300ms");
    let mut child = child.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut next = |wanted: &str| lines.find(|line| line.contains(wanted)).unwrap();
    assert!(next("8 nodes").starts_with("\u{1b}[2J\u{1b}[H"));
    next("\u{1b}[31m✖ NotReady");
    next("and 3 more");
    scenario.crowd.now("worker-6", says(&out("worker-6", "not-ready", "KubeletNotReady", 1)));
    let again = next("2 NotReady");
    assert!(again.contains("\u{1b}[H"), "{again}");
    child.kill().unwrap();
    child.wait().unwrap();
}
