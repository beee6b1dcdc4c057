//! Hostile answers of agents and of the API server.

use crate::crowd::Behaviour;
use crate::lab::{Lab, ready, says};
use nodegate_kube_sim::{Effect, FaultScope};
use serde_json::json;

fn sends(bytes: impl Into<Vec<u8>>) -> Behaviour {
    Behaviour::Sends(bytes.into())
}

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
    let lab = Lab::new([
        ("endless", Behaviour::Endless),
        ("garbage", sends("\0\u{1}garbage\r\n\r\n")),
        ("long-head", sends(format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n{{}}", "x".repeat(100_000)))),
        ("not-json", http("<html>")),
        ("other-json", http("{}")),
        (
            "wrong-verdict",
            http(&ready("a").to_string().replace("\"verdict\":\"ready\"", "\"verdict\":\"up\"")),
        ),
        (
            "redirect",
            sends("HTTP/1.1 302 Found\r\nLocation: http://x/\r\nContent-Length: 0\r\n\r\n".to_owned()),
        ),
        ("moved", sends("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")),
        ("cut", sends("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"node\":")),
        ("steering", says(&steering)),
        ("clock", says(&from_the_future)),
        ("sound", says(&ready("sound"))),
    ]);
    for via in ["--via=node", "--via=proxy", "--via=auto"] {
        // An endless answer takes long to arrive on a slow machine.
        let said = lab.run(&[via, "-o", "wide", "--agent-timeout=20s"]);
        assert_eq!((said.code, said.order().len()), (Some(3), 12), "{said:#?}");
        assert!(!said.out.contains('\u{1b}') && !said.out.contains('\r'), "{said:#?}");
        assert!(said.row("sound").starts_with("sound Ready"), "{said:#?}");
        assert!(said.row("steering").contains("NotReady x [2J spoofed"), "{said:#?}");
        assert!(said.row("clock").starts_with("clock Ready - "), "{said:#?}");
        assert!(
            said.row("wrong-verdict").contains("is not one of nodegate: unknown variant `up`"),
            "{said:#?}"
        );
        assert!(said.row("not-json").contains("Unknown no agent of nodegate"), "{said:#?}");
        assert!(said.row("redirect").contains("/status.json answered HTTP 302"), "{said:#?}");
        assert!(
            said.row("moved").contains("HTTP 404; an agent with --metrics-addr answers there"),
            "{said:#?}"
        );
    }
    let direct = lab.run(&["--via=node", "-o", "wide"]);
    assert!(direct.row("garbage").contains("Unknown not HTTP"), "{direct:#?}");
    assert!(direct.row("long-head").contains("Unknown not HTTP"), "{direct:#?}");
    assert!(direct.row("cut").contains("Unknown connection broken"), "{direct:#?}");
    assert!(direct.row("endless").contains("the answer is longer than 1048576 bytes"), "{direct:#?}");
}

#[test]
fn a_failing_api_server_is_one_line_and_exit_code_3() {
    let lab = Lab::new([("a", says(&ready("a")))]);
    let scope = || FaultScope::all().resources(&["nodes"]);
    for (effect, said) in [
        (Effect::Status { code: 500, retry_after: 0 }, "can't list Nodes: "),
        (Effect::Forbidden, "can't list Nodes: nodes is forbidden: User \"kubernetes-admin\" cannot list"),
        (Effect::Malformed, "can't list Nodes: the answer is not one of the Kubernetes API"),
    ] {
        let fault = lab.sim.faults().add(effect.on(scope()));
        let answer = lab.run(&[]);
        assert_eq!((answer.code, answer.out.as_str()), (Some(3), ""), "{answer:#?}");
        assert!(answer.err.starts_with(&format!("kubectl-nodegate: {said}")), "{answer:#?}");
        assert_eq!(answer.err.lines().count(), 1, "{answer:#?}");
        lab.sim.faults().remove(fault);
    }
    // The plugin queries agents even if the API server does not let it list their pods.
    lab.sim.faults().add(Effect::Forbidden.on(FaultScope::all().resources(&["pods"])));
    assert_eq!(lab.run(&[]).code, Some(0));
    let proxied = lab.run(&["--via=proxy", "-o", "wide"]);
    assert!(proxied.row("a").contains("can't list Pods in nodegate: pods is forbidden"), "{proxied:#?}");
    lab.block_on(lab.sim.kill());
    let dead = lab.run(&[]);
    assert!(dead.code == Some(3) && dead.err.contains("onnection refused"), "{dead:#?}");
}
