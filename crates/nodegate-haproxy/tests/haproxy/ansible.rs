//! The Ansible role of examples/ansible, played by Ansible itself on a Debian whose HAProxy is in use.

use crate::packages::{HAPROXY, Installation, PROGRAM, Packages, ROOT, VERSION};
use nodegate_testbed::programs::run;
use serde_json::{Value, json};

/// Plays the role with these settings. Returns whether it succeeded, its output, and the number of changes.
fn play(installation: &Installation, package: &str, settings: &Value, more: &str) -> (bool, String, u32) {
    let variables = json!({
        "nodegate_haproxy_package": format!("/root/{package}"),
        "nodegate_haproxy_kubeconfig": "/root/haproxy.kubeconfig",
        "nodegate_haproxy_settings": settings,
    });
    std::fs::write(installation.debian.path("/root/variables.json"), variables.to_string()).unwrap();
    // The one host of the group is this one.
    let inventory = "balancers:\n  hosts:\n    localhost:\n      ansible_connection: local\n";
    std::fs::write(installation.debian.path("/root/inventory.yml"), inventory).unwrap();
    let words = "--inventory /root/inventory.yml --extra-vars @/root/variables.json --diff";
    let script = format!("cd ansible && ANSIBLE_PIPELINING=1 ansible-playbook {words} {more} site.yml 2>&1");
    let output = installation.debian.output(&script);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!text.contains("token:"), "the kubeconfig is shown: {text}");
    let changed = text.rsplit_once("changed=").unwrap_or_else(|| panic!("{text}")).1;
    let changed = changed.split_whitespace().next().unwrap().parse().unwrap();
    (output.status.success(), text, changed)
}

#[test]
fn the_ansible_role_takes_the_three_steps_once() {
    let packages = Packages::build(&[VERSION], "deb");
    let installation = Installation::start();
    let package = packages.copy(&installation.debian, VERSION, "deb");
    run(&format!("cp -r {ROOT}/examples/ansible {}", installation.debian.path("/root/ansible").display()));
    let settings = installation.settings();
    let settings = settings.lines().filter_map(|line| line.split_once('='));
    let mut settings: Value = settings.map(|(name, value)| (name.to_owned(), json!(value))).collect();
    let played = |settings: &Value, more: &str| {
        let (succeeds, text, changed) = play(&installation, &package, settings, more);
        assert!(succeeds, "{text}\n{}", installation.debian.said());
        changed
    };

    let names = installation.debian.run("cd ansible && ansible-inventory --inventory inventory.yml --list");
    assert!(names.contains("lb1.example.com"), "{names}");
    played(&settings, "--check");
    assert_eq!(installation.left(), Vec::<String>::new(), "a check changes nothing");
    assert_eq!(played(&settings, ""), 3);
    assert_eq!(installation.states(), "enabled active static active");
    installation.serves();
    let running = [PROGRAM, HAPROXY].map(|unit| installation.pid(unit));
    assert_eq!(played(&settings, ""), 0);
    assert_eq!([PROGRAM, HAPROXY].map(|unit| installation.pid(unit)), running);
    // A changed setting restarts the program alone. A wrong one ends the play, and HAProxy goes on.
    settings["NODEGATE_HAPROXY_DRAIN_ON"] = json!("unschedulable");
    assert_eq!(played(&settings, ""), 2);
    assert_ne!(installation.pid(PROGRAM), running[0]);
    settings["NODEGATE_HAPROXY_MAX_REMOVAL"] = json!("many");
    let (succeeds, text, _) = play(&installation, &package, &settings, "");
    assert!(!succeeds && text.contains("Wait until HAProxy runs"), "{text}");
    assert_eq!(installation.pid(HAPROXY), running[1]);
    installation.untouched();
}
