//! Every route, as a load balancer, a kubelet, Prometheus and a person use it.

use crate::scenario::{Running, Scenario, cordoned, facts, local_result, ready};
use nodegate_readiness::check::KUBE_PROXY;
use nodegate_readiness::{ConditionStatus, EXCLUDE_LABEL, Node, NodeFacts, Outcome, Reason};
use nodegate_server::Activate;
use std::sync::Arc;
use std::time::Duration;

/// The states of a node with its answers.
const ANSWERS: &str = include_str!("routes.txt");

/// Starts a server for a node in this state, with two watched Services, and a kube-proxy of unknown state.
fn serve(state: &str) -> Running {
    let services = vec![("ingress/web", 2), ("ingress/empty", 0)];
    let usual = Scenario { services, local: vec![KUBE_PROXY], ..Scenario::default() };
    let scenario = match state {
        "ready" => usual,
        "not ready" => {
            Scenario { node: Node::Present(facts(ConditionStatus::False, "KubeletNotReady")), ..usual }
        }
        "cordoned" => Scenario { node: Node::Present(cordoned()), ..usual },
        "without a name" => Scenario { node_name: None, ..usual },
        "with a stuck loop" => Scenario { loops: Duration::from_secs(31), ..usual },
        other => panic!("{other}"),
    };
    scenario.serve()
}

/// Returns true if the text matches; `…` matches any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('…');
    let start = parts.next().and_then(|start| text.strip_prefix(start));
    let end = parts.fold(start, |rest, part| Some(rest?.split_once(part)?.1));
    end.is_some_and(|rest| rest.is_empty() || pattern.ends_with('…'))
}

#[test]
fn each_state_of_the_node_has_its_answers() {
    let mut server = None;
    for line in ANSWERS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let Some(row) = line.strip_prefix("  ") else {
            server = Some(serve(line));
            continue;
        };
        let (target, answer) = row.split_once(" = ").unwrap();
        let (status, body) = answer.split_once(' ').unwrap_or((answer, ""));
        let reply = server.as_ref().unwrap().get(target);
        assert!(reply.status.to_string() == status && matches(body, &reply.body), "{row}: {reply:?}");
    }
}

#[test]
fn answers_have_a_type_and_a_date_and_are_not_stored() {
    let server = Scenario::default().serve();
    let text = "text/plain; charset=utf-8";
    for (target, kind) in [("/health", "application/json"), ("/nodecheck", text), ("/bogus", text)] {
        let response = server.get(target);
        assert_eq!(response.header("content-type"), Some(kind), "{target}");
        assert_eq!(response.header("cache-control"), Some("no-store"), "{target}");
        assert!(response.header("date").is_some(), "{target}");
    }
    assert_eq!(server.get(&format!("/health?{}", "a".repeat(2049))).status, 400);
}

#[test]
fn methods() {
    let server = Scenario::default().serve();
    for target in
        ["/health", "/nodecheck", "/nodename", "/livez", "/readyz", "/status.json", "/wait", "/", "/bogus"]
    {
        let get = server.get(target);
        let head = server.request("HEAD", target);
        assert_eq!((head.status, head.body.as_str()), (get.status, ""), "{target}");
        assert_eq!(head.header("content-type"), get.header("content-type"), "{target}");
        if !matches!(target, "/status.json" | "/") {
            // These two contain ages, which may grow by a digit.
            assert_eq!(head.header("content-length"), get.header("content-length"), "{target}");
        }
        assert!(head.header("content-length").is_some(), "{target}");
        assert_eq!(server.request("OPTIONS", target).header("allow"), Some("GET, HEAD, OPTIONS"));
        for method in ["POST", "PUT", "DELETE", "PATCH", "TRACE", "BREW"] {
            let refused = server.request(method, target);
            assert_eq!(refused.status, 405, "{method} {target}");
            assert_eq!(refused.header("allow"), Some("GET, HEAD, OPTIONS"));
            assert_eq!(refused.header("cache-control"), Some("no-store"));
        }
    }
}

#[test]
fn services_answer_as_kube_proxy_does() {
    let server = serve("ready");
    let web = server.get("/services/ingress/web");
    assert_eq!(web.status, 200);
    assert_eq!(web.header("x-load-balancing-endpoint-weight"), Some("2"));
    assert_eq!(web.header("x-content-type-options"), Some("nosniff"));
    let body = "{\n\t\"service\": {\n\t\t\"namespace\": \"ingress\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": 2,\n\t\"serviceProxyHealthy\": true\n}";
    assert_eq!(web.body, body);
    server.set_node(cordoned());
    let weight = |target: &str| {
        let reply = server.get(target);
        reply.header("x-load-balancing-endpoint-weight").map(str::to_owned)
    };
    let targets = ["empty", "web", "web?drain=404"].map(|name| weight(&format!("/services/ingress/{name}")));
    assert_eq!(targets.each_ref().map(Option::as_deref), [Some("0"), Some("2"), Some("0")]);
    let kube_proxy = server.board.catalog().find(KUBE_PROXY).unwrap();
    let answer = |outcome| {
        let result = local_result(outcome, server.now());
        server.board.set_local(kube_proxy, Some(result), server.now(), nodegate_clock::wall());
        let response = server.get("/services/ingress/web");
        (response.status, response.body.contains("\"serviceProxyHealthy\": true"))
    };
    assert_eq!(answer(Outcome::fail("refused")), (503, false));
    assert_eq!(answer(Outcome::Draining(Reason::new("NodeNotEligible"))), (200, true));
    assert_eq!(answer(Outcome::Pass), (200, true));
}

#[test]
fn an_answer_of_a_service_that_staleness_changed_counts_as_failed_open() {
    let (services, node) = (vec![("ingress/web", 2)], Node::Present(cordoned()));
    let proof = Duration::from_mins(1);
    let server = Scenario { node, proof, services, ..Scenario::default() }.serve();
    let counted = |path: &str| {
        assert_eq!(server.get(path).status, 200);
        server
            .get("/metrics")
            .body
            .lines()
            .find_map(|line| line.strip_prefix("nodegate_fail_open_total ")?.parse().ok())
    };
    // Without `drain=` a cordon changes nothing.
    let counts = ["/services/ingress/web", "/services/ingress/web?drain=404", "/health"].map(counted);
    assert_eq!(counts, [Some(0), Some(1), Some(2)]);
}

#[test]
fn status_json_and_the_page_show_the_same() {
    let server = Scenario::default().serve();
    server.set_node(facts(ConditionStatus::False, "KubeletNotReady"));
    let compact = server.get("/status.json");
    assert_eq!(compact.header("content-type"), Some("application/json"));
    let status: serde_json::Value = serde_json::from_str(&compact.body).unwrap();
    assert_eq!(status["verdict"], "not-ready");
    assert_eq!(status["reason"], "KubeletNotReady");
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["flips"][0]["to"], "not-ready");
    assert_eq!(compact.body.lines().count(), 1);

    let page = server.get("/");
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(page.body.contains(" NotReady</h1>"));
    assert!(
        page.header("content-security-policy").unwrap().starts_with("default-src 'none'; style-src 'sha256-")
    );
}

/// kubeadm and Talos put this label on every control-plane node; in a small cluster that is all nodes.
#[test]
fn a_control_plane_node_that_its_label_takes_out_has_a_hint() {
    let server = Scenario::default().serve();
    let has_hint = |labels: &[&str], unschedulable| {
        let labels = labels.iter().map(|key| ((*key).to_owned(), String::new())).collect();
        server.set_node(NodeFacts { labels, unschedulable, ..ready() });
        server.get("/").body.contains("<strong>Hint:</strong> kubeadm and Talos")
    };
    let control_plane = "node-role.kubernetes.io/control-plane";
    assert!(!has_hint(&[EXCLUDE_LABEL], false), "an operator has labelled a worker");
    assert!(has_hint(&[EXCLUDE_LABEL, control_plane], false));
    assert!(!has_hint(&[EXCLUDE_LABEL, control_plane], true), "it is the cordon that takes the node out");
}

#[test]
fn a_check_begins_with_the_first_request_that_names_it() {
    let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
    let activate: Activate = Arc::new(move |checks| {
        let (done, is_done) = tokio::sync::oneshot::channel::<()>();
        started.send((checks, done)).unwrap();
        Box::pin(async { drop(is_done.await) })
    });
    let server =
        Scenario { local: vec!["kubelet", "disk_pressure"], activate, ..Scenario::default() }.serve();
    let ask = || {
        let response = server.get("/health?check=kubelet,node_ready");
        let refused = r#"{"name":"kubelet","passed":false,"reason":"refused","duration_ms":12}"#;
        assert!(response.status == 503 && response.body.contains(refused), "{}", response.body);
        let metrics = server.get("/metrics").body;
        let passed = |configured| {
            format!("\nnodegate_check_passed{{check=\"kubelet\",configured=\"{configured}\"}} 0\n")
        };
        assert!(metrics.contains(&passed(false)) != metrics.contains(&passed(true)), "{metrics}");
        metrics.contains(&passed(true))
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(ask);
        let (checks, done) = starts.blocking_recv().unwrap();
        let result = Some(local_result(Outcome::fail("refused"), server.now()));
        assert_eq!(checks, [server.board.catalog().find("kubelet").unwrap()]);
        server.board.set_local(checks[0], result, server.now(), nodegate_clock::wall());
        drop(done);
        assert!(!first.join().unwrap(), "a single request");
    });
    nodegate_testbed::waiting::until("the regular prober to count", || ask().then_some(()));
    assert!(starts.try_recv().is_err(), "it began once");
    let metrics = server.get("/metrics").body;
    assert!(!metrics.contains("disk_pressure"), "a check that does not run is not shown: {metrics}");
}
