//! The flags of kubectl and of kubectl drain, which the plugin accepts and passes on.

use crate::drain::{DrainSetup, RESPONSIVE, add_bare_pod, cluster, is_cordoned};
use crate::scenario::says;
use serde_json::json;

/// kubectl is a script that records its arguments, and does nothing else.
#[test]
fn each_flag_of_kubectl_drain_is_passed_on() {
    let scenario = cluster(RESPONSIVE, &["worker-1", "worker-2"]);
    let notes = scenario.file("notes");
    scenario.script("kubectl", &format!("echo \"$@\" >>{}", notes.display()));
    let noted = |args: &[&str]| -> Vec<String> {
        let _ = std::fs::remove_file(&notes);
        scenario.run(args).has(0, &[]);
        std::fs::read_to_string(&notes).unwrap().lines().map(str::to_owned).collect()
    };
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
    let words = noted(&[&["drain", "worker-1"][..], &flags].concat());
    assert_eq!(words.len(), 2, "the rehearsal and the drain: {words:#?}");
    for words in &words {
        for flag in flags.iter().chain(&["--ignore-daemonsets", "--context=sim"]) {
            assert!(words.split(' ').any(|word| word == *flag), "no {flag} in {words}");
        }
    }
    assert!(words[0].ends_with("--dry-run=client") && words[1].ends_with("--dry-run=none"), "{words:#?}");
    // A switch that is off is passed on as off, and nodes may be selected by their labels.
    scenario.sim.label("worker-2", "pool", Some("edge"));
    let words = noted(&["drain", "-l", "pool=edge", "--ignore-daemonsets=false", "--force=false"]);
    assert!(words[0].contains("drain worker-2 --ignore-daemonsets=false --force=false"), "{words:#?}");
}

#[test]
fn a_dry_run_shows_every_step_and_changes_nothing() {
    let scenario = cluster(DrainSetup { sessions: Some(15), ..RESPONSIVE }, &["worker-1", "worker-2"]);
    for (how, pods) in [
        ("client", "evicting pod default/app (dry run)"),
        ("server", "evicting pod default/app (server dry run)"),
    ] {
        let parts = [
            "would cordon it",
            "would wait for 10.0.0.1 /health, probes every 500 ms",
            "would wait for the last session: 15 now",
            "would run kubectl drain worker-1 --ignore-daemonsets --context=sim",
            pods,
            "dry run: nothing was done to it",
        ];
        scenario.run(&["drain", "worker-1", "--for=released", &format!("--dry-run={how}")]).has(0, &parts);
        assert!(!is_cordoned(&scenario, "worker-1") && scenario.sim.get("pods", "default", "app").is_some());
    }
    add_bare_pod(&scenario);
    scenario.run(&["drain", "worker-1", "--dry-run=client"]).has(1, &["kubectl drain ended with"]);
    // A dry run is refused where a drain would be.
    scenario.crowd.now("worker-1", says(&json!({"node": "x"})));
    assert_eq!(scenario.run(&["drain", "worker-1", "--dry-run=client"]).code, Some(3));
}
