//! Where the plugin finds a kubeconfig, and a server that it refuses. `kubeconfigs.rs` has every form of one.

use crate::lab::{Lab, Said, program, ready, says};

fn lab() -> Lab {
    Lab::new([("a", says(&ready("a")))])
}

#[test]
fn a_foreign_server_is_refused() {
    let lab = lab();
    lab.sim.rotate_certificate(true, true).unwrap();
    let foreign = lab.run(&[]);
    assert!(foreign.code == Some(3) && foreign.err.contains("invalid peer certificate"), "{foreign:#?}");
}

#[test]
fn kubeconfigs_are_found_as_kubectl_finds_them() {
    let lab = lab();
    let home = lab.dir.path().join("home");
    std::fs::create_dir_all(home.join(".kube")).unwrap();
    lab.sim.write_kubeconfig(&home.join(".kube/config")).unwrap();
    let home = ("HOME", home.to_str().unwrap());
    let list = format!("{}/absent:{}", lab.dir.path().display(), lab.kubeconfig().display());
    for (set, context) in [
        (&[home][..], ""),
        // A file that is not there is left out.
        (&[("KUBECONFIG", &*list)], ""),
        (&[home, ("KUBECONFIG", "")], "--context=sim"),
        // As with kubectl, a server on this machine is behind no proxy.
        (&[home, ("HTTPS_PROXY", "http://127.0.0.1:9")], ""),
    ] {
        let mut command = program();
        command.envs(set.iter().copied()).arg(format!("--port={}", lab.crowd.port()));
        command.arg("--agent-timeout=20s").args((!context.is_empty()).then_some(context));
        let said = Said::of(&command.output().unwrap());
        assert_eq!(said.code, Some(0), "{set:?}: {said:#?}");
    }
}
