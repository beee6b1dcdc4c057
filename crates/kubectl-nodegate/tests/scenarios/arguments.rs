//! Mistakes on the command line.

use crate::lab::{Lab, Said, program, ready, says};

fn refused(args: &[&str]) -> String {
    let said = Said::of(&program().args(args).output().unwrap());
    assert_eq!((said.code, said.out.as_str()), (Some(3), ""), "{said:#?}");
    said.err
}

#[test]
fn every_wrong_flag_is_named() {
    assert_eq!(
        refused(&["--port=0", "--via=tunnel", "-o", "xml", "--agent-timeout=1h"]),
        "kubectl-nodegate: --output \"xml\": takes table, wide or json\n\
         kubectl-nodegate: --port \"0\": takes a port from 1 to 65535\n\
         kubectl-nodegate: --via \"tunnel\": takes auto, node or proxy\n\
         kubectl-nodegate: --agent-timeout \"1h\": takes a duration from 100ms to 1m, with its unit: ms, s, m or h\n"
    );
    for (args, said) in [
        (&["Worker_1"][..], "\"Worker_1\" is no name of a node"),
        (&["../../secrets"], "\"../../secrets\" is no name of a node"),
        (&["-n", "a/../b"], "--namespace \"a/../b\": takes the name of a namespace"),
        (&["drain", "a", "--watch"], "unexpected argument '--watch'"),
        (&["-l", "a=b", "a"], "--selector \"a=b\" and a: give names of nodes or a selector, not both"),
        (&["drain", "a", "--", "--context=prod"], "\"--context=prod\" is no name of a node"),
        (
            &["drain", "a", "-l", "x=y"],
            "the argument '[NODE]...' cannot be used with '--selector <SELECTOR>'",
        ),
        (&["drain", "a", "--dry-run=maybe"], "--dry-run \"maybe\": takes none, client or server"),
        (&["drain", "a", "--grace-period=soon"], "--grace-period \"soon\": takes a number of seconds, or -1"),
        (&["drain", "a", "--for=ready"], "--for \"ready\": takes acknowledged or released"),
        (&["drain"], "the following required arguments were not provided"),
        (&["wait", "a", "--fall=3"], "unexpected argument '--fall'"),
        (&["--bogus"], "unexpected argument '--bogus'"),
    ] {
        let error = refused(args);
        assert!(error.contains(said), "{args:?}: {error}");
    }
}

#[test]
fn a_missing_kubeconfig_or_context_is_named() {
    let error = refused(&[]);
    assert_eq!(
        error,
        "kubectl-nodegate: no credentials for the API server: not in a pod (no KUBERNETES_SERVICE_HOST and _PORT), and \
         /nonexistent/.kube/config does not exist; set KUBECONFIG, or give --kubeconfig\n"
    );
    let lab = Lab::new([("a", says(&ready("a")))]);
    let at = format!("the kubeconfig {}", lab.kubeconfig().display());
    let other = lab.run(&["--context=other"]);
    assert_eq!(
        other.err,
        format!("kubectl-nodegate: --context \"other\": {at} has no such context; it has sim\n"),
        "{other:#?}"
    );
}

/// Every error names the setting or the file, and the value.
#[test]
fn mistakes_in_a_kubeconfig_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let text = |current: &str, server: &str, user: &str| {
        format!(
            "{{apiVersion: v1, kind: Config, {current} contexts: [{{name: prod, context: {{cluster: c, user: u}}}}], \
             clusters: [{{name: c, cluster: {{server: \"{server}\"}}}}], users: [{{name: u, user: {user}}}]}}"
        )
    };
    let (current, closed, token) = ("current-context: prod,", "https://127.0.0.1:1", "{token: t}");
    let exec =
        "{exec: {apiVersion: client.authentication.k8s.io/v1, command: absent, interactiveMode: Never}}";
    for (text, said) in [
        (String::new(), "_PORT), and --kubeconfig FILE has no cluster; name another kubeconfig\n"),
        (
            text("", closed, token),
            "FILE has no current-context: set it with kubectl config use-context; it has prod\n",
        ),
        (
            text("current-context: gone,", closed, token),
            "current-context \"gone\": the kubeconfig FILE has no such context; it has prod\n",
        ),
        ("x: [".to_owned(), "--kubeconfig \"FILE\": it is not YAML: line 1 column 4"),
        (
            text(current, "ftp://127.0.0.1:1", token),
            "the kubeconfig FILE, cluster \"c\": server \"ftp://127.0.0.1:1\" is no URL such as https://10.0.0.1:6443\n",
        ),
        (
            text(current, closed, "{token: \"a\\nb\"}"),
            "FILE, user \"u\": token has a character that no token has",
        ),
        (text(current, closed, "{token: 12}"), "FILE, user \"u\": token is a number, and takes text\n"),
        (
            text(current, closed, token),
            "can't list Nodes: the kubeconfig FILE, cluster \"c\": server https://127.0.0.1:1: Connection refused; is this",
        ),
        (
            text(current, closed, exec),
            "the kubeconfig FILE, user \"u\": exec: credential plugin absent: there is no such program",
        ),
        (text(current, closed, "{tokenFile: /absent/token}"), "/absent/token"),
    ] {
        let file = dir.path().join("kubeconfig");
        std::fs::write(&file, &text).unwrap();
        let file = file.to_str().unwrap();
        let error = refused(&["--kubeconfig", file]).replace(file, "FILE");
        assert!(error.contains(said) && error.lines().count() == 1, "{said}: {error}");
        assert!(!error.contains('\u{fffd}'), "{error}");
    }
    let absent = refused(&["--kubeconfig=/absent/kubeconfig"]);
    assert!(absent.contains("--kubeconfig \"/absent/kubeconfig\": No such file"), "{absent}");
}

/// A word that is no command is taken for a node's name.
#[test]
fn a_mistyped_command_is_named() {
    let lab = Lab::new([("a", says(&ready("a")))]);
    for (word, meant) in [("drian", "drain"), ("waits", "wait"), ("version", "--version"), ("help", "--help")]
    {
        let said = lab.run(&[word]);
        let line = format!(
            "kubectl-nodegate: the cluster has no Node {word}; did you mean kubectl nodegate {meant}?\n"
        );
        assert_eq!((said.code, said.err), (Some(3), line));
    }
}
