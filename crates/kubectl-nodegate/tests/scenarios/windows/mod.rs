//! The plugin for Windows under Wine, in simulated clusters.

mod wine;

use crate::drain::{Scene, cluster, is_cordoned};
use crate::lab::{Lab, Said};
use crate::two_clusters::{is_untouched, production, stranger};
use nodegate_kube_sim::ADMIN_TOKEN;
use wine::{Wine, windows};

/// Runs the plugin with the lab's kubeconfig, and prints its output.
fn run(wine: &Wine, lab: &Lab, args: &[&str]) -> Said {
    let mut command = wine.plugin(lab, args);
    // As in kubectl, a missing file is skipped.
    command.env("KUBECONFIG", format!("C:\\absent;{}", windows(&lab.kubeconfig())));
    shown(args, wine.run(lab, command))
}

fn shown(args: &[&str], said: Said) -> Said {
    eprintln!("> kubectl-nodegate.exe {}\n{}{}exit {:?}\n", args.join(" "), said.out, said.err, said.code);
    said
}

#[test]
#[ignore = "takes Wine and a build for Windows: make plugin-test PLATFORM=windows-amd64"]
fn the_plugin_for_windows_drains_under_wine() {
    let wine = Wine::new();
    in_a_cluster(&wine);
    beside_another_cluster(&wine);
    with_other_credentials(&wine);
}

fn in_a_cluster(wine: &Wine) {
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
}

fn beside_another_cluster(wine: &Wine) {
    let prod = production();
    let fleet = run(wine, &prod, &[]);
    assert_eq!(fleet.row("new1"), "new1 Unknown another cluster's agent - - - - -");
    for how in [&["drain", "new1", "--dry-run=client"][..], &["drain", "new1"]] {
        is_untouched(&prod, &run(wine, &prod, how), &stranger(&prod));
    }
}

fn with_other_credentials(wine: &Wine) {
    let lab = cluster(Scene { told: 1, ..Scene::default() }, &["worker-1", "worker-2"]);
    // kubectl gets the token in a file, which it can read.
    let args = ["drain", "worker-1", "--dry-run=client", "--token", ADMIN_TOKEN];
    let rehearsed = run(wine, &lab, &args);
    assert!(
        rehearsed.code == Some(0) && rehearsed.out.contains("evicting pod default/app"),
        "{rehearsed:#?}"
    );
    assert!(!rehearsed.out.contains(ADMIN_TOKEN), "{rehearsed:#?}");

    // As in kubectl, a home directory without a kubeconfig is skipped.
    let alone = || {
        let mut command = wine.plugin(&lab, &["worker-1"]);
        command.env("HOME", windows(lab.dir.path()));
        shown(&["worker-1"], wine.run(&lab, command))
    };
    let none = alone();
    assert!(none.code == Some(3) && none.err.contains("no kubeconfig"), "{none:#?}");
    let directory = wine.user_profile().join(".kube");
    std::fs::create_dir(&directory).unwrap();
    std::fs::copy(lab.kubeconfig(), directory.join("config")).unwrap();
    assert_eq!(alone().code, Some(0));
}
