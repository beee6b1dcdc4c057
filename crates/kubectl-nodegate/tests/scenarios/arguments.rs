//! Mistakes on the command line and in a kubeconfig. `wrong_inputs.txt` of tests/documents has the most frequent ones.

use crate::lab::{Said, program};

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
        (&["../../secrets"][..], "invalid value '../../secrets' for '[NODE]...': takes the name of a Node"),
        (&["-n", "a/../b"], "--namespace \"a/../b\": takes the name of a namespace"),
        (&["drain", "a", "--watch"], "unexpected argument '--watch'"),
        (&["drain", "a", "--", "--context=prod"], "invalid value '--context=prod' for '[NODE]...'"),
        (
            &["drain", "a", "-l", "x=y"],
            "the argument '[NODE]...' cannot be used with '--selector <SELECTOR>'",
        ),
        (&["drain", "a", "--dry-run=maybe"], "--dry-run \"maybe\": takes none, client or server"),
        (&["drain", "a", "--grace-period=soon"], "--grace-period \"soon\": takes a number of seconds, or -1"),
        (&["drain", "a", "--for=ready"], "--for \"ready\": takes acknowledged or released"),
        (&["wait", "a", "--fall=3"], "unexpected argument '--fall'"),
    ] {
        let error = refused(args);
        assert!(error.contains(said), "{args:?}: {error}");
    }
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
    }
}
