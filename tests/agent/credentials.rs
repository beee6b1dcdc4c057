//! The credentials that the agent accepts, and the log lines for those that it refuses.

use nodegate_testbed::Scenario;
use nodegate_testbed::waiting::until;

const STALE_AFTER: &str = "--stale-after=4s";

/// Shows where the operator reads why the agent has no proof. Each refusal has its words beside the code.
#[test]
fn a_refused_certificate_is_named_in_log_warning_status_and_page() {
    let cluster = Scenario::start();
    let agent = cluster.ready_agent(&[STALE_AFTER]);
    cluster.sim.rotate_certificate(true, true).unwrap();
    agent.wait_for("failing open", |reply| reply.status == 200 && reply.is_stale());
    let (refused, remedy) = ("invalid peer certificate: UnknownIssuer", "give them the CA that signed it");
    for message in [r#"reason="tls""#, "the cache is stale"] {
        let is_named = |line: &&str| line.contains("WARN") && line.contains(refused) && line.contains(remedy);
        until(message, || {
            let log = agent.log_text();
            log.lines().filter(|line| line.contains(message)).find(is_named).map(drop)
        });
    }
    let error = agent.get("/status.json").json()["cache"]["error"].clone();
    let error = error.as_str().unwrap();
    assert!(error.contains(&format!(": {refused}; ")) && error.contains(remedy), "{error}");
    let page = agent.get("/").body.replace("&#39;", "'");
    assert!(page.contains(&format!("API server:</strong> {error}")), "{page}");
    cluster.write_kubeconfig();
    agent.wait_ready();
    until("the error to be over", || {
        agent.get("/status.json").json()["cache"]["error"].is_null().then_some(())
    });
}
