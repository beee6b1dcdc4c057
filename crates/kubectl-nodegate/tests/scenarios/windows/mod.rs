//! The plugin for Windows under Wine, in a simulated cluster.

mod wine;

use crate::drain::{Scene, cluster, is_cordoned};
use crate::lab::{Lab, Said};
use wine::{Wine, windows};

/// Runs the plugin with the lab's kubeconfig, and prints its output.
fn run(wine: &Wine, lab: &Lab, args: &[&str]) -> Said {
    let mut command = wine.plugin(lab, args);
    // As in kubectl, a missing file is skipped.
    command.env("KUBECONFIG", format!("C:\\absent;{}", windows(&lab.kubeconfig())));
    let said = wine.run(lab, command);
    eprintln!("> kubectl-nodegate.exe {}\n{}{}exit {:?}\n", args.join(" "), said.out, said.err, said.code);
    said
}

#[test]
#[ignore = "takes Wine and a build for Windows: make plugin-test PLATFORM=windows-amd64"]
fn the_plugin_for_windows_drains_under_wine() {
    let wine = &Wine::new();
    let lab = cluster(Scene { told: 2, ..Scene::default() }, &["worker-1", "worker-2"]);
    let fleet = run(wine, &lab, &[]);
    assert!(fleet.code == Some(0) && fleet.row("worker-1").starts_with("worker-1 Ready"), "{fleet:#?}");
    assert!(!fleet.out.contains('\u{1b}'), "a pipe is no console: {fleet:#?}");

    let rehearsed = run(wine, &lab, &["drain", "worker-1", "--dry-run=client"]);
    assert_eq!(rehearsed.code, Some(0), "{rehearsed:#?}");
    for part in ["would cordon it", "would wait for 10.0.0.1 /health", "evicting pod default/app (dry run)"] {
        assert!(rehearsed.out.contains(part), "no {part:?} in {rehearsed:#?}");
    }
    assert!(!is_cordoned(&lab, "worker-1") && lab.sim.get("pods", "default", "app").is_some());

    let drained = run(wine, &lab, &["drain", "worker-1"]);
    assert_eq!(drained.code, Some(0), "{drained:#?}");
    assert!(is_cordoned(&lab, "worker-1") && lab.sim.get("pods", "default", "app").is_none());
    assert_eq!(run(wine, &lab, &["uncordon", "worker-1"]).code, Some(0));

    // As in kubectl, a home directory without a kubeconfig is skipped.
    let by_home = || {
        let mut command = wine.plugin(&lab, &["worker-1"]);
        command.env("HOME", windows(lab.dir.path()));
        wine.run(&lab, command)
    };
    let none = by_home();
    assert!(none.code == Some(3) && none.err.contains("no kubeconfig"), "{none:#?}");
    let directory = wine.user_profile().join(".kube");
    std::fs::create_dir(&directory).unwrap();
    std::fs::copy(lab.kubeconfig(), directory.join("config")).unwrap();
    assert_eq!(by_home().code, Some(0));
}
