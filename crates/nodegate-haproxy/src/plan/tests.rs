//! The plan with random facts and with chosen ones: the same cluster gives the same file, HAProxy accepts it, and
//! no word from the API becomes a directive.

use crate::plan::desired::Desired;
use crate::plan::observed::{DELETING, Facts, Family, NodeOut, ObservedNode, ObservedService, PortFacts};
use crate::plan::planner::make_plan;
use crate::plan::policy::{CheckKind, CheckPolicy, PlanPolicy};
use crate::plan::render::{EMPTY_STATES, render};
use crate::plan::template::Template;
use nodegate_readiness::{EXCLUDE_LABEL, Verdict};
use nodegate_testbed::haproxy::check;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z0-9]{1,8}",
        "[a-z0-9]([-a-z0-9.]{0,10}[a-z0-9])?",
        Just("x\n  server evil 192.0.2.1:80".to_owned()),
        Just("\"x\" ${HOME} # y".to_owned()),
        any::<String>(),
    ]
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![select(vec!["10.0.0.0/8", "0.0.0.0/0", "10.0.0.1"]).prop_map(str::to_owned), word()]
}

fn node() -> impl Strategy<Value = ObservedNode> {
    let state = select(Verdict::ALL.to_vec());
    let kind = select(vec!["InternalIP", "ExternalIP", "Other"]).prop_map(str::to_owned);
    let addresses = vec((kind, any::<IpAddr>()), 0..4);
    (word(), state, option::of(value()), addresses).prop_map(|(name, state, chosen, addresses)| {
        ObservedNode { name, out: out_by(state), chosen, addresses, ..ObservedNode::default() }
    })
}

fn service() -> impl Strategy<Value = ObservedService> {
    // The API server refuses a Service that has a port of a protocol twice.
    let ports = btree_map((1_u16..100, select(vec!["TCP", "UDP"])), 0_u16..100, 0..4);
    let families = select(vec![vec![], vec![Family::V4], vec![Family::V6], vec![Family::V6, Family::V4]]);
    let texts = (word(), word(), option::of(value()), option::of(value()));
    (texts, 0_i64..5, any::<[bool; 3]>(), option::of(1_u16..9), families, ports).prop_map(
        |((namespace, name, address, range), created, flags, health_port, families, ports)| {
            let [local, sticky, asks_agents] = flags;
            let port = |((port, protocol), node_port): ((u16, &str), u16)| PortFacts {
                port,
                node_port,
                protocol: protocol.to_owned(),
            };
            ObservedService {
                source_ranges: range.into_iter().collect(),
                load_balancer: local,
                publish: Some(true).filter(|_| sticky),
                ports: ports.into_iter().map(port).collect(),
                namespace,
                name,
                created,
                local,
                sticky,
                asks_agents,
                health_port,
                address,
                families,
                ..ObservedService::default()
            }
        },
    )
}

fn facts() -> impl Strategy<Value = Facts> {
    (vec(node(), 0..8), vec(service(), 0..8)).prop_map(|(nodes, services)| Facts::of(nodes, services))
}

fn policy(kind: CheckKind) -> PlanPolicy {
    let forward = ["https=443:443@role=infra?node_ready", "http=80:80"].map(|text| text.parse().unwrap());
    let check = CheckPolicy { kind, ..CheckPolicy::default() };
    PlanPolicy { check, forward: forward.to_vec(), ..PlanPolicy::default() }
}

fn text(desired: &Desired) -> String {
    let timeouts = ["connect", "client", "server"].map(|name| (name.to_owned(), "5s".to_owned())).into();
    let config = Path::new("/tmp/nodegate-test/haproxy.cfg");
    String::from_utf8(render(&Template::default(), desired, &timeouts, config).0).unwrap()
}

const WORDS: &str = "# acl backend balance bind default_backend defaults frontend global hard-stop-after hash-type id http-check \
    load-server-state-from-file log mode mworker-max-reloads noreuseport option retries server server-state-file-name tcp-request \
    timeout use_backend";

const KINDS: [CheckKind; 3] = [CheckKind::Agent, CheckKind::Tcp, CheckKind::None];

proptest! {
    #[test]
    fn the_same_facts_give_the_same_lines_and_none_comes_from_the_api(facts in facts(), kind in select(KINDS.to_vec())) {
        let policy = policy(kind);
        let desired = make_plan(&facts, &policy);
        prop_assert_eq!(&desired, &make_plan(&facts.clone(), &policy));
        for line in text(&desired).lines() {
            let plain = |c: char| c.is_ascii_graphic() || c == ' ';
            prop_assert!(line.starts_with('#') || line.chars().all(plain), "{line:?}");
            let word = line.trim_start().split(' ').next().unwrap_or_default();
            prop_assert!(line.is_empty() || WORDS.split(' ').any(|known| known == word), "{line:?}");
        }
        let ports: BTreeSet<u16> = desired.frontends.values().map(|frontend| frontend.listen.port).collect();
        prop_assert!(ports.len() == desired.frontends.len() && !ports.contains(&0), "no two share a socket");
        for (name, backend) in &desired.backends {
            prop_assert_eq!(name, &backend.name);
            prop_assert!(backend.servers.is_sorted_by(|a, b| a.name < b.name));
        }
        for (name, frontend) in &desired.frontends {
            for name in std::iter::once(&frontend.backend).chain(&frontend.last_resort) {
                prop_assert!(desired.backends.contains_key(name), "{name}");
            }
            for server in desired.backends[name].servers.iter() {
                let node = desired.nodes.iter().find(|node| node.name == server.name).unwrap();
                prop_assert_eq!(server.weight > 0, node.out.is_none(), "a node that is out gets nothing new");
            }
        }
    }
}

#[test]
fn the_oldest_service_has_a_port_until_it_is_being_deleted() {
    let aged = |(name, created)| ObservedService { created, ..service_of(name, 443) };
    for (created, owner, why) in [
        ([3, 1, 1], "shop/b", "wants port 443, which shop/b has had for longer"),
        ([3, DELETING, 4], "shop/a", "is being deleted, so shop/a has its port 443"),
        ([DELETING; 3], "shop/a", "is being deleted"),
    ] {
        let services = ["a", "b", "c"].into_iter().zip(created).map(aged);
        let desired = make_plan(&Facts::of([], services), &PlanPolicy::default());
        assert!(desired.frontends.values().map(|frontend| &*frontend.about).eq([owner]));
        assert!(desired.problems.iter().any(|problem| problem.text.contains(why)), "{:?}", desired.problems);
    }
    let desired = make_plan(&Facts::of([], [service_of("a", 443)]), &policy(CheckKind::Tcp));
    let why = "wants port 443, which forward https has";
    assert!(desired.problems.iter().any(|problem| problem.text.contains(why)), "{:?}", desired.problems);
}

/// Plans one Service. Returns the number of its frontends, and its problems.
fn plan_one(service: ObservedService) -> (usize, String) {
    let desired = make_plan(&Facts::of([], [service]), &PlanPolicy::default());
    let problems = desired.problems.iter().filter(|problem| problem.unpublished);
    let problems: Vec<String> =
        problems.map(|problem| format!("{}: {}", problem.kind, problem.text)).collect();
    (desired.frontends.len(), problems.join("\n"))
}

#[test]
fn what_haproxy_cannot_forward_or_check_is_named_and_not_published() {
    let local = |health_port, asks_agents| {
        let service = service_of("web", 80);
        plan_one(ObservedService { local: true, health_port, asks_agents, ..service })
    };
    for published in [local(None, true), local(Some(31_000), false), local(Some(31_000), true)] {
        assert_eq!(published, (1, String::new()));
    }
    let port = |node_port, protocol: &str| {
        let ports = vec![PortFacts { port: 53, node_port, protocol: protocol.to_owned() }];
        plan_one(ObservedService { ports, ..service_of("dns", 53) })
    };
    for ((published, why), starts, ends) in [
        (local(None, false), "local-check: ", "--watch-service of the agents"),
        (port(30_053, "UDP"), "protocol: ", "which HAProxy does not forward"),
        (
            port(0, "TCP"),
            "node-port: ",
            "(allocateLoadBalancerNodePorts: false), and nodes are reached by no other",
        ),
    ] {
        assert!(published == 0 && why.starts_with(starts) && why.ends_with(ends), "{why}");
    }
}

pub(crate) fn service_of(name: &str, port: u16) -> ObservedService {
    ObservedService {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        load_balancer: true,
        ports: vec![PortFacts { port, node_port: 30_000 + port, protocol: "TCP".to_owned() }],
        ..ObservedService::default()
    }
}

fn out_by(verdict: Verdict) -> NodeOut {
    (verdict != Verdict::Ready).then(|| (verdict, "x".to_owned()))
}

pub(crate) fn node_of(name: &str, address: &str, state: Verdict, role: &str) -> ObservedNode {
    ObservedNode {
        name: name.to_owned(),
        out: out_by(state),
        labels: [("role".to_owned(), role.to_owned())].into(),
        addresses: vec![("InternalIP".to_owned(), address.parse().unwrap())],
        ..ObservedNode::default()
    }
}

fn cluster() -> Facts {
    let mut labelled = node_of("worker-4", "10.0.0.4", Verdict::Draining, "infra");
    labelled.labels.insert(EXCLUDE_LABEL.to_owned(), String::new());
    labelled.is_out_by_label = true;
    let nodes = [
        node_of("worker-1", "10.0.0.1", Verdict::Ready, "infra"),
        node_of("worker-2", "10.0.0.2", Verdict::Draining, "infra"),
        // The same machine under an older name.
        node_of("old-1", "10.0.0.1", Verdict::NotReady, "infra"),
        node_of("worker-3", "fd00::3", Verdict::Ready, "app"),
        labelled,
    ];
    let services = [
        service_of("web", 8080),
        ObservedService {
            local: true,
            health_port: Some(31_000),
            source_ranges: vec!["10.0.0.0/8".to_owned()],
            ..service_of("local", 8443)
        },
        ObservedService { local: true, asks_agents: true, ..service_of("asked", 8444) },
        ObservedService { sticky: true, ..service_of("app", 8081) },
    ];
    Facts::of(nodes, services)
}

#[test]
fn seventeen_services_that_ask_for_the_agents_are_one_too_many() {
    let asking = |index: u16| {
        let service = service_of(&format!("s{index:02}"), 9000 + index);
        let (created, health_port) = (16 - i64::from(index), Some(32_000));
        ObservedService { local: true, created, health_port, asks_agents: true, ..service }
    };
    let desired = make_plan(&Facts::of([], (0..17).map(asking)), &PlanPolicy::default());
    let paths = desired.backends.values().filter_map(|backend| backend.own_check()?.path.as_ref());
    assert_eq!(paths.filter(|path| path.ends_with("?drain=503")).count(), 16);
    let problems: Vec<_> = desired.problems.iter().map(|problem| (problem.kind, &*problem.about)).collect();
    assert_eq!(problems, [("local-check", "shop/s00")]);
}

#[test]
fn the_last_resort_takes_labelled_nodes_before_drained_ones() {
    let mut facts = cluster();
    facts.nodes.retain(|name, _| ["worker-2", "worker-4"].contains(&name.as_str()));
    let weights = |facts: &Facts, kind| {
        let desired = make_plan(facts, &policy(kind));
        let weights = |name: &String| {
            let servers = desired.backends[name].servers.iter();
            servers.map(|server| format!("{}={}", server.name, server.weight)).collect::<Vec<_>>().join(" ")
        };
        let names = &desired.frontends["nodegate_shop_web_8080"].last_resort;
        names.iter().map(weights).collect::<Vec<_>>()
    };
    let (labelled, all) = ("worker-4=100", "worker-2=100 worker-4=100");
    for kind in [CheckKind::Agent, CheckKind::Tcp] {
        assert_eq!(weights(&facts, kind), [labelled, all, "worker-2=0 worker-4=100"]);
    }
    assert_eq!(weights(&facts, CheckKind::None), [labelled, "worker-2=0 worker-4=100"]);
    // A drain takes it out there, too.
    Arc::make_mut(facts.nodes.get_mut("worker-4").unwrap()).is_out_by_label = false;
    assert_eq!(weights(&facts, CheckKind::Agent), ["worker-4=0", all, all]);
    facts.nodes.remove("worker-4");
    assert_eq!(weights(&facts, CheckKind::None), ["worker-2=100"]);
}

/// Compares the generated file with the golden one. `GOLDEN=write` writes it.
#[test]
fn the_file_of_a_small_cluster_is_as_expected_and_haproxy_accepts_all_kinds() {
    let dir = tempfile::tempdir().unwrap();
    for kind in KINDS {
        let desired = make_plan(&cluster(), &policy(kind));
        let (text, problem) = (text(&desired), desired.problems.first().unwrap());
        assert!(problem.about == "old-1" && problem.text.contains("address of worker-1"), "{problem:?}");
        let (file, states) = (dir.path().join("haproxy.cfg"), dir.path().join("states"));
        std::fs::write(&states, EMPTY_STATES).unwrap();
        let here = text.replace("/tmp/nodegate-test/haproxy.cfg.states", &states.display().to_string());
        // A warning is an error here.
        std::fs::write(&file, format!("global\n  zero-warning\n{here}")).unwrap();
        check(&file).unwrap();
        if kind == CheckKind::Agent {
            let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/haproxy/golden/haproxy.cfg");
            if std::env::var("GOLDEN").is_ok_and(|word| word == "write") {
                std::fs::write(golden, &text).unwrap();
            }
            assert_eq!(text, std::fs::read_to_string(golden).unwrap(), "GOLDEN=write writes it");
        }
    }
}
