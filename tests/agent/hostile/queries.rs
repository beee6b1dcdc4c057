//! Names and queries that try to break out: into the JSON, the page, the metrics, the log, or another
//! client's answers.

use super::client::connect;
use super::scene::Scene;
use nodegate_testbed::http::{ask_on, read_all, read_answer};
use nodegate_testbed::stub::{Act, Stub};
use nodegate_testbed::{ProbeReply, until};
use std::fmt::Write as _;
use std::io::Write;
use std::net::TcpStream;

/// A mark in all hostile names, so that the test finds them wherever they appear.
const MARK: &str = "h0st1le";

fn get(scene: &Scene, target: &str) -> ProbeReply {
    let answer = ask_on(connect(scene.address()), format!("GET {target} HTTP/1.0\r\n\r\n"));
    ProbeReply::parse(&answer).unwrap_or_else(|| panic!("{target}: {answer}"))
}

#[test]
fn hostile_names_are_escaped_in_every_answer() {
    let mut scene = Scene::begin("names", &[]);
    // The name in the request, and the decoded name in the answer.
    let names = [
        ("%00", "\0".to_owned()),
        ("%0a2026-01-01T00:00:00Z%20ERROR%20fake", "\n2026-01-01T00:00:00Z ERROR fake".to_owned()),
        ("%0d%0aX-Injected:%201%0d%0a%0d%0a", "\r\nX-Injected: 1".to_owned()),
        ("%22%7D%5D%2C%22status%22:%22ready%22", "\"}]".to_owned()),
        ("%3Cscript%3Ealert(1)%3C/script%3E", "<script>alert(1)</script>".to_owned()),
        ("%1b[2J%1b]0;x%07", "\u{1b}[2J\u{1b}]0;x\u{7}".to_owned()),
        ("%e2%80%a8%e2%80%ae", "\u{2028}\u{202e}".to_owned()),
        ("%25%32%66", "%2f".to_owned()),
        ("%2f..%2f..%2fetc%2fpasswd", "/../../etc/passwd".to_owned()),
        // Not UTF-8: overlong, cut off, a surrogate.
        ("%c0%af", "\u{fffd}\u{fffd}".to_owned()),
        ("%e2%82", "\u{fffd}".to_owned()),
        ("%ed%a0%80", "\u{fffd}\u{fffd}\u{fffd}".to_owned()),
        ("%", "%".to_owned()),
        ("%4", "%4".to_owned()),
        ("%zz", "%zz".to_owned()),
        ("service:../..", "service:../..".to_owned()),
        ("http:http://169.254.169.254/", "http:http://169.254.169.254/".to_owned()),
    ];
    for (asked, name) in &names {
        let ProbeReply { status, head, body } = get(&scene, &format!("/health?check={MARK}{asked}"));
        assert_eq!(status, 503, "{asked}: {body}");
        let json: serde_json::Value =
            serde_json::from_str(&body).unwrap_or_else(|error| panic!("{asked}: {error}: {body}"));
        assert_eq!(json["checks"][0]["name"], format!("{MARK}{name}"), "{asked}");
        assert_eq!(json["checks"][0]["reason"], format!("Unknown check: {MARK}{name}"), "{asked}");
        assert_eq!(json["status"], "not-ready", "{asked}");
        assert!(
            !head.to_lowercase().contains("x-injected") && !body.contains('\n'),
            "{asked}: {head} {body}"
        );
        // The same names in other requests.
        assert_eq!(get(&scene, &format!("/nodecheck?check={MARK}{asked}")).body, "Down", "{asked}");
        assert_eq!(get(&scene, &format!("/services/{MARK}{asked}/{asked}")).status, 404, "{asked}");
        let ProbeReply { status, body, .. } = get(&scene, &format!("/health?drain={MARK}{asked}"));
        assert_eq!(status, 400, "{asked}: {body}");
        assert!(
            serde_json::from_str::<serde_json::Value>(&body).is_ok() && !body.contains('\n'),
            "{asked}: {body}"
        );
    }
    for header in ["User-Agent", "Host", "X-Forwarded-For", "Accept"] {
        let request = format!("GET /health HTTP/1.0\r\n{header}: {MARK}\t${{jndi:ldap://x}}\r\n\r\n");
        assert!(ask_on(connect(scene.address()), request).starts_with("HTTP/1.0 200 "), "{header}");
    }
    assert!(!get(&scene, "/metrics").body.contains(MARK), "no label for somebody who asks once");
    // The status shows probers and their requests; nothing of them may be anything but text.
    let status: serde_json::Value = serde_json::from_str(&get(&scene, "/status.json").body).unwrap();
    let questions =
        status["probers"].as_array().unwrap().iter().map(|prober| prober["question"].as_str().unwrap());
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"-_.~/:,?=&% ".contains(&c);
    assert!(questions.clone().any(|question| question.contains(MARK)));
    for question in questions {
        assert!(question.bytes().all(plain), "{question}");
        assert!(question.chars().filter(|c| "?& ".contains(*c)).count() <= 2, "{question}");
    }
    let mut rest = status.clone();
    rest["probers"] = serde_json::Value::Null;
    assert!(!rest.to_string().contains(MARK), "{rest}");
    let page = get(&scene, "/").body;
    for shown in page.split(MARK).skip(1) {
        let shown = shown.split('<').next().unwrap();
        assert!(shown.bytes().all(|c| plain(c) || c == b';'), "{shown}");
    }
    assert!(!scene.agent.log_text().contains(MARK), "{}", scene.agent.log_text());
    scene.look();
    scene.end();
}

#[test]
fn the_length_and_the_names_of_a_query_are_limited() {
    let scene = Scene::begin("long queries", &[]);
    let names = |count: usize| {
        (0..count).fold(String::new(), |mut list, n| {
            let _ = write!(list, "c{n},");
            list
        })
    };
    assert_eq!(get(&scene, &format!("/health?check={}", names(32))).status, 503);
    assert_eq!(get(&scene, &format!("/health?check={}", names(33))).status, 400);
    assert_eq!(
        get(&scene, &format!("/health?check={}", "node_ready,".repeat(180))).status,
        200,
        "one name, often"
    );
    assert_eq!(get(&scene, &format!("/health?{}", "a".repeat(2048))).status, 200);
    for query in ["a".repeat(2049), "&".repeat(2049), "check=&".repeat(1000), "%".repeat(7000)] {
        assert_eq!(get(&scene, &format!("/health?{query}")).status, 400);
        assert_eq!(get(&scene, &format!("/nodecheck?{query}")).status, 400);
    }
    scene.end();
}

#[test]
fn queries_that_never_repeat_are_not_cached() {
    let mut scene = Scene::begin("4,000 queries", &[]);
    let mut stream = connect(scene.address());
    let mut ask = |target: &str| {
        stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).unwrap();
        read_answer(&mut stream).unwrap().expect("an answer")
    };
    // Long, valid queries: each would take some KiB if the agent kept it.
    let ballast = "x".repeat(1900);
    let mut first = 0;
    for n in 0..4000 {
        let answer = ask(&format!("/health?check=node_ready&drain=404&{n}={ballast}"));
        assert!(answer.status == 200 && answer.body.contains("\"status\":\"ready\""), "{answer:?}");
        if n == 1000 {
            first = scene.look().memory;
        }
    }
    let last = scene.look().memory;
    assert!(last < first + 1024, "{first} KiB after 1,000 queries and {last} KiB after 4,000");
    // A balancer that comes too late for its answer to be cached gets the same answers and sees the same
    // changes.
    let late = "/health?check=node_ready,custom_conditions&drain=404";
    assert!(ask(late).status == 200);
    scene.cluster.sim.cordon(nodegate_testbed::cluster::NODE);
    until("the late one to see the cordon", || (ask(late).status == 404).then_some(()));
    scene.cluster.sim.uncordon(nodegate_testbed::cluster::NODE);
    until("and its end", || (ask(late).status == 200).then_some(()));
    scene.end();
}

#[test]
fn clients_waiting_for_a_hung_check_do_not_disturb_the_balancer() {
    let stub = Stub::start(Act::Hang);
    let hangs = format!("--http-check=hangs={}", stub.url("/"));
    let mut scene = Scene::begin("1,500 that wait", &[&hangs, "--check-settings=http:hangs:timeout=5s"]);
    // The check starts with the first client, and all wait for its first result.
    let mut waiting: Vec<TcpStream> = (0..1500)
        .map(|n| {
            let mut stream = connect(scene.address());
            let _ = stream.write_all(format!("GET /health?check=http:hangs&{n} HTTP/1.0\r\n\r\n").as_bytes());
            stream
        })
        .collect();
    scene.look();
    scene.probe_on();
    let answered =
        waiting.iter_mut().map(read_all).filter(|answer| answer.starts_with("HTTP/1.0 503 ")).count();
    eprintln!("1,500 that wait: {answered} were answered");
    assert!(answered > 100);
    assert_eq!(scene.agent.metric("nodegate_connections_refused_total"), Some(0.0));
    scene.end();
}
