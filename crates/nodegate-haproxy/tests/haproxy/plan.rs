//! The core with random facts: the same cluster gives the same plan, no Service loses its port, and no word
//! from the API becomes a directive of HAProxy.

use crate::plan_lines::is_a_line_of_ours;
use nodegate_haproxy::haproxy::state_file::{Known, Servers, compose};
use nodegate_haproxy::haproxy::validate::validate;
use nodegate_haproxy::plan::annotation::{Mode, SendProxy};
use nodegate_haproxy::plan::desired::{Desired, Distance, PlannedState};
use nodegate_haproxy::plan::facts::{
    Facts, Family, HeldPort, NodeState, ObservedNode, ObservedService, PortFacts,
};
use nodegate_haproxy::plan::holds::{HOLD, Hold, Holds};
use nodegate_haproxy::plan::planner::plan;
use nodegate_haproxy::plan::policy::{MaxRemoval, PlanPolicy, Publish};
use nodegate_haproxy::plan::render::{DEFAULT_HEAD, Template, render};
use nodegate_haproxy::plan::stand_in::keeping;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

/// Generates names and values, both honest and hostile ones.
fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z0-9]{1,8}",
        "[a-z0-9]([-a-z0-9.]{0,10}[a-z0-9])?",
        Just("x\n  server evil 192.0.2.1:80".to_owned()),
        Just("{{ 7 * 7 }}".to_owned()),
        any::<String>(),
    ]
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("http".to_owned()),
        Just("leastconn".to_owned()),
        Just("uri".to_owned()),
        Just("v2".to_owned()),
        Just("main=8080,80=81".to_owned()),
        Just("10.0.0.0/8".to_owned()),
        Just("0.0.0.0/0".to_owned()),
        Just("!spare,role in (a,b)".to_owned()),
        (0_u32..70_000).prop_map(|port| port.to_string()),
        word(),
    ]
}

fn node() -> impl Strategy<Value = ObservedNode> {
    let state = prop_oneof![Just(NodeState::Ready), Just(NodeState::Draining), Just(NodeState::NotReady)];
    let kind =
        prop_oneof![Just("InternalIP".to_owned()), Just("ExternalIP".to_owned()), Just("Other".to_owned())];
    let address = any::<(bool, u32, u128)>().prop_map(|(v4, low, high)| -> IpAddr {
        if v4 { IpAddr::from(low.to_be_bytes()) } else { IpAddr::from(high.to_be_bytes()) }
    });
    (word(), state, proptest::option::of(value()), proptest::collection::vec((kind, address), 0..4)).prop_map(
        |(name, state, weight, addresses)| ObservedNode {
            name,
            state,
            weight,
            addresses,
            ..ObservedNode::default()
        },
    )
}

/// Removes repeated ports, because the API server refuses a Service that has a port of a protocol twice
/// (`ValidateService`).
fn each_port_once(ports: Vec<PortFacts>) -> Vec<PortFacts> {
    let mut seen = BTreeSet::new();
    ports.into_iter().filter(|port| seen.insert((port.protocol.clone(), port.port))).collect()
}

fn service() -> impl Strategy<Value = ObservedService> {
    let port = (proptest::option::of(Just("main".to_owned())), 1_u16..100, 0_u16..100, any::<bool>())
        .prop_map(|(name, port, node_port, tcp)| PortFacts {
            name,
            port,
            node_port,
            protocol: if tcp { "TCP" } else { "UDP" }.to_owned(),
        });
    let key = prop_oneof![
        Just("port"),
        Just("mode"),
        Just("balance"),
        Just("send-proxy"),
        Just("ignore"),
        Just("publish"),
        Just("nodes"),
        Just("bind"),
        Just("ranges"),
    ];
    let families = prop_oneof![
        Just(vec![]),
        Just(vec![Family::V4]),
        Just(vec![Family::V6]),
        Just(vec![Family::V6, Family::V4])
    ];
    (
        (word(), word(), 0_i64..5, any::<bool>(), proptest::option::of(1_u16..9)),
        families,
        proptest::collection::vec(port, 0..4).prop_map(each_port_once),
        proptest::collection::btree_map(key.prop_map(str::to_owned), value(), 0..4),
    )
        .prop_map(|((namespace, name, created, local, health_port), families, ports, annotations)| {
            ObservedService {
                source_ranges: annotations.get("ranges").map_or_else(Vec::new, |text| vec![text.clone()]),
                load_balancer: local,
                sticky: health_port == Some(1),
                namespace,
                name,
                created,
                local,
                health_port,
                families,
                ports,
                annotations,
                ..ObservedService::default()
            }
        })
}

prop_compose! {
    fn facts()(
        nodes in proptest::collection::vec(node(), 0..8),
        services in proptest::collection::vec(service(), 0..8),
    ) -> Facts {
        Facts {
            nodes: nodes.into_iter().map(|node| (node.name.clone(), Arc::new(node))).collect(),
            services: services.into_iter().map(|s| ((s.namespace.clone(), s.name.clone()), Arc::new(s))).collect(),
            ..Facts::default()
        }
    }
}

prop_compose! {
    /// Generates a few tenants who want the same few ports.
    fn tenants()(
        wants in proptest::collection::btree_map(("[abc]", "[xy]"), (1_u16..4, 0_i64..5), 0..5),
    ) -> Facts {
        let service = |((namespace, name), (port, created)): ((String, String), (u16, i64))| {
            let port = PortFacts { name: None, port, node_port: 30_000, protocol: "TCP".to_owned() };
            let key = (namespace.clone(), name.clone());
            (key, Arc::new(ObservedService { namespace, name, created, ports: vec![port], ..ObservedService::default() }))
        };
        Facts { services: wants.into_iter().map(service).collect(), ..Facts::default() }
    }
}

fn text(desired: &Desired) -> String {
    let policy = PlanPolicy::default();
    render(&Template::Head(String::new()), desired, &policy.check, Some("/s")).unwrap()
}

proptest! {
    #[test]
    fn nothing_from_the_api_becomes_a_line_of_its_own(facts in facts()) {
        let desired = plan(&facts, &PlanPolicy::default());
        for line in text(&desired).lines() {
            prop_assert!(is_a_line_of_ours(line.trim_start()), "{line:?}");
        }
    }

    #[test]
    fn the_same_facts_give_the_same_bytes_and_nobody_shares_a_port(facts in facts()) {
        let policy = PlanPolicy { reserved: BTreeSet::from([22]), ..PlanPolicy::default() };
        let desired = plan(&facts, &policy);
        prop_assert_eq!(&desired, &plan(&facts.clone(), &policy));
        let ports: BTreeSet<u16> = desired.frontends.iter().map(|frontend| frontend.port).collect();
        prop_assert_eq!(ports.len(), desired.frontends.len());
        prop_assert!(!ports.contains(&22) && !ports.contains(&0));
        // HAProxy 3.3 and later refuse a frontend and a backend of the same name.
        let names = desired.frontends.iter().flat_map(|frontend| [&frontend.name, &frontend.backend]);
        let names: BTreeSet<&str> = names.map(String::as_str).chain([desired.names.nodes()]).collect();
        prop_assert_eq!(names.len(), 2 * desired.frontends.len() + 1);
        prop_assert!(desired.frontends.iter().all(|f| f.servers.is_sorted_by(|a, b| a.name < b.name)));
        prop_assert!(desired.nodes.is_sorted_by(|a, b| a.name < b.name));
    }

    #[test]
    fn nobody_gets_a_socket_of_another_or_one_that_it_may_not_have(
        facts in facts(), owner in word(), port in 1_u16..100, high in 40_u16..90,
    ) {
        let ip = |last| IpAddr::from([10, 0, 0, last]);
        let policy = PlanPolicy {
            publish: Publish::All,
            bind: vec![ip(1)],
            named: vec![("http".to_owned(), vec![ip(2), ip(3)]), ("uri".to_owned(), vec![ip(4)])],
            bind_allow: vec![("*".to_owned(), "uri".to_owned()), ("a".to_owned(), "http".to_owned())],
            ports: vec![("*".to_owned(), 1..=high), ("a".to_owned(), 1..=100)],
            ..PlanPolicy::default()
        };
        let held = HeldPort { port, addresses: vec![ip(1)], namespace: owner.clone(), service: "gone".to_owned() };
        let desired = plan(&Facts { held_ports: vec![held], ..facts }, &policy);
        let mut sockets = BTreeSet::new();
        for frontend in &desired.frontends {
            for address in &frontend.addresses {
                prop_assert!(sockets.insert((*address, frontend.port)), "{} twice", frontend.port);
                prop_assert!(policy.addresses().any(|known| known == *address));
                let of_another = (*address, frontend.port) == (ip(1), port) && frontend.namespace != owner;
                prop_assert!(!of_another, "a held port was given away");
            }
            prop_assert!(frontend.port <= high || frontend.namespace == "a");
            prop_assert!(!frontend.addresses.contains(&ip(2)) || frontend.namespace == "a");
        }
    }

    #[test]
    fn a_port_is_held_for_its_time_and_no_longer(
        changes in proptest::collection::vec((tenants(), 0_i64..200), 1..12),
    ) {
        let policy = PlanPolicy { publish: Publish::All, ..PlanPolicy::default() };
        let (mut holds, mut now) = (Holds::default(), 1_000_000);
        // For each port: the last Service that had it, and the time when that Service was seen to be gone.
        let mut last: BTreeMap<u16, (HeldPort, Option<i64>)> = BTreeMap::new();
        for (mut facts, wait) in changes {
            now += wait;
            holds.expire(now);
            facts.held_ports = holds.reserved(&facts);
            let desired = plan(&facts, &policy);
            holds.learn(&desired, &facts, now);
            for (port, (owner, gone)) in &mut last {
                let there = facts.services.contains_key(&(owner.namespace.clone(), owner.service.clone()));
                let listens = desired.frontends.iter().any(|frontend| {
                    (frontend.port, &frontend.namespace, &frontend.service)
                        == (*port, &owner.namespace, &owner.service)
                });
                // A Service that exists and listens elsewhere has given up its port.
                gone.get_or_insert(match (there, listens) {
                    (true, true) => continue,
                    (true, false) => now - HOLD,
                    (false, _) => now,
                });
                let Some(new) = desired.frontends.iter().find(|frontend| frontend.port == *port) else { continue };
                let free = new.namespace == owner.namespace || gone.is_some_and(|gone| now >= gone + HOLD);
                prop_assert!(free, "{port} is {owner:?}'s, and {}/{} has it", new.namespace, new.service);
            }
            for frontend in &desired.frontends {
                let (port, addresses) = (frontend.port, frontend.addresses.clone());
                let (namespace, service) = (frontend.namespace.clone(), frontend.service.clone());
                last.insert(port, (HeldPort { port, addresses, namespace, service }, None));
            }
            let text = serde_json::to_string(&holds.all()).unwrap();
            prop_assert_eq!(&Holds::new(serde_json::from_str::<Vec<Hold>>(&text).unwrap()), &holds);
        }
        holds.learn(&Desired::default(), &Facts::default(), now);
        holds.expire(now + HOLD);
        prop_assert_eq!(holds.all(), vec![]);
    }

    #[test]
    fn what_has_to_wait_stays_as_it_runs_and_keeps_nothing_else(
        before in facts(), after in facts(), choice in any::<u64>(),
    ) {
        let policy = PlanPolicy { publish: Publish::All, ..PlanPolicy::default() };
        // The common case: the same Services in another state.
        let mut next = before.clone();
        next.nodes.extend(after.nodes.clone());
        for (index, (key, service)) in before.services.iter().enumerate() {
            match choice >> (2 * index) & 3 {
                0 => drop(next.services.remove(key)),
                1 => {
                    let mut other = ObservedService::clone(service);
                    other.annotations.insert("balance".to_owned(), "leastconn".to_owned());
                    other.ports.iter_mut().for_each(|port| port.node_port += 1);
                    next.services.insert(key.clone(), Arc::new(other));
                }
                _ => {}
            }
        }
        next.services.extend(after.services.clone());
        let (live, desired) = (plan(&before, &policy), plan(&next, &policy));
        let none = keeping(&desired, &live, &BTreeSet::new());
        prop_assert_eq!(&none.frontends, &desired.frontends);
        let changed = desired.changed(&live);
        prop_assert_eq!(changed.is_empty(), desired.distance(&live) != Distance::Structure);
        let waiting: BTreeSet<String> = changed.values().flatten().cloned().collect();
        let kept = keeping(&desired, &live, &waiting);
        // All changes that have to wait are held back, so none is left that needs a reload.
        prop_assert!(kept.distance(&live) != Distance::Structure, "{:?}", kept.changed(&live));
        prop_assert_eq!(&kept.nodes, &desired.nodes);
        let names = |desired: &Desired| desired.last_resort.iter().map(|b| b.name.clone()).collect::<BTreeSet<_>>();
        let needed: BTreeSet<String> = kept.frontends.iter().flat_map(|f| f.last_resort.clone()).collect();
        prop_assert_eq!(names(&kept), needed);
        // Also if only some changes wait, no two frontends share a socket.
        let some: BTreeSet<String> = waiting.iter().step_by(2).cloned().collect();
        let kept = keeping(&desired, &live, &some);
        for (at, one) in kept.frontends.iter().enumerate() {
            prop_assert!(kept.frontends.iter().skip(at + 1).all(|two| !one.shares_a_socket(two)));
            prop_assert!(one.servers.iter().all(|server| kept.node(&server.name).is_some()));
        }
        prop_assert!(kept.frontends.is_sorted_by(|a, b| a.backend < b.backend));
    }

    #[test]
    fn a_younger_service_takes_nothing_from_an_older_one(facts in facts(), young in service()) {
        let before = plan(&facts, &PlanPolicy::default());
        let mut more = facts;
        let young = ObservedService { created: 100, ..young };
        let key = (young.namespace.clone(), young.name.clone());
        prop_assume!(!more.services.contains_key(&key));
        more.services.insert(key, Arc::new(young));
        let after = plan(&more, &PlanPolicy::default());
        for frontend in &before.frontends {
            prop_assert!(after.frontends.contains(frontend), "{} is gone", frontend.name);
        }
    }

    #[test]
    fn a_change_of_state_alone_changes_no_byte(facts in facts(), state in 0..3) {
        let policy = PlanPolicy { max_removal: MaxRemoval(100), ..PlanPolicy::default() };
        let state = [NodeState::Ready, NodeState::Draining, NodeState::NotReady][usize::try_from(state).unwrap()];
        let mut other = facts.clone();
        for node in other.nodes.values_mut() {
            *node = Arc::new(ObservedNode { state, ..ObservedNode::clone(node) });
        }
        let (a, b) = (plan(&facts, &policy), plan(&other, &policy));
        prop_assert_eq!(text(&a), text(&b));
        prop_assert_eq!(a.distance(&b), Distance::States);
        prop_assert!(a.same_text(&b));
    }

    #[test]
    fn the_mass_of_nodes_is_never_put_under_maintenance(facts in facts()) {
        let desired = plan(&facts, &PlanPolicy::default());
        let down = desired.nodes.iter().filter(|node| node.state == PlannedState::Maint).count();
        prop_assert!(down * 2 <= facts.nodes.len());
    }
}

fn story() -> Facts {
    let node = |name: &str, state, addresses: &[&str]| ObservedNode {
        name: name.to_owned(),
        state,
        weight: (name == "b").then(|| "50".to_owned()),
        addresses: addresses.iter().map(|ip| ("InternalIP".to_owned(), ip.parse().unwrap())).collect(),
        ..ObservedNode::default()
    };
    let nodes = [
        node("a", NodeState::Ready, &["10.0.0.1", "fd00::1"]),
        node("b", NodeState::Draining, &["10.0.0.2", "fd00::2"]),
        node("c", NodeState::Ready, &["10.0.0.3"]),
    ];
    let port = |port, node_port, protocol: &str| PortFacts {
        name: None,
        port,
        node_port,
        protocol: protocol.to_owned(),
    };
    let service = |name: &str, ports: Vec<PortFacts>, families: Vec<Family>, annotations: &[(&str, &str)]| {
        ObservedService {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            load_balancer: true,
            ports,
            families,
            annotations: annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            ..ObservedService::default()
        }
    };
    let mut local = service("local", vec![port(8443, 30_443, "TCP")], vec![Family::V6, Family::V4], &[]);
    (local.local, local.health_port) = (true, Some(31_000));
    let web = [("mode", "80=http"), ("balance", "80=uri"), ("send-proxy", "443=v2"), ("port", "80=8080")];
    let services = [
        service("web", vec![port(443, 30_001, "TCP"), port(80, 30_000, "TCP")], vec![Family::V4], &web),
        local,
        service("dns", vec![port(53, 30_053, "UDP")], vec![Family::V4], &[]),
        service("hidden", vec![port(81, 30_081, "TCP")], vec![Family::V4], &[("ignore", "true")]),
    ];
    Facts {
        nodes: nodes.into_iter().map(|node| (node.name.clone(), Arc::new(node))).collect(),
        services: services
            .into_iter()
            .map(|s| ((s.namespace.clone(), s.name.clone()), Arc::new(s)))
            .collect::<BTreeMap<_, _>>(),
        ..Facts::default()
    }
}

#[test]
fn a_whole_configuration_looks_like_this() {
    let desired = plan(&story(), &PlanPolicy::default());
    let problems: Vec<String> =
        desired.problems.iter().map(|p| format!("{} {}: {}", p.kind, p.about, p.text)).collect();
    assert_eq!(problems, ["protocol shop/dns: port 53 is not TCP, which HAProxy does not forward"]);
    assert_eq!(desired.frontends[1].send_proxy, SendProxy::V2);
    assert_eq!(desired.frontends[2].mode, Mode::Http);
    let golden = include_str!("golden/haproxy.cfg");
    let text = text(&desired);
    assert!(text == golden, "tests/golden/haproxy.cfg is now:\n{text}");
}

#[test]
fn the_distance_tells_what_it_takes() {
    let before = plan(&story(), &PlanPolicy::default());
    let mut facts = story();
    let a = facts.nodes.remove("a").unwrap();
    let without = plan(&facts, &PlanPolicy::default());
    let set = |names: &[&str]| -> BTreeSet<String> { names.iter().map(|name| (*name).to_owned()).collect() };
    let servers =
        |added, removed, moved| Distance::Servers { added: set(added), removed: set(removed), moved };
    assert_eq!(without.distance(&before), servers(&[], &["a"], false));
    assert_eq!(before.distance(&without), servers(&["a"], &[], false));
    let moved =
        ObservedNode { addresses: vec![("InternalIP".to_owned(), [9, 9, 9, 9].into())], ..(*a).clone() };
    facts.nodes.insert("a".to_owned(), Arc::new(moved));
    // The address of the other family is gone, so a Service has lost a server of a remaining node.
    assert_eq!(plan(&facts, &PlanPolicy::default()).distance(&before), servers(&[], &[], true));
    let mut ports = story();
    let web = ports.services.get_mut(&("shop".to_owned(), "web".to_owned())).unwrap();
    Arc::make_mut(web).ports[0].node_port = 30_999;
    assert_eq!(plan(&ports, &PlanPolicy::default()).distance(&before), servers(&[], &[], true));
    let mut fewer = story();
    fewer.services.remove(&("shop".to_owned(), "web".to_owned()));
    assert_eq!(plan(&fewer, &PlanPolicy::default()).distance(&before), Distance::Structure);
}

#[test]
fn a_template_places_the_sections_and_a_broken_one_says_where() {
    let desired = plan(&story(), &PlanPolicy::default());
    let check = PlanPolicy::default().check;
    let own = "{% for f in frontends %}{{ f.frontend }}:{{ f.backend }}:{{ f.servers | length }} {% endfor %}\n{% include \"sections\" %}";
    let text = render(&Template::Jinja(own.to_owned()), &desired, &check, None).unwrap();
    let pair = |backend| format!("{backend}_frontend:{backend}:3 ");
    let pairs =
        ["nodegate_shop_local_8443", "nodegate_shop_web_443", "nodegate_shop_web_80"].map(pair).concat();
    let below = text.split_once('\n').unwrap().1;
    assert!(below.starts_with(&format!("{pairs}\n# --- Gen")), "{text}");
    for (broken, says) in [
        ("a\n{{ nope }}", "line 2"),
        (
            "{% for x in range(100000000) %}{% for y in range(100000000) %}.{% endfor %}{% endfor %}",
            "template",
        ),
        ("{% if %}", "line 1"),
        ("{{ \"x\" | socket(1) }}", "IP address"),
    ] {
        let error =
            render(&Template::Jinja(broken.to_owned()), &desired, &check, None).unwrap_err().to_string();
        assert!(error.contains(says), "{broken}: {error}");
    }
}

/// Returns the output of `haproxy -c` for this configuration.
fn haproxy_says(file: &Path, text: &str) -> String {
    std::fs::write(file, text).unwrap();
    let haproxy = std::process::Command::new("haproxy").arg("-c").arg("-f").arg(file).output();
    let output = haproxy.expect("haproxy runs (hack/install-tools)");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

#[test]
fn haproxy_can_read_the_example_for_a_control_plane() {
    let dir = tempfile::tempdir().unwrap();
    let mut facts = story();
    let labels = BTreeMap::from([("node-role.kubernetes.io/control-plane".to_owned(), String::new())]);
    let node = ObservedNode { labels: Arc::new(labels), ..ObservedNode::clone(&facts.nodes["b"]) };
    facts.nodes.insert("b".to_owned(), Arc::new(node));
    let policy = PlanPolicy::default();
    let example =
        Template::Jinja(include_str!("../../../../examples/haproxy/control-plane.cfg.j2").to_owned());
    let text = render(&example, &plan(&facts, &policy), &policy.check, None).unwrap();
    assert!(text.contains("  server b 10.0.0.2:6443 check check-ssl verify none\n\n"), "{text}");
    assert_eq!(text.matches(":6443 check").count(), 1, "{text}");
    let said = haproxy_says(&dir.path().join("haproxy.cfg"), &text);
    assert!(!said.contains("WARN"), "{said}");
}

/// HAProxy warns of everything that its next version refuses.
#[test]
fn haproxy_warns_of_nothing_and_takes_the_states() {
    let dir = tempfile::tempdir().unwrap();
    let (file, states) = (dir.path().join("haproxy.cfg"), dir.path().join("states"));
    let mut facts = story();
    let down = ObservedNode { state: NodeState::NotReady, ..ObservedNode::clone(&facts.nodes["c"]) };
    facts.nodes.insert("c".to_owned(), Arc::new(down));
    let (policy, head) = (PlanPolicy::default(), Template::Head(DEFAULT_HEAD.to_owned()));
    let desired = plan(&facts, &policy);
    let said = haproxy_says(&file, &render(&head, &desired, &policy.check, None).unwrap());
    assert!(!said.contains("WARN") && !said.contains("ALERT"), "{said}");
    let (live, ours, asked) = (Servers::new(), true, true);
    let known = Known { live: &live, ours, asked };
    std::fs::write(&states, compose(&desired, &known, &policy.check)).unwrap();
    let said = haproxy_says(&file, &render(&head, &desired, &policy.check, states.to_str()).unwrap());
    for backend in ["nodegate_nodes", "nodegate_shop_local_8443"] {
        assert!(said.contains(&format!("Server {backend}/c is DOWN, changed from server-state")), "{said}");
    }
    for fault in ["corrupted", "partially", "failed", "invalid", "can't find"] {
        assert!(!said.contains(fault), "{said}");
    }
}

#[tokio::test]
async fn haproxy_itself_can_read_it() {
    let mut policy = PlanPolicy::default();
    let dir = tempfile::tempdir().unwrap();
    for bind in [vec![], vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()]] {
        policy.bind = bind;
        let head = Template::Head(DEFAULT_HEAD.to_owned());
        let text = render(&head, &plan(&story(), &policy), &policy.check, None).unwrap();
        let file = dir.path().join("haproxy.cfg");
        std::fs::write(&file, text).unwrap();
        validate("haproxy".as_ref(), &[], &file).await.unwrap();
    }
    std::fs::write(dir.path().join("haproxy.cfg"), "nonsense\n").unwrap();
    let error =
        validate("haproxy".as_ref(), &[], &dir.path().join("haproxy.cfg")).await.unwrap_err().to_string();
    assert!(error.contains("unknown keyword 'nonsense'"), "{error}");
}
