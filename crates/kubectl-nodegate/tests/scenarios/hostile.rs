//! Hostile answers of agents and of the API server.

use crate::crowd::{Behaviour, sends};
use crate::scenario::{Scenario, ready, says};
use nodegate_kube_sim::{Effect, FaultScope};
use serde_json::json;

fn http(body: &str) -> Behaviour {
    sends(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
}

#[test]
fn a_malformed_answer_is_a_row() {
    let mut steering = ready("steering");
    steering["reason"] = json!("x\u{1b}[2J\nspoofed");
    steering["verdict"] = json!("not-ready");
    steering["version"] = json!("1\r\n2");
    let mut from_the_future = ready("clock");
    from_the_future["flips"] = json!([{"at_unix_ms": u64::MAX, "age_ms": u64::MAX, "from": "ready", "to": "draining", "reason": "x"}]);
    from_the_future["uptime_ms"] = json!(u64::MAX);
    let wrong_verdict = ready("a").to_string().replace("\"verdict\":\"ready\"", "\"verdict\":\"up\"");
    let scenario = Scenario::new([
        ("endless", sends(format!("HTTP/1.1 200 OK\r\n\r\n{}", " ".repeat(1 << 21)))),
        ("not-json", http("<html>")),
        ("other-json", http("{}")),
        ("wrong-verdict", http(&wrong_verdict)),
        ("moved", sends("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")),
        ("steering", says(&steering)),
        ("clock", says(&from_the_future)),
        ("sound", says(&ready("sound"))),
    ]);
    for via in ["--via=node", "--via=proxy", "--via=auto"] {
        let said = scenario.run(&[via, "-o", "wide", "--agent-timeout=20s"]);
        assert_eq!((said.code, said.order().len()), (Some(3), 8), "{said:#?}");
        assert!(!said.out.contains('\u{1b}') && !said.out.contains('\r'), "{said:#?}");
        for (node, part) in [
            ("sound", "sound Ready"),
            ("steering", "NotReady x [2J spoofed"),
            ("clock", "clock Ready - "),
            ("wrong-verdict", "is not one of nodegate: unknown variant `up`"),
            ("not-json", "Unknown the answer to /status.json is not one"),
            ("moved", "HTTP 404; an agent with --metrics-addr answers there"),
        ] {
            assert!(said.row(node).contains(part), "no {part} in {said:#?}");
        }
    }
}

#[test]
fn a_failing_api_server_is_one_line_and_exit_code_3() {
    let scenario = Scenario::new([("a", says(&ready("a")))]);
    for (effect, said) in [
        (Effect::Forbidden, "can't list Nodes: nodes is forbidden: User \"kubernetes-admin\" cannot list"),
        (Effect::Malformed, "can't list Nodes: the answer is not one of the Kubernetes API"),
    ] {
        let fault = scenario.sim.faults().add(effect.on(FaultScope::all().resources(&["nodes"])));
        let answer = scenario.run(&[]);
        answer.has(3, &[&format!("kubectl-nodegate: {said}")]);
        assert_eq!((answer.out.as_str(), answer.err.lines().count()), ("", 1), "{answer:#?}");
        scenario.sim.faults().remove(fault);
    }
    // The plugin queries agents even if the API server does not let it list their pods.
    scenario.sim.faults().add(Effect::Forbidden.on(FaultScope::all().resources(&["pods"])));
    assert_eq!(scenario.run(&[]).code, Some(0));
    scenario.run(&["--via=proxy", "-o", "wide"]).has(3, &["can't list Pods in nodegate: pods is forbidden"]);
    scenario.sim.rotate_certificate(true, true).unwrap();
    scenario.run(&[]).has(3, &["invalid peer certificate"]);
    scenario.kill_api();
    scenario.run(&[]).has(3, &["onnection refused"]);
}
