//! The files of examples/drain, with the real kubectl and the plugin. `tests/balancers` plays drain-node.sh and
//! release-autoscaled.sh under traffic.

use crate::drain::{RESPONSIVE, cluster, is_cordoned};
use crate::scenario::{Said, Scenario};
use serde_json::Value;
use std::fs;
use std::process::Command;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/drain");

/// Runs a script, and returns what it noted. `nodegate` notes its arguments, and `kubectl` has Machines and the port of the
/// agents.
fn script(scenario: &Scenario, name: &str, args: &[&str]) -> String {
    let (notes, plugin) = (scenario.file("notes"), env!("CARGO_BIN_EXE_kubectl-nodegate"));
    let (noted, port) = (notes.display(), scenario.crowd.port());
    let machines = "printf 'm-gone gone\\nm-1 worker-1\\nm-2 worker-2\\n'";
    let kubectl = format!(
        "case \"$*\" in\n*'get machines'*) {machines} ;;\n*'annotate machine'*) echo \"$*\" >>{noted} ;;\n\
         nodegate\\ wait*) shift 2; exec {plugin} wait --port={port} --timeout=30s \"$@\" ;;\n\
         *) exec /usr/bin/env PATH={} kubectl \"$@\" ;;\nesac",
        std::env::var("PATH").unwrap(),
    );
    scenario.script("kubectl", &kubectl);
    scenario.script("nodegate", &format!("echo \"$*\" >>{noted}"));
    let mut command = scenario.equip(Command::new(format!("{EXAMPLES}/{name}")));
    let said = Said::of(&command.args(args).output().unwrap());
    assert_eq!(said.code, Some(0), "{said:#?}");
    fs::read_to_string(notes).unwrap_or_default()
}

#[test]
fn scripts_take_nodes_of_every_family() {
    for (addresses, at) in [
        (["fd00::1", "10.0.0.1"], "--addr [fd00::1]:25001 "),
        (["10.0.0.1", "fd00::1"], "--addr 10.0.0.1:25001 "),
    ] {
        let scenario = cluster(RESPONSIVE, &["worker-1"]);
        scenario.sim.set_addresses("worker-1", &addresses);
        scenario.sim.taint("worker-1", "ToBeDeletedByClusterAutoscaler", "", "NoSchedule");
        let notes = script(&scenario, "release-autoscaled.sh", &[]);
        assert!(notes.contains(at), "{notes}");
        let notes = script(&scenario, "drain-node.sh", &["worker-1"]);
        assert_eq!(notes.matches(at).count(), 2, "{notes}");
        assert!(is_cordoned(&scenario, "worker-1") && scenario.sim.get("pods", "default", "app").is_none());
    }
}

#[test]
fn a_machine_whose_node_is_gone_holds_up_no_other() {
    let scenario = cluster(RESPONSIVE, &["worker-1", "worker-2"]);
    let kubeconfig = scenario.admin_kubeconfig();
    let notes = script(&scenario, "cluster-api-hook.sh", &["machines", kubeconfig.to_str().unwrap()]);
    for machine in ["m-gone", "m-1", "m-2"] {
        assert!(notes.contains(&format!("annotate machine {machine} pre-drain.delete.hook")), "{notes}");
    }
    assert!(is_cordoned(&scenario, "worker-1") && is_cordoned(&scenario, "worker-2"));
}

#[test]
fn plan_and_playbook_drain_their_node() {
    for (file, at, node) in [
        ("system-upgrade-plan.yaml", "/spec/prepare/args", "$(SYSTEM_UPGRADE_NODE_NAME)"),
        ("ansible.yaml", "/0/tasks/0/ansible.builtin.command/argv", "{{ node }}"),
    ] {
        let scenario = cluster(RESPONSIVE, &["worker-1", "worker-2"]);
        let text = fs::read_to_string(format!("{EXAMPLES}/{file}")).unwrap();
        let example: Value = serde_saphyr::from_str(&text).unwrap();
        let args: Vec<String> = serde_json::from_value(example.pointer(at).unwrap().clone()).unwrap();
        let args: Vec<_> = args.iter().map(|arg| arg.replace(node, "worker-1")).collect();
        let args: Vec<_> = args.iter().map(String::as_str).skip_while(|arg| *arg == "kubectl").collect();
        assert_eq!(args[0], "nodegate", "{file}");
        let said = scenario.run(&args[1..]);
        assert_eq!(said.code, Some(0), "{file}: {said:#?}");
        assert!(scenario.sim.get("pods", "default", "app").is_none(), "{file}");
    }
}
