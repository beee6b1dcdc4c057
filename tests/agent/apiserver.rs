//! The check `apiserver`, by the real agent against the TLS server of a simulated control plane.

use nodegate_kube_sim::{Effect, Fault, FaultScope, RequestKind};
use nodegate_testbed::{Agent, Scenario, until};
use std::fs;

const CHECK: &str = "apiserver";
const AGENT: &str = "system:serviceaccount:nodegate:nodegate";
const ANONYMOUS: &str = "system:anonymous";
const NO_AUTHORITY: &str = "NoCredentials: the credentials name no certificate authority";
/// Runs often, and with patience for a busy machine.
const FAST: &str = "--check-settings=apiserver:interval=200ms,timeout=20s";

fn agent(cluster: &Scenario, args: &[&str]) -> Agent {
    let url = format!("--check-settings=apiserver:url={}", cluster.sim.url());
    cluster.agent(&[&[&*url, FAST], args].concat())
}

fn refused(user: &'static str, code: u16) -> Fault {
    Effect::Status { code, retry_after: 0 }.on(FaultScope { users: vec![user], ..FaultScope::all() })
}

/// Returns how often this user has asked for this path, with this answer.
fn asked(cluster: &Scenario, path: &str, user: &str, code: u16) -> u64 {
    let is_it = |kind: &RequestKind| {
        kind.resource.trim_matches('/') == path && kind.user == user && kind.code == code
    };
    let requests = cluster.sim.counters().read().requests.into_iter();
    requests.filter(|(kind, _)| is_it(kind)).map(|(_, count)| count).sum()
}

fn asked_by(cluster: &Scenario, user: &str, code: u16) -> u64 {
    asked(cluster, "readyz", user, code)
}

#[test]
fn the_parts_of_the_api_server_that_fail_are_named() {
    let cluster = Scenario::start();
    let agent = agent(&cluster, &[]);
    let server = &cluster.sim.servers()[0];
    agent.wait_passes(CHECK);
    server.fail_readyz(&["etcd", "etcd-readiness", "shutdown"]);
    agent.wait_fails(CHECK, "ReadyzFailed: etcd, etcd-readiness, shutdown");
    server.fail_readyz(&[]);
    agent.wait_passes(CHECK);
    assert!(asked_by(&cluster, ANONYMOUS, 200) > 0, "no credentials are shown unless they are needed");
    assert_eq!((asked_by(&cluster, AGENT, 200), asked(&cluster, "livez", ANONYMOUS, 200)), (0, 0));

    // OpenShift's `/readyz` leaves etcd out, so only `/livez` tells that etcd is lost.
    server.take_etcd_out_of_readyz();
    until("a second request", || (asked(&cluster, "livez", ANONYMOUS, 200) > 0).then_some(()));
    agent.wait_passes(CHECK);
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

#[test]
fn the_agents_token_is_shown_where_anonymous_requests_are_refused() {
    let cluster = Scenario::start();
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

#[test]
fn a_certificate_of_another_ca_or_for_another_name_is_not_believed() {
    let cluster = Scenario::start();
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

/// A server must not get the agent's token by answering on this port.
#[test]
fn the_check_needs_a_certificate_authority() {
    let cluster = Scenario::start();
    let empty = cluster.kubeconfig().with_file_name("empty-ca.crt");
    fs::write(&empty, "").unwrap();
    let text = fs::read_to_string(cluster.kubeconfig()).unwrap();
    let empty = format!("certificate-authority: {}", empty.display());
    for (instead, reason) in [
        ("insecure-skip-tls-verify: true", NO_AUTHORITY),
        (&*empty, "certificate-authority has 0 bytes without a certificate in PEM form"),
    ] {
        let lines = text.lines().map(|line| match line.split_once("certificate-authority-data:") {
            Some((indent, _)) => format!("{indent}{instead}"),
            None => line.to_owned(),
        });
        fs::write(cluster.kubeconfig(), lines.collect::<Vec<_>>().join("\n")).unwrap();
        agent(&cluster, &[]).wait_fails_with(CHECK, reason);
    }
}
