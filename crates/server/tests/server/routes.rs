//! Every route, as a load balancer, a kubelet, Prometheus and a person use it.

use crate::scenario::{PAST, Running, Scenario, cordoned, facts, local_result, ready};
use nodegate_readiness::check::KUBE_PROXY;
use nodegate_readiness::{ConditionStatus, EXCLUDE_LABEL, Node, NodeFacts, Outcome, Reason};
use nodegate_server::Activate;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

const READY: &str = r#"{"status":"ready","checks":[{"name":"node_ready","passed":true,"duration_ms":0}],"total_duration_ms":0}"#;

#[test]
fn health_follows_the_node() {
    let server = Scenario::default().serve();
    let response = server.get("/health");
    assert_eq!((response.status, response.body.as_str()), (200, READY));
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(response.header("cache-control"), Some("no-store"));
    assert!(response.header("date").is_some());

    server.set_node(facts(ConditionStatus::False, "KubeletNotReady"));
    let response = server.get("/health");
    assert_eq!(response.status, 503);
    assert!(response.body.contains(r#""passed":false,"reason":"KubeletNotReady""#), "{}", response.body);

    server.set_node(ready());
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn draining_has_the_status_that_the_caller_asks_for() {
    let server = Scenario { node: Node::Present(cordoned()), ..Scenario::default() }.serve();
    assert_eq!(server.get("/health").status, 503);
    assert!(server.get("/health").body.starts_with(r#"{"status":"not-ready""#));
    for code in [404, 200, 299, 599] {
        let response = server.get(&format!("/health?drain={code}"));
        assert_eq!(response.status, code);
        assert!(response.body.starts_with(r#"{"status":"draining""#), "{}", response.body);
    }
    // 204 and 304 have no body by definition.
    assert_eq!(server.get("/health?drain=204").body, "");
    let unknown = server.get("/health?check=bogus");
    let check = r#"{"name":"bogus","passed":false,"reason":"Unknown check: bogus","duration_ms":0}"#;
    assert!(unknown.status == 503 && unknown.body.contains(check), "{}", unknown.body);
    assert_eq!(server.get(&format!("/health?{}", "a".repeat(2049))).status, 400);
    let refused = server.get("/health?drain=99");
    assert_eq!(refused.status, 400);
    assert!(refused.body.contains("takes an HTTP status"), "{}", refused.body);
}

#[test]
fn without_a_node_name_everything_that_needs_it_is_a_500() {
    let services = vec![("ingress/web", 2)];
    let server = Scenario { node_name: None, services, ..Scenario::default() }.serve();
    for target in ["/health", "/health?check=bogus", "/nodename", "/wait", "/services/ingress/web"] {
        let response = server.get(target);
        assert_eq!(response.status, 500, "{target}");
        assert!(response.body.contains("spec.nodeName"), "{}", response.body);
    }
    let response = server.get("/nodecheck");
    assert_eq!((response.status, response.body.as_str()), (500, "Down"));
    assert_eq!(server.get("/readyz").status, 503);
    assert_eq!(server.get("/livez").status, 200);
    assert_eq!(server.get("/status.json").status, 200);
    assert!(server.get("/").body.contains("misconfigured"));
}

#[test]
fn plain_words_for_simple_balancers() {
    let server = Scenario::default().serve();
    let up = server.get("/nodecheck");
    assert_eq!((up.status, &*up.body), (200, "OK"));
    assert_eq!(up.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(server.get("/nodename").body, "Node: \"node-a\"");
    server.set_node(cordoned());
    let down = server.get("/nodecheck?drain=200");
    assert_eq!((down.status, &*down.body), (503, "Down"));
    assert_eq!(server.get("/nodecheck?drain=x").status, 400);
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
fn livez_says_no_when_a_loop_is_stuck() {
    let server = Scenario { loops: Duration::from_secs(31), ..Scenario::default() }.serve();
    let response = server.get("/livez");
    assert_eq!(response.status, 503);
    assert!(response.body.starts_with("the watch task has been stuck for 3"), "{}", response.body);
    assert_eq!(server.get("/readyz").status, 200);
    assert!(Duration::from_secs(31) < PAST);
}

#[test]
fn unknown_paths() {
    let server = Scenario::default().serve();
    for target in
        ["/bogus", "/health/", "/healthz", "/../etc/passwd", "//", "/services/a/b", "http://a/bogus"]
    {
        let response = server.get(target);
        assert_eq!(response.status, 404, "{target}");
        assert_eq!(response.header("content-type"), Some("text/plain; charset=utf-8"));
    }
    assert_eq!(server.get("http://a/health").status, 200, "absolute form, as a proxy sends it");
}

/// Starts a server for a node with two watched Services, and a kube-proxy of unknown state.
fn watched() -> Running {
    let services = vec![("ingress/web", 2), ("ingress/empty", 0)];
    Scenario { services, local: vec![KUBE_PROXY], ..Scenario::default() }.serve()
}

#[test]
fn services_answer_as_kube_proxy_does() {
    let server = watched();
    let web = server.get("/services/ingress/web");
    assert_eq!(web.status, 200);
    assert_eq!(web.header("x-load-balancing-endpoint-weight"), Some("2"));
    assert_eq!(web.header("x-content-type-options"), Some("nosniff"));
    let body = "{\n\t\"service\": {\n\t\t\"namespace\": \"ingress\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": 2,\n\t\"serviceProxyHealthy\": true\n}";
    assert_eq!(web.body, body);
    let empty = server.get("/services/ingress/empty");
    assert_eq!((empty.status, empty.header("x-load-balancing-endpoint-weight")), (503, Some("0")));
    for target in ["/services/ingress/other", "/services/ingress", "/services/", "/services/ingress/web/x"] {
        assert_eq!(server.get(target).status, 404, "{target}");
    }
}

#[test]
fn a_service_heeds_a_cordon_if_it_is_asked_to() {
    let server = watched();
    assert_eq!(server.get("/services/ingress/web?drain=404").status, 200);
    server.set_node(cordoned());
    let plain = server.get("/services/ingress/web");
    assert_eq!((plain.status, plain.header("x-load-balancing-endpoint-weight")), (200, Some("2")));
    let drained = server.get("/services/ingress/web?drain=404");
    assert_eq!((drained.status, drained.header("x-load-balancing-endpoint-weight")), (404, Some("0")));
    assert!(drained.body.contains("\"localEndpoints\": 2"), "{}", drained.body);
    assert_eq!(server.get("/services/ingress/empty?drain=404").status, 503, "no endpoint to drain");
    assert_eq!(server.get("/services/ingress/web?drain=x").status, 400);
    assert_eq!(server.get("/services/ingress/other?drain=x").status, 404);
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
fn a_service_says_whether_kube_proxy_works() {
    let server = watched();
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

#[test]
fn a_hanging_start_is_given_up_and_delays_no_other_client() {
    let activate: Activate = Arc::new(|_| Box::pin(pending()));
    let server = Scenario { local: vec!["kubelet"], activate, ..Scenario::default() }.serve();
    let mut waiting = server.connect();
    waiting.send("GET /health?check=kubelet HTTP/1.0\r\n\r\n");
    assert_eq!(server.get("/health").status, 200);
    let response = waiting.last_response();
    assert_eq!(response.status, 503);
    assert!(response.body.contains(nodegate_readiness::state::NO_RECENT_RESULT), "{}", response.body);
}
