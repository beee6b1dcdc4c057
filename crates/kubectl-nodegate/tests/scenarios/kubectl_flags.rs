//! The flags of kubectl and of kubectl drain, which the plugin accepts and passes on.

use crate::drain::{Scene, add_pod, cluster, is_cordoned};
use crate::lab::{Lab, Said, says};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;

/// A lab in which kubectl is a script that records its arguments, and does nothing else.
struct Noted {
    lab: Lab,
    path: String,
}

impl Noted {
    fn new() -> Self {
        let lab =
            cluster(Scene { acknowledged: 1, ..Scene::default() }, &["worker-1", "worker-2", "worker-3"]);
        let bin = lab.dir.path().join("noting");
        std::fs::create_dir(&bin).unwrap();
        let words = lab.dir.path().join("words");
        let script = format!("#!/bin/sh\necho \"$@\" >>{}\n", words.display());
        std::fs::write(bin.join("kubectl"), script).unwrap();
        std::fs::set_permissions(bin.join("kubectl"), std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        Self { lab, path }
    }

    /// Returns the program's output, and the arguments of each kubectl that it called.
    fn run(&self, args: &[&str]) -> (Said, Vec<String>) {
        let file = self.lab.dir.path().join("words");
        let _ = std::fs::remove_file(&file);
        let said = Said::of(&self.lab.command(args).env("PATH", &self.path).output().unwrap());
        let words = std::fs::read_to_string(file).unwrap_or_default();
        (said, words.lines().map(str::to_owned).collect())
    }
}

#[test]
fn each_flag_of_kubectl_drain_is_passed_on() {
    let noted = Noted::new();
    let flags = [
        "--delete-emptydir-data",
        "--force",
        "--grace-period=-1",
        "--pod-selector=app!=db",
        "--disable-eviction",
        "--skip-wait-for-delete-timeout=7",
        "--timeout=90s",
        "--request-timeout=7s",
        "--as=ann",
        "--as-group=ops",
        "--as-group=system:masters",
    ];
    let (said, words) = noted.run(&[&["drain", "worker-1"][..], &flags].concat());
    assert_eq!(said.code, Some(0), "{said:#?}");
    assert_eq!(words.len(), 2, "the rehearsal and the drain: {words:#?}");
    for words in &words {
        for flag in flags.iter().chain(&["--ignore-daemonsets", "--context=sim"]) {
            assert!(words.split(' ').any(|word| word == *flag), "no {flag} in {words}");
        }
    }
    assert!(words[0].ends_with("--dry-run=client") && !words[1].contains("--dry-run"), "{words:#?}");
    // A switch that is off is passed on as off. The agent's own `DaemonSet` is no obstacle, unless the
    // operator asks for that.
    let (_, words) = noted.run(&["drain", "worker-2", "--ignore-daemonsets=false", "--force=false"]);
    assert!(words[0].contains("--ignore-daemonsets=false --force=false"), "{words:#?}");
}

#[test]
fn a_drain_selects_nodes_by_labels() {
    let noted = Noted::new();
    for node in ["worker-3", "worker-1"] {
        noted.lab.sim.label(node, "pool", Some("edge"));
    }
    let (said, words) = noted.run(&["drain", "-l", "pool=edge"]);
    assert_eq!(said.code, Some(0), "{said:#?}");
    let nodes: Vec<_> = words.iter().map(|words| words.split(' ').nth(1).unwrap()).collect();
    assert_eq!(nodes, ["worker-1", "worker-1", "worker-3", "worker-3"]);
    assert!(!is_cordoned(&noted.lab, "worker-2"));
    let none = noted.lab.run(&["drain", "-l", "pool=core"]);
    assert_eq!(
        none.err,
        "kubectl-nodegate: --selector \"pool=core\": the cluster has no Node with these labels; kubectl get nodes --show-labels lists them\n"
    );
}

#[test]
fn a_dry_run_shows_every_step_and_changes_nothing() {
    let lab =
        cluster(Scene { acknowledged: 2, sessions: Some(15), ..Scene::default() }, &["worker-1", "worker-2"]);
    for (how, pods) in [
        ("client", "evicting pod default/app (dry run)"),
        ("server", "evicting pod default/app (server dry run)"),
    ] {
        let said = lab.run(&["drain", "worker-1", "--for=released", &format!("--dry-run={how}")]);
        assert_eq!(said.code, Some(0), "{said:#?}");
        for part in [
            "would cordon it",
            "would wait for 10.0.0.1 /health, probes every 500 ms",
            "would wait for 10.0.0.2 /health",
            "would wait for the last session: 15 now",
            "would run kubectl drain worker-1 --ignore-daemonsets --context=sim",
            pods,
            "dry run: nothing was done to it",
        ] {
            assert!(said.out.contains(part), "no {part:?} in {said:#?}");
        }
        assert!(!is_cordoned(&lab, "worker-1") && lab.sim.get("pods", "default", "app").is_some());
    }
    add_pod(&lab.sim, "bare", "worker-1", false);
    let refused = lab.run(&["drain", "worker-1", "--dry-run=client"]);
    assert!(refused.code == Some(1) && refused.out.contains("kubectl drain ended with"), "{refused:#?}");
    // A dry run is refused where a drain would be.
    lab.crowd.now("worker-1", says(&json!({"node": "x"})));
    assert_eq!(lab.run(&["drain", "worker-1", "--dry-run=client"]).code, Some(3));
}
