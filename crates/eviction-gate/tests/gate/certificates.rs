//! The gate's certificates: its own, and those of another program.

use crate::scenario::{NAME, NAMESPACE, Scenario};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nodegate_eviction_gate::issue;
use nodegate_testbed::{NODE, until, until_or};
use serde_json::json;
use std::time::{Duration, SystemTime};

#[test]
fn files_of_another_program_are_served_and_an_expired_one_is_logged() {
    let scenario = Scenario::new();
    let name = format!("{NAME}.{NAMESPACE}.svc");
    let (certificate, key) = (scenario.file("tls.crt"), scenario.file("tls.key"));
    let write = |lifetime: Duration, from: SystemTime| {
        let issued = issue(&name, lifetime, from).unwrap();
        std::fs::write(&certificate, &issued.certificate).unwrap();
        std::fs::write(&key, issued.key).unwrap();
        // What cert-manager's CA injector does.
        let mut configuration = crate::scenario::configuration();
        configuration["webhooks"][0]["clientConfig"]["caBundle"] = json!(STANDARD.encode(issued.certificate));
        scenario.sim.apply(configuration).unwrap();
    };
    let now = SystemTime::now();
    write(Duration::from_hours(1), now);
    let flags =
        [format!("--tls-cert-file={}", certificate.display()), format!("--tls-key-file={}", key.display())];
    let gate = scenario.gate("self_check=1000", &flags.each_ref().map(String::as_str));
    scenario.sim.cordon(NODE);
    scenario.pod("q");
    assert_eq!(scenario.evict("p").status, 429);
    assert!(
        scenario.sim.get("secrets", NAMESPACE, NAME).unwrap().get("data").is_none(),
        "the Secret is not its own"
    );
    write(Duration::from_hours(1), now - Duration::from_hours(2));
    gate.wait_for("the certificate is not valid now; evictions are not held");
    until_or(|| (gate.metric("nodegate_gate_self_check_passed") == 0).then_some(()), || gate.log());
    assert_eq!(scenario.evict("q").status, 201);
    write(Duration::from_hours(1), now);
    until("the new files", || (gate.metric("nodegate_gate_self_check_passed") == 1).then_some(()));
    assert_eq!(scenario.evict("p").status, 429);
    std::fs::remove_file(&key).unwrap();
    gate.wait_for("can't refresh the certificate; retrying");
    assert_eq!(scenario.evict("p").status, 429);
}

#[test]
fn a_missing_secret_is_named() {
    let scenario = Scenario::new();
    scenario.sim.delete("secrets", NAMESPACE, NAME);
    let gate = scenario.start_gate("", &[]);
    gate.wait_for("there is no Secret nodegate-eviction-gate in the namespace nodegate (--name)");
    assert_eq!((gate.page("/readyz").status, gate.page("/livez").status), (503, 200));
    assert!(gate.page("/readyz").body.contains("no certificate yet"));
    let secret =
        json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": NAME, "namespace": NAMESPACE}});
    scenario.sim.apply(secret).unwrap();
    gate.wait_for("self-check passed");
    assert_eq!(gate.page("/readyz").status, 200);
}
