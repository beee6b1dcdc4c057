//! `nodegate status`: its output for a running agent, and its errors if there is none, or another server.

use nodegate_testbed::agent::run;
use nodegate_testbed::stub::StubServer;
use nodegate_testbed::{Agent, NODE, Scenario};
use std::net::SocketAddr;

struct Report {
    code: i32,
    out: String,
    err: String,
}

/// Runs the command with this address. A busy machine may need longer than the default timeout.
fn ask(address: SocketAddr, args: &[&str]) -> Report {
    let address = address.to_string();
    let output = run(&[&["status", "--timeout", "30s", "--addr", &address], args].concat(), &[]);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Report { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

impl Report {
    #[track_caller]
    fn says(&self, code: i32, words: &[&str]) {
        let all = format!("{}{}", self.out, self.err);
        assert_eq!(self.code, code, "{all}");
        for word in words {
            assert!(all.contains(word), "no {word:?} in {all}");
        }
    }

    /// Asserts that the exit code is 3, and that one line gives the reason.
    #[track_caller]
    fn is_unknown(&self, words: &[&str]) {
        self.says(3, words);
        assert_eq!((self.out.as_str(), self.err.lines().count()), ("", 1), "{}", self.err);
        assert!(self.err.starts_with("nodegate: "), "{}", self.err);
    }
}

#[test]
fn the_exit_code_of_status_tells_the_verdict_and_the_json_is_the_agents_own() {
    let cluster = Scenario::start();
    let agent = cluster.ready_agent(&[]);
    let at = agent.address();
    let own = agent.get("/status.json").json();
    let [uid, process] = ["uid", "start_id"].map(|key| own[key].as_str().unwrap());
    let (node, process) = (format!("node   n1, uid {uid}\n"), format!(", start id {process}\n"));
    let ready =
        ["Ready: may get new traffic", &*node, &*process, "fresh, last proof", "node_ready *", "no flip"];
    ask(at, &[]).says(0, &ready);
    let named = |checks| ask(at, &["--check", checks]);
    named("node_ready,custom_conditions").says(0, &["Ready\n", "custom_conditions  passes"]);

    cluster.sim.cordon(NODE);
    agent.wait_reason("Unschedulable");
    agent.next_rendering();
    let draining = ask(at, &[]);
    draining.says(1, &["Draining: cordoned (Unschedulable)", "drains", "Ready -> Draining  Unschedulable"]);
    assert!(!draining.out.contains('\u{1b}'), "colour without a terminal: {}", draining.out);
    let shown = ask(at, &["-o", "json"]);
    assert_eq!(shown.code, 1, "{}", shown.err);
    let [shown, mut own] = [&shown.out, &agent.get("/status.json").body]
        .map(|json| serde_json::from_str::<serde_json::Value>(json).unwrap());
    for key in ["/verdict", "/flips/0/at_unix_ms", "/facts", "/start_id"] {
        assert!(shown.pointer(key).is_some() && shown.pointer(key) == own.pointer(key), "{key}: {shown}");
    }
    (own["flips"][0]["at_unix_ms"], own["flips"][0]["age_ms"]) = (1.into(), 8000.into());
    let after_a_step_of_the_clock = StubServer::saying(format!("HTTP/1.1 200 OK\r\n\r\n{own}"));
    ask(after_a_step_of_the_clock.address(), &[]).says(1, &["1970-01-01 00:00:00", "8 s  Ready -> Draining"]);
    let checks = ask(at, &["-o", "json", "--check", "custom_conditions"]);
    assert_eq!((checks.code, checks.out), (0, agent.get("/health?check=custom_conditions").body));
    named("custom_conditions,node_ready").says(1, &["Draining\n", "cordoned (Unschedulable)"]);
    named("node_ready,bogus").says(2, &["NotReady\n", "cordoned (Unschedulable)", "Unknown check: bogus"]);

    assert!(cluster.sim.set_ready(NODE, "False", "KubeletNotReady"));
    agent.wait_reason("KubeletNotReady");
    agent.next_rendering();
    let why = "NotReady: the kubelet says that it is not ready (KubeletNotReady)";
    ask(at, &[]).says(2, &[why, "Draining -> NotReady"]);
}

#[test]
fn what_status_can_not_know_is_unknown_and_not_critical() {
    let cluster = Scenario::start();
    let agent = Agent::start("", &cluster.kubeconfig(), &[]);
    let shown = ask(agent.address(), &[]);
    shown.says(3, &["Misconfigured: NODE_NAME is not set", "spec.nodeName"]);
    assert!(!shown.out.contains("passes"), "{}", shown.out);
    ask(agent.address(), &["--check=node_ready"]).is_unknown(&["answered HTTP 500", "NODE_NAME is not set"]);
    let stranger = StubServer::saying("HTTP/1.1 200 OK\r\n\r\n{\"verdict\":\"\u{1b}[31mfine\"}");
    let shown = ask(stranger.address(), &[]);
    shown.is_unknown(&["not one of nodegate"]);
    assert!(!shown.err.contains('\u{1b}'), "{}", shown.err);
    let elsewhere = StubServer::saying("HTTP/1.1 404 Not Found\r\n\r\nnot found");
    ask(elsewhere.address(), &[]).is_unknown(&["answered HTTP 404", "--metrics-addr"]);
}
