//! kubectl finds the plugin.

use crate::lab::{Lab, Said, ready, says};
use std::path::PathBuf;
use std::process::Command;

fn kubectl(lab: &Lab, kubectl: &str, args: &[&str]) -> Said {
    Said::of(&lab.equip(Command::new(kubectl)).args(args).output().unwrap())
}

fn check(lab: &Lab, program: &str) -> String {
    let completion = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/kubectl_complete-nodegate");
    for (name, path) in [
        ("kubectl-nodegate", env!("CARGO_BIN_EXE_kubectl-nodegate")),
        ("kubectl_complete-nodegate", completion),
    ] {
        lab.script(name, &format!("exec {path} \"$@\""));
    }
    let version = kubectl(lab, program, &["version", "--client"]);
    let listed = kubectl(lab, program, &["plugin", "list", "--name-only"]);
    assert!(listed.out.lines().any(|line| line == "kubectl-nodegate"), "{listed:#?}");
    let port = format!("--port={}", lab.crowd.port());
    let fleet = kubectl(lab, program, &["nodegate", &port]);
    assert!(fleet.code == Some(0) && fleet.row("a").starts_with("a Ready"), "{fleet:#?}");
    let wrong = kubectl(lab, program, &["nodegate", "--bogus"]);
    assert_eq!(wrong.code, Some(3), "its exit code is kubectl's: {wrong:#?}");
    for (words, offers) in [
        (&[""][..], "wait\ndrain\ncheck\nuncordon\na\n:4\n"),
        (&["drain", "--for", ""], "acknowledged\nreleased\n:4\n"),
        (&["drain", "--min"], "--min-ready\n:4\n"),
        (&["drain", "--via=p"], "proxy\n:4\n"),
        (&["drain", "--cascade"], ":4\n"),
        (&["--kubeconfig", ""], ":0\n"),
        (&["drain", "--for=acknowledged", "--context", "sim", ""], "a\n:4\n"),
    ] {
        let completed = kubectl(lab, program, &[&["__completeNoDesc", "nodegate"], words].concat());
        assert_eq!((completed.code, completed.out.as_str()), (Some(0), offers), "{completed:#?}");
    }
    version.out.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn kubectl_finds_the_plugin() {
    let lab = Lab::new([("a", says(&ready("a")))]);
    check(&lab, "kubectl");
}

/// `KUBECTLS` contains the paths.
#[test]
#[ignore = "fetches kubectl of ten releases: make plugin-test"]
fn kubectl_of_every_release_finds_the_plugin() {
    let lab = Lab::new([("a", says(&ready("a")))]);
    let listed = std::env::var("KUBECTLS").expect("KUBECTLS=<paths, separated by colons>");
    for program in std::env::split_paths(&listed).filter(|path| *path != PathBuf::new()) {
        eprintln!("{}", check(&lab, program.to_str().unwrap()));
    }
}
