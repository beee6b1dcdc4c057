//! The files of examples/drain, with the real kubectl and the plugin. `tests/balancers` plays drain-node.sh and
//! release-autoscaled.sh under traffic.

use crate::drain::{RESPONSIVE, cluster, is_cordoned};
use crate::lab::{Lab, Said, program};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/drain");

/// Puts programs before those of the system: `nodegate`, which notes its arguments, and `kubectl`, which has Machines
/// and the port of the agents.
fn programs(lab: &Lab) -> String {
    let dir = lab.dir.path().join("bin");
    fs::create_dir_all(&dir).unwrap();
    let (notes, plugin) = (lab.dir.path().join("notes"), program().get_program().to_owned());
    let (notes, plugin, port) = (notes.display(), Path::new(&plugin).display(), lab.crowd.port());
    let machines = "printf 'm-gone gone\\nm-1 worker-1\\nm-2 worker-2\\n'";
    let kubectl = format!(
        "#!/bin/sh\ncase \"$*\" in\n*'get machines'*) {machines} ;;\n*'annotate machine'*) echo \"$*\" >>{notes} ;;\n\
         nodegate\\ wait*) shift 2; exec {plugin} wait --port={port} --timeout=30s \"$@\" ;;\n*) exec /usr/bin/env PATH={} kubectl \"$@\" ;;\nesac\n",
        std::env::var("PATH").unwrap(),
    );
    for (name, text) in [("kubectl", kubectl), ("nodegate", format!("#!/bin/sh\necho \"$*\" >>{notes}\n"))] {
        let path = dir.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    format!("{}:{}", dir.display(), std::env::var("PATH").unwrap())
}

/// Runs a script, and returns what it noted.
fn script(lab: &Lab, name: &str, args: &[&str]) -> String {
    let mut command = Command::new(format!("{EXAMPLES}/{name}"));
    command
        .args(args)
        .env("PATH", programs(lab))
        .env("KUBECONFIG", lab.kubeconfig())
        .env("HOME", lab.dir.path());
    let said = Said::of(&command.output().unwrap());
    assert_eq!(said.code, Some(0), "{said:#?}");
    fs::read_to_string(lab.dir.path().join("notes")).unwrap_or_default()
}

#[test]
fn scripts_take_nodes_of_every_family() {
    for (addresses, at) in [
        (vec!["fd00::1", "10.0.0.1"], "--addr [fd00::1]:25001 "),
        (vec!["10.0.0.1", "fd00::1"], "--addr 10.0.0.1:25001 "),
    ] {
        let lab = cluster(RESPONSIVE, &["worker-1"]);
        let addresses: Vec<_> =
            addresses.iter().map(|address| json!({"type": "InternalIP", "address": address})).collect();
        lab.sim.edit_node("worker-1", "kubelet", |node| {
            node["status"]["addresses"] = json!(addresses);
            node["spec"]["taints"] =
                json!([{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]);
        });
        let notes = script(&lab, "release-autoscaled.sh", &[]);
        assert!(notes.contains(at), "{notes}");
        let notes = script(&lab, "drain-node.sh", &["worker-1"]);
        assert_eq!(notes.matches(at).count(), 2, "{notes}");
        assert!(is_cordoned(&lab, "worker-1") && lab.sim.get("pods", "default", "app").is_none());
    }
}

#[test]
fn a_machine_whose_node_is_gone_holds_up_no_other() {
    let lab = cluster(RESPONSIVE, &["worker-1", "worker-2"]);
    let notes = script(&lab, "cluster-api-hook.sh", &["machines", lab.kubeconfig().to_str().unwrap()]);
    for machine in ["m-gone", "m-1", "m-2"] {
        assert!(notes.contains(&format!("annotate machine {machine} pre-drain.delete.hook")), "{notes}");
    }
    assert!(is_cordoned(&lab, "worker-1") && is_cordoned(&lab, "worker-2"));
}

#[test]
fn plan_and_playbook_drain_their_node() {
    for (file, at, node) in [
        ("system-upgrade-plan.yaml", "/spec/prepare/args", "$(SYSTEM_UPGRADE_NODE_NAME)"),
        ("ansible.yaml", "/0/tasks/0/ansible.builtin.command/argv", "{{ node }}"),
    ] {
        let lab = cluster(RESPONSIVE, &["worker-1", "worker-2"]);
        let text = fs::read_to_string(format!("{EXAMPLES}/{file}")).unwrap();
        let example: Value = serde_saphyr::from_str(&text).unwrap();
        let args: Vec<String> = serde_json::from_value(example.pointer(at).unwrap().clone()).unwrap();
        let args: Vec<_> = args.iter().map(|arg| arg.replace(node, "worker-1")).collect();
        let args: Vec<_> = args.iter().map(String::as_str).skip_while(|arg| *arg == "kubectl").collect();
        assert_eq!(args[0], "nodegate", "{file}");
        let said = lab.run(&args[1..]);
        assert_eq!(said.code, Some(0), "{file}: {said:#?}");
        assert!(lab.sim.get("pods", "default", "app").is_none(), "{file}");
    }
}
