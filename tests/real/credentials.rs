//! Credentials of each kind, which are replaced on disk while a real API server refuses the old ones.

use crate::isolated::WITHOUT_LEASES;
use nodegate_testbed::Agent;
use nodegate_testbed::prober::{Prober, health, trail};
use nodegate_testbed::programs::{must_run, system};
use nodegate_testbed::real_cluster::{REAL_NODE, RealCluster, ServerRoute, seen, until_so};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

const POD: &str = "a Pod's token";
const CERTIFICATE: &str = "client certificate";
const KINDS: [&str; 5] = ["token", "tokenFile", "exec", CERTIFICATE, POD];
/// The kinds that a client reads once.
const FIXED: [&str; 3] = ["token", "exec", CERTIFICATE];
/// Where client libraries look for the credentials of a Pod. The file system is the cluster's own.
const SERVICE_ACCOUNT: &str = "/run/secrets/kubernetes.io/serviceaccount";
/// The life of the first certificate, in seconds. An API server refuses an expired one on an open connection, too.
const LIFE: u32 = 90;
/// How long requests are counted after the last refusal.
const AFTERWARDS: Duration = Duration::from_mins(1);
const REFUSED: &str = "the API server refuses the credentials";
const MOVED: &str = "moving the watches to a new connection";

/// Writes the credentials of each kind: those that are bound to this Secret, and a certificate.
fn write(cluster: &RealCluster, secret: &str, life: u32) {
    let (kubectl, files) = (&cluster.kubectl, cluster.files.path());
    kubectl.must(&["--namespace=nodegate", "delete", "secret", secret, "--ignore-not-found"]);
    kubectl.must(&["--namespace=nodegate", "create", "secret", "generic", secret]);
    let bound = ["--bound-object-kind=Secret", "--bound-object-name", secret];
    let create = ["--namespace=nodegate", "create", "token", "no-leases"];
    let token = kubectl.must(&[&create[..], &bound].concat());
    let pki = cluster.directory().join("pki");
    let mut bash = system("bash");
    bash.args(["-ec", include_str!("objects/certificate.sh"), "issue"]).arg(files).arg(&pki);
    must_run(bash.arg(life.to_string()));
    for part in ["crt", "key"] {
        fs::rename(files.join(format!("new.{part}")), files.join(format!("client.{part}"))).unwrap();
    }
    for place in [files, Path::new(SERVICE_ACCOUNT)] {
        fs::create_dir_all(place).unwrap();
        fs::write(place.join("token"), token.trim()).unwrap();
    }
    fs::copy(pki.join("ca.crt"), Path::new(SERVICE_ACCOUNT).join("ca.crt")).unwrap();
    fs::write(Path::new(SERVICE_ACCOUNT).join("namespace"), "nodegate").unwrap();
    for kind in KINDS {
        let user = match kind {
            "tokenFile" => json!({"tokenFile": files.join("token")}),
            "exec" => json!({"exec": {
                "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "command": "echo",
                "args": [json!({"kind": "ExecCredential", "status": {"token": token.trim()}}).to_string()],
            }}),
            CERTIFICATE => json!({
                "client-certificate": files.join("client.crt"), "client-key": files.join("client.key"),
            }),
            _ => json!({"token": token.trim()}),
        };
        cluster.write_kubeconfig(ServerRoute::A, &user, &kubeconfig(cluster, kind));
    }
}

fn kubeconfig(cluster: &RealCluster, kind: &str) -> PathBuf {
    cluster.files.path().join(format!("{kind}.kubeconfig"))
}

fn start(cluster: &RealCluster, kind: &str) -> Agent {
    if kind != POD {
        return Agent::start(REAL_NODE, &kubeconfig(cluster, kind), &[]);
    }
    let mut command = Command::new(nodegate_testbed::programs::agent());
    let address = [("KUBERNETES_SERVICE_HOST", "10.10.3.1"), ("KUBERNETES_SERVICE_PORT", "6443")];
    command.env("NODE_NAME", REAL_NODE).env_remove("KUBECONFIG").envs(address);
    Agent::launch(command)
}

/// Returns the seconds of the day at which a line was logged.
fn logged_at(log: &str, needle: &str) -> Option<f64> {
    let line = log.lines().find(|line| line.contains(needle))?;
    let time = line.split('T').nth(1)?.split('Z').next()?;
    time.split(':').try_fold(0.0, |all, part| Some(all * 60.0 + part.parse::<f64>().ok()?))
}

/// Without Leases, each proof is a consistency check.
#[test]
#[ignore = "make real-cluster-test"]
fn credentials_of_each_kind_are_replaced_when_the_old_ones_are_refused() {
    let cluster = RealCluster::take();
    cluster.grant_agents();
    cluster.apply(WITHOUT_LEASES);
    write(&cluster, "old", LIFE);
    let agents = KINDS.map(|kind| start(&cluster, kind));
    for agent in &agents {
        agent.wait_ready();
    }
    let probers = agents.each_ref().map(|agent| Prober::start(agent.address(), health, 20, 1));
    write(&cluster, "new", 24 * 3600);
    cluster.kubectl.must(&["--namespace=nodegate", "delete", "secret", "old"]);
    for (kind, agent) in KINDS.into_iter().zip(&agents).filter(|(kind, _)| FIXED.contains(kind)) {
        until_so(|| agent.logged(MOVED) > 0, || format!("{kind}: {}", agent.log_text()));
    }
    let sent = |agent: &Agent| agent.metric_sum("nodegate_api_requests_total");
    let (after, before) = (Instant::now(), agents.each_ref().map(sent));
    sleep(AFTERWARDS);
    for (index, kind) in KINDS.into_iter().enumerate() {
        let (agent, log) = (&agents[index], agents[index].log_text());
        assert_eq!(trail(&probers[index].probes()), ["200 fresh"], "{kind}: {log}");
        let back =
            logged_at(&log, MOVED).zip(logged_at(&log, REFUSED)).map(|(moved, refused)| moved - refused);
        assert_eq!(back.is_some(), FIXED.contains(&kind), "{kind}: {log}");
        assert!(back.is_none_or(|seconds| (0.0..2.0).contains(&seconds)), "{kind}: {log}");
        let refused = agent.metric(r#"nodegate_api_requests_total{verb="get",code="401"}"#);
        assert!(refused.unwrap_or_default() <= 2.0, "{kind}: {log}");
        let minute = sent(agent) - before[index];
        let moved = |back: f64| format!("moved {:.0} ms after the 401", back * 1e3);
        let what = back.map_or("never refused".to_owned(), moved);
        let (all, time) = (sent(agent), after.elapsed());
        let what = format!("{what}; never stale; {all} requests in all, {minute} in {time:.0?} afterwards");
        seen(&format!("rotation: {kind}"), what);
    }
    fs::remove_dir_all(SERVICE_ACCOUNT).unwrap();
    cluster.kubectl.must(&["delete", "clusterrolebinding", "nodegate-no-leases"]);
}
