//! The credentials that the agent accepts, and the log lines for those that it refuses.

use nodegate_testbed::programs;
use nodegate_testbed::waiting::until;
use nodegate_testbed::{Cluster, NODE};
use std::fs;
use std::process::Command;

const STALE_AFTER: &str = "--stale-after=4s";

/// Shows that the agent reads `tokenFile` again. The kubelet replaces a service account's token before it
/// expires, while the kubeconfig stays as it is.
#[test]
fn a_rotated_token_file_is_followed() {
    let cluster = Cluster::start();
    let token = cluster.kubeconfig().with_file_name("token");
    fs::write(&token, cluster.token()).unwrap();
    let with_token = fs::read_to_string(cluster.kubeconfig()).unwrap();
    let with_file = with_token.replace(&format!("token: \"{}\"", cluster.token()), "tokenFile: token");
    assert_ne!(with_file, with_token);
    fs::write(cluster.kubeconfig(), with_file).unwrap();

    let agent = cluster.ready_agent(&[STALE_AFTER]);
    assert!(cluster.sim.rotate_token(cluster.token(), "the-next-token"));
    fs::write(&token, "the-next-token\n").unwrap();
    cluster.sim.reset_connections();
    cluster.kubectl(&["cordon", NODE]);
    agent.wait_reason("Unschedulable");
}

/// Shows that the agent never uses a proxy. Many hosts set a proxy in the environment for targets outside the
/// cluster.
#[test]
fn a_proxy_in_the_environment_is_ignored_and_one_in_the_kubeconfig_refused() {
    let cluster = Cluster::start();
    let mut command = Command::new(programs::agent());
    command
        .arg(STALE_AFTER)
        .env("HTTPS_PROXY", "http://127.0.0.1:9")
        .env("https_proxy", "http://127.0.0.1:9");
    cluster.launch(command).wait_ready();

    let direct = fs::read_to_string(cluster.kubeconfig()).unwrap();
    let proxied = direct.replace("    server:", "    proxy-url: http://127.0.0.1:9\n    server:");
    assert_ne!(proxied, direct);
    fs::write(cluster.kubeconfig(), proxied).unwrap();
    let agent = cluster.agent(&[STALE_AFTER]);
    agent.wait_for("failing open", |reply| reply.status == 200 && reply.is_stale());
    agent.logs_once(r#"reason="no-client" "#);
    assert!(agent.logged("the kubeconfig's proxy-url is not supported") > 0, "{}", agent.log_text());
}

#[test]
fn a_credential_plugin_that_can_not_run_is_named_and_the_next_one_is_used() {
    let cluster = Cluster::start();
    let with_token = fs::read_to_string(cluster.kubeconfig()).unwrap();
    let plugin = |command: &str, args: &[&str]| {
        let exec = serde_json::json!({
            "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "command": command, "args": args,
        });
        let with_plugin =
            with_token.replace(&format!("token: \"{}\"", cluster.token()), &format!("exec: {exec}"));
        assert_ne!(with_plugin, with_token);
        fs::write(cluster.kubeconfig(), with_plugin).unwrap();
    };
    plugin("/nowhere/aws", &[]);
    let agent = cluster.agent(&[STALE_AFTER]);
    agent.wait_for("failing open", |reply| reply.status == 200 && reply.is_stale());
    let file = cluster.kubeconfig().display().to_string();
    let said =
        |line: &str| line.contains(&file) && line.contains("credential plugin /nowhere/aws: can't run it");
    until("the error in the log", || agent.log_text().lines().any(said).then_some(()));
    // The agent uses the next kubeconfig without a restart.
    let credential = serde_json::json!({"status": {"token": cluster.token()}});
    plugin("sh", &["-c", &format!("echo '{credential}'")]);
    agent.wait_ready();
}

/// Shows where the operator reads why the agent has no proof. Each refusal has its words beside the code.
#[test]
fn a_refused_certificate_is_named_in_log_warning_status_and_page() {
    let cluster = Cluster::start();
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
    let page = agent.get("/").body.replace("<wbr>", "").replace("&#39;", "'");
    assert!(page.contains(&format!("API server:</strong> {error}")), "{page}");
    cluster.write_kubeconfig();
    agent.wait_ready();
    until("the error to be over", || {
        agent.get("/status.json").json()["cache"].get("error").is_none().then_some(())
    });
}
