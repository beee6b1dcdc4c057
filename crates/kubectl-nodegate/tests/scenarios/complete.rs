//! Shell completion through kubectl.

use crate::lab::{Lab, Said, program, ready, says};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

fn lab() -> Lab {
    Lab::new(["edge-1", "worker-1", "worker-2"].map(|node| (node, says(&ready(node)))))
}

/// Returns the program as kubectl runs it.
fn asked(kubeconfig: &Path, words: &[&str]) -> Command {
    let mut command = program();
    command.arg0("/usr/local/bin/kubectl_complete-nodegate").env("KUBECONFIG", kubeconfig).args(words);
    command
}

/// Returns the candidates without their meanings, and the line for the shell.
fn offered(kubeconfig: &Path, words: &[&str]) -> Vec<String> {
    let said = Said::of(&asked(kubeconfig, words).output().unwrap());
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{words:?}: {said:#?}");
    said.out.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
}

#[test]
fn commands_nodes_flags_and_values_are_offered() {
    let lab = lab();
    let kubeconfig = lab.kubeconfig();
    for (words, offers) in [
        (&[""][..], &["wait", "drain", "uncordon", "edge-1", "worker-1", "worker-2", ":4"][..]),
        (&["w"], &["wait", "worker-1", "worker-2", ":4"]),
        (&["drain", "w"], &["worker-1", "worker-2", ":4"]),
        (&["drain", "worker-1", ""], &["edge-1", "worker-2", ":4"]),
        (&["edge-1", "w"], &["worker-1", "worker-2", ":4"]),
        (&["drain", "--fall", "w"], &[":4"]),
        (&["drain", "--fall", "3", "e"], &["edge-1", ":4"]),
        (&["drain", "--mi"], &["--min-ready", ":4"]),
        (&["uncordon", "--mi"], &[":4"]),
        (&["drain", "--for", ""], &["told", "released", ":4"]),
        (&["wait", "worker-1", "--for=r"], &["released", "ready", ":4"]),
        (&["-o", ""], &["table", "wide", "json", "yaml", "name", ":4"]),
        (&["-w", "e"], &["edge-1", ":4"]),
        (&["--bogus", "e"], &["edge-1", ":4"]),
        (&["--bogus=1"], &[":4"]),
        (&["--kubeconfig", "/e"], &[":0"]),
        (&["drain", "edge-1", "--", "--del"], &[":4"]),
        (&["drain", "edge-1", "--", "w"], &[":4"]),
        (&["--context=other", "e"], &[":4"]),
    ] {
        assert_eq!(offered(&kubeconfig, words), offers, "{words:?}");
    }
    let file = kubeconfig.to_str().unwrap();
    assert_eq!(offered(Path::new("/nonexistent"), &["drain", "--kubeconfig", file, "e"]), ["edge-1", ":4"]);
    assert_eq!(
        offered(Path::new("/nonexistent"), &["drain", &format!("--kubeconfig={file}"), "e"]),
        ["edge-1", ":4"]
    );

    let said = Said::of(&asked(&kubeconfig, &["unc"]).output().unwrap());
    assert_eq!(said.out, "uncordon\tBrings nodes back, and waits until every balancer has been told\n:4\n");
    let said = Said::of(&asked(&kubeconfig, &["--watch"]).output().unwrap());
    assert!(said.out.starts_with("--watch\tKeeps running: on a terminal"), "{said:#?}");
}

#[test]
fn without_a_cluster_the_other_words_are_offered() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let cluster = |server: &str| {
        format!(
            "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
         clusters: [{{name: c, cluster: {{server: \"{server}\"}}}}], users: [{{name: u, user: {{token: t}}}}]}}"
        )
    };
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    for text in
        ["]", &cluster("https://127.0.0.1:1"), &cluster(&format!("https://{}", silent.local_addr().unwrap()))]
    {
        std::fs::write(&kubeconfig, text).unwrap();
        let began = Instant::now();
        assert_eq!(offered(&kubeconfig, &["u"]), ["uncordon", ":4"], "{text}");
        // The API server itself may take 30 s.
        assert!(began.elapsed() < Duration::from_secs(15), "{text}: {:?}", began.elapsed());
    }
    // Under its own name the program runs its usual commands.
    let said = Said::of(&program().arg("u").output().unwrap());
    assert_eq!(said.code, Some(3), "{said:#?}");
}
