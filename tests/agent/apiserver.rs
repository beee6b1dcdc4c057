//! The check `apiserver`, by the real agent against the TLS server of a simulated control plane.

use nodegate_kube_sim::{Distribution, Effect, Fault, FaultScope, RequestKind};
use nodegate_testbed::{Agent, Cluster, until};
use std::fs;

const CHECK: &str = "apiserver";
const AGENT: &str = "system:serviceaccount:nodegate:nodegate";
const ANONYMOUS: &str = "system:anonymous";
const NO_AUTHORITY: &str = "NoCredentials: the credentials name no certificate authority";
/// Runs often, and with patience for a busy machine.
const FAST: &str = "--check-settings=apiserver:interval=200ms,timeout=20s";

fn cluster() -> Cluster {
    Cluster::with(|builder| builder)
}

fn agent(cluster: &Cluster, args: &[&str]) -> Agent {
    let url = format!("--check-settings=apiserver:url={}", cluster.sim.url());
    cluster.agent(&[&[&*url, FAST], args].concat())
}

/// Refuses this user.
fn refused(user: &str, code: u16) -> Fault {
    Effect::Status { code, retry_after: 0 }.on(FaultScope::all().users(&[user]))
}

/// Returns how often this user has asked for the health, with this answer.
fn asked_by(cluster: &Cluster, user: &str, code: u16) -> u64 {
    asked(cluster, "readyz", |kind| kind.user == user && kind.code == code)
}

/// Returns how many of the requests to this path fit.
fn asked(cluster: &Cluster, path: &str, fits: impl Fn(&RequestKind) -> bool) -> u64 {
    let requests = cluster.sim.counters().read().requests;
    let fits = requests.into_iter().filter(|(kind, _)| kind.resource.trim_matches('/') == path && fits(kind));
    fits.map(|(_, count)| count).sum()
}

#[test]
fn an_api_server_is_ready_and_not_ready_for_a_part_that_is_named() {
    let cluster = cluster();
    let agent = agent(&cluster, &[]);
    let server = &cluster.sim.servers()[0];
    agent.wait_passes(CHECK);
    for (parts, reason) in [
        (&["shutdown"][..], "ReadyzFailed: shutdown"),
        (&["etcd"], "ReadyzFailed: etcd"),
        (&["etcd", "etcd-readiness", "shutdown"], "ReadyzFailed: etcd, etcd-readiness, shutdown"),
        (&["poststarthook/rbac/bootstrap-roles"], "ReadyzFailed: poststarthook/rbac/bootstrap-roles"),
    ] {
        server.fail_readyz(parts);
        agent.wait_fails(CHECK, reason);
    }
    server.fail_readyz(&[]);
    agent.wait_passes(CHECK);
    assert!(asked_by(&cluster, ANONYMOUS, 200) > 0, "no credentials are shown unless they are needed");
    assert_eq!(asked_by(&cluster, AGENT, 200), 0);
}

/// The API server of a node that is drained still serves.
#[test]
fn a_cordon_leaves_the_api_server_in_the_pool() {
    let cluster = cluster();
    let agent = agent(&cluster, &[]);
    agent.wait_ready();
    cluster.kubectl(&["cordon", nodegate_testbed::NODE]);
    agent.wait_reason("Unschedulable");
    agent.wait_passes(CHECK);
}

#[test]
fn parts_are_left_out_by_their_names_and_a_wrong_name_is_logged() {
    let cluster = cluster();
    cluster.sim.servers()[0].fail_readyz(&["etcd", "etcd-readiness"]);
    let without_etcd = agent(&cluster, &["--check-settings=apiserver:exclude=etcd:etcd-readiness"]);
    without_etcd.wait_passes(CHECK);
    let mistaken = agent(&cluster, &["--check-settings=apiserver:exclude=etcd:readiness"]);
    mistaken.wait_fails(CHECK, "ReadyzFailed: etcd-readiness");
    mistaken.wait_runs(CHECK, 3);
    mistaken.logs_once("apiserver:exclude names parts that the API server does not have");
    mistaken.logs_once(r#"parts="readiness""#);
    assert_eq!(without_etcd.logged("apiserver:exclude"), 0);
}

/// As OpenShift's API servers do. Only their `/livez` tells that etcd is lost.
#[test]
fn a_server_that_leaves_etcd_out_of_readyz_is_asked_whether_it_is_alive() {
    let cluster = Cluster::with(|builder| builder.distribution(Distribution::OpenShift));
    let agent = agent(&cluster, &[]);
    let server = &cluster.sim.servers()[0];
    agent.wait_passes(CHECK);
    assert!(asked(&cluster, "livez", |kind| kind.user == ANONYMOUS && kind.code == 200) > 0);
    server.fail_readyz(&["etcd"]);
    agent.wait_fails(CHECK, "LivezFailed: etcd");
    server.fail_readyz(&["etcd", "shutdown"]);
    agent.wait_fails(CHECK, "ReadyzFailed: shutdown");
    // No name is wrong: `/livez` has etcd.
    let without_etcd = self::agent(&cluster, &["--check-settings=apiserver:exclude=etcd:etcd-readiness"]);
    server.fail_readyz(&["etcd"]);
    without_etcd.wait_passes(CHECK);
    assert_eq!(without_etcd.logged("apiserver:exclude"), 0);
}

/// A real one takes 2 s for each part that asks etcd; the agent waits for that.
#[test]
fn an_api_server_that_is_cut_off_from_etcd_fails() {
    for (distribution, reason) in [
        (Distribution::Kubernetes, "ReadyzFailed: etcd, etcd-readiness"),
        (Distribution::OpenShift, "LivezFailed: etcd"),
    ] {
        let cluster = Cluster::with(|builder| builder.distribution(distribution));
        let agent = agent(&cluster, &[]);
        agent.wait_passes(CHECK);
        let one_request = asked(&cluster, "livez", |_| true) == 0;
        assert_eq!(one_request, distribution == Distribution::Kubernetes);
        cluster.sim.cut_off_from_etcd(&[]);
        agent.wait_fails(CHECK, reason);
        cluster.sim.mend_etcd();
        agent.wait_passes(CHECK);
    }
}

#[test]
fn the_agents_token_is_shown_where_anonymous_requests_are_refused() {
    let cluster = cluster();
    for code in [401, 403] {
        cluster.sim.faults().clear();
        cluster.sim.faults().add(refused(ANONYMOUS, code));
        let agent = agent(&cluster, &[]);
        agent.wait_passes(CHECK);
        let anonymous = asked_by(&cluster, ANONYMOUS, code);
        let with_token = asked_by(&cluster, AGENT, 200);
        assert!(anonymous > 0 && with_token > 0);
        until("more runs", || (asked_by(&cluster, AGENT, 200) > with_token + 3).then_some(()));
        assert_eq!(asked_by(&cluster, ANONYMOUS, code), anonymous, "it remembers which one is admitted");

        cluster.sim.faults().add(refused(AGENT, 401));
        agent.wait_fails_with(CHECK, "refused without credentials and with the agent's");
        // A cluster that admits anonymous requests again, and the agent no more.
        cluster.sim.faults().clear();
        cluster.sim.faults().add(refused(AGENT, 403));
        agent.wait_passes(CHECK);
    }
}

/// A kubeconfig of its own, as a static pod has one.
#[test]
fn a_client_certificate_is_shown_where_anonymous_requests_are_refused() {
    let cluster = cluster();
    cluster.sim.faults().add(refused(ANONYMOUS, 403));
    let user = cluster.sim.client_certificate().unwrap();
    fs::write(cluster.kubeconfig(), cluster.sim.kubeconfig_as(&user)).unwrap();
    agent(&cluster, &[]).wait_passes(CHECK);
}

#[test]
fn a_certificate_of_another_ca_or_for_another_name_is_not_believed() {
    let cluster = cluster();
    let agent = agent(&cluster, &[]);
    agent.wait_passes(CHECK);
    cluster.sim.certify_only(&["127.0.0.1", "other.example"]).unwrap();
    agent.wait_fails_with(CHECK, "Certificate: NotValidForName: ");
    cluster.sim.rotate_certificate(false, false).unwrap();
    agent.wait_passes(CHECK);
    cluster.sim.rotate_certificate(true, false).unwrap();
    agent.wait_fails(CHECK, "Certificate: UnknownIssuer");
    // The new CA is read with the next run.
    cluster.write_kubeconfig();
    agent.wait_passes(CHECK);
}

/// A client must not get the agent's token by answering on this port.
#[test]
fn a_kubeconfig_that_skips_verification_does_not_count() {
    let cluster = cluster();
    let mut lines: Vec<String> =
        fs::read_to_string(cluster.kubeconfig()).unwrap().lines().map(str::to_owned).collect();
    lines.retain(|line| !line.contains("certificate-authority-data"));
    let server = lines.iter().position(|line| line.contains("server:")).unwrap();
    lines.insert(server, "    insecure-skip-tls-verify: true".to_owned());
    fs::write(cluster.kubeconfig(), lines.join("\n")).unwrap();
    let agent = agent(&cluster, &[]);
    agent.wait_ready();
    agent.wait_fails(CHECK, NO_AUTHORITY);
}

#[test]
fn an_empty_file_of_the_ca_is_named_as_the_cause() {
    let cluster = cluster();
    let empty = cluster.kubeconfig().with_file_name("empty-ca.crt");
    fs::write(&empty, "").unwrap();
    let text = fs::read_to_string(cluster.kubeconfig()).unwrap();
    let lines = text.lines().map(|line| match line.split_once("certificate-authority-data:") {
        Some((indent, _)) => format!("{indent}certificate-authority: {}", empty.display()),
        None => line.to_owned(),
    });
    fs::write(cluster.kubeconfig(), lines.collect::<Vec<_>>().join("\n")).unwrap();
    agent(&cluster, &[]).wait_fails(CHECK, NO_AUTHORITY);
}

#[test]
fn no_answer_has_the_reason_that_it_has() {
    let cluster = cluster();
    let agent = cluster.agent(&[
        &format!("--check-settings=apiserver:url={}", cluster.sim.url()),
        "--check-settings=apiserver:interval=200ms,timeout=2s",
    ]);
    agent.wait_passes(CHECK);
    cluster.sim.faults().add(Effect::Hang.on(FaultScope::all().users(&[ANONYMOUS])));
    agent.wait_fails(CHECK, "Timeout after 2s");
    cluster.sim.faults().clear();
    agent.wait_passes(CHECK);
    // Not even a handshake.
    cluster.sim.servers()[0].freeze();
    agent.wait_fails(CHECK, "Timeout after 2s");
    cluster.sim.servers()[0].heal();
    agent.wait_passes(CHECK);
    cluster
        .sim
        .faults()
        .add(Effect::Status { code: 500, retry_after: 0 }.on(FaultScope::all().users(&[ANONYMOUS])));
    agent.wait_fails(CHECK, "HTTP 500");
    cluster.wait(cluster.sim.servers()[0].kill());
    agent.wait_fails(CHECK, "ConnectionRefused");
}
