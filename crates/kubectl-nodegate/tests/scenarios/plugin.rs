//! kubectl finds the plugin.

use crate::scenario::{Said, Scenario, ready, says};
use std::path::PathBuf;
use std::process::Command;

/// With the kubectl of this machine, or with those of `KUBECTLS`, which has their paths.
#[test]
fn kubectl_finds_the_plugin() {
    let scenario = Scenario::new([("a", says(&ready("a")))]);
    let completion = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/kubectl_complete-nodegate");
    for (name, path) in [
        ("kubectl-nodegate", env!("CARGO_BIN_EXE_kubectl-nodegate")),
        ("kubectl_complete-nodegate", completion),
    ] {
        scenario.script(name, &format!("exec {path} \"$@\""));
    }
    let programs = std::env::var_os("KUBECTLS").unwrap_or_else(|| "kubectl".into());
    for program in std::env::split_paths(&programs).filter(|path| *path != PathBuf::new()) {
        let kubectl =
            |args: &[&str]| Said::of(&scenario.equip(Command::new(&program)).args(args).output().unwrap());
        let version = kubectl(&["version", "--client"]);
        let listed = kubectl(&["plugin", "list", "--name-only"]);
        assert!(listed.out.lines().any(|line| line == "kubectl-nodegate"), "{listed:#?}");
        let port = format!("--port={}", scenario.crowd.port());
        let fleet = kubectl(&["nodegate", &port]);
        assert!(fleet.code == Some(0) && fleet.row("a").starts_with("a Ready"), "{fleet:#?}");
        let wrong = kubectl(&["nodegate", "--bogus"]);
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
            let completed = kubectl(&[&["__completeNoDesc", "nodegate"], words].concat());
            assert_eq!((completed.code, completed.out.as_str()), (Some(0), offers), "{completed:#?}");
        }
        eprintln!("{}", version.out.lines().next().unwrap_or_default());
    }
}
