//! The simulated API server answers as the real one, as far as a client can tell.

use nodegate_kube_sim::ADMIN_TOKEN;
use nodegate_testbed::programs::system;
use nodegate_testbed::real_cluster::RealCluster;
use nodegate_testbed::watching::seen;
use nodegate_testbed::{Cluster, NODE};
use serde_json::Value;
use std::process::Command;

/// Method, path, content type and body; for GET, `Accept` in place of the content type.
type Request<'a> = (&'a str, &'a str, &'a str, &'a str);

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

/// An answer: the code, the content type, warnings, and the body with each number as `#`.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    code: String,
    kind: String,
    warning: String,
    body: String,
}

fn ask(mut curl: Command, url: &str, (verb, path, kind, body): Request<'_>) -> Answer {
    let header = if verb == "GET" { "Accept" } else { "Content-Type" };
    curl.args([
        "--silent",
        "--show-error",
        "--max-time",
        "60",
        "--request",
        verb,
        "--header",
        &format!("{header}: {kind}"),
    ]);
    if !body.is_empty() {
        curl.args(["--data-binary", body]);
    }
    curl.args(["--write-out", "\n%{http_code}\n%{content_type}\n%header{warning}", &format!("{url}{path}")]);
    let output = curl.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut parts = text.rsplitn(4, '\n').map(str::to_owned);
    let mut part = || parts.next().unwrap_or_default();
    let (warning, kind, code) = (part(), part(), part());
    // The hash of a document may differ.
    let kind = kind.split(";etag").next().unwrap_or_default().to_owned();
    // The order of keys and the indentation do not matter to a client.
    let body = part();
    let lines = serde_json::from_str::<Value>(&body).map(|document| document.to_string());
    let each =
        |line: &str| serde_json::from_str::<Value>(line).map_or(line.to_owned(), |event| event.to_string());
    let body = lines.unwrap_or_else(|_| body.lines().map(each).collect::<Vec<_>>().join("\n"));
    Answer { code, kind, warning, body: without_numbers(&body) }
}

fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for letter in text.trim().chars() {
        match letter {
            '0'..='9' if out.ends_with('#') => {}
            '0'..='9' => out.push('#'),
            letter => out.push(letter),
        }
    }
    out
}

/// Returns the keys of a document whose values depend on the cluster.
fn shape(body: &str) -> Vec<String> {
    let document: Value = serde_json::from_str(body).unwrap_or_default();
    document.as_object().map(|object| object.keys().cloned().collect()).unwrap_or_default()
}

/// Compares refusals and unusual requests, whose messages clients read; of whole documents, only the keys.
#[test]
#[ignore = "make real-cluster-test"]
fn the_simulated_api_server_answers_as_the_real_one() {
    let cluster = RealCluster::take();
    let release = cluster.release();
    let simulated = Cluster::start();
    let _member = cluster.member(NODE);
    let node = format!("/api/v1/nodes/{NODE}");
    let bad_version = format!("{node}?resourceVersion=x");
    let requests: [Request<'_>; 8] = [
        ("GET", "/api/v1/nodes/none", JSON, ""),
        ("GET", "/nope", JSON, ""),
        ("GET", &bad_version, JSON, ""),
        ("GET", "/api/v1/nodes?watch=1&resourceVersion=x", JSON, ""),
        ("GET", "/api/v1/nodes?resourceVersion=999999999", JSON, ""),
        ("GET", "/api/v1/nodes?fieldSelector=spec.nope%3D1", JSON, ""),
        ("PATCH", &node, "text/plain", "{}"),
        ("PATCH", &node, MERGE, "{"),
    ];
    let mut differences = Vec::new();
    for request in requests {
        let real = ask(cluster.api.curl(), cluster.api.urls()[0], request);
        let mut curl = system("curl");
        curl.args(["--insecure", "--header", &format!("Authorization: Bearer {ADMIN_TOKEN}")]);
        let mut ours = ask(curl, &simulated.sim.url(), request);
        // A message with a whole object in it is that long.
        let is_whole = real.code.starts_with('2') || real.body.len() > 1000;
        if is_whole && shape(&real.body) == shape(&ours.body) {
            ours.body.clone_from(&real.body);
        }
        if real != ours {
            differences
                .push(format!("{} {}\n  real      {real:?}\n  simulated {ours:?}", request.0, request.1));
        }
    }
    assert!(
        differences.is_empty(),
        "{release}: {} differences\n{}",
        differences.len(),
        differences.join("\n")
    );
    seen(
        "kube-sim beside the real API server",
        &format!("{release}: {} requests, the same answers", requests.len()),
    );
}
