//! The account that hack/haproxy-kubeconfig makes for nodegate-haproxy, judged by a real authorizer.

use nodegate_testbed::kubectl::Kubectl;
use nodegate_testbed::programs::must_run;
use nodegate_testbed::real_cluster::{RealCluster, ServerRoute, seen};
use std::fs;
use std::process::Command;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/hack/haproxy-kubeconfig");
const NAMESPACES: [&str; 2] = ["shop", "web"];

fn script(cluster: &RealCluster, arguments: &[&str]) -> String {
    let mut script = Command::new(SCRIPT);
    must_run(script.args(arguments).env("KUBECONFIG", cluster.kubectl.kubeconfig()))
}

fn may(account: &Kubectl, allowed: &[&str], denied: &[&str]) {
    for (questions, answer) in [(allowed, true), (denied, false)] {
        for question in questions {
            let words = ["auth", "can-i"].into_iter().chain(question.split(' ')).collect::<Vec<_>>();
            assert_eq!(account.run(&words).is_ok(), answer, "{question}");
        }
    }
}

#[test]
#[ignore = "make real-cluster-test"]
fn the_scripts_account_may_read_what_it_names_and_nothing_else() {
    let cluster = RealCluster::take();
    let files = tempfile::tempdir().unwrap();
    for namespace in NAMESPACES {
        cluster.kubectl.must(&["create", "namespace", namespace]);
    }
    let server = ["--server", ServerRoute::A.url()];
    let account = |more: &[&str]| {
        let kubeconfig = files.path().join("kubeconfig");
        fs::write(&kubeconfig, script(&cluster, &[&server[..], more].concat())).unwrap();
        Kubectl::new(&kubeconfig, files.path())
    };
    let never =
        ["update nodes", "patch services/status -n shop", "list secrets -n nodegate", "list pods -n shop"];
    may(&account(&[]), &["list nodes", "watch nodes", "watch services -A"], &never);

    let limited = account(&["--namespaces", "shop,web"]);
    let allowed = ["list nodes", "list services -n shop", "watch services -n web"];
    may(&limited, &allowed, &[&never[..], &["list services -A", "list services -n default"]].concat());
    limited.must(&["--namespace=shop", "get", "services"]);

    let writes = ["patch services --subresource=status -A", "create events -n shop"];
    let others =
        ["patch services -n shop", "patch nodes --subresource=status", "patch leases/x -n kube-node-lease"];
    may(&account(&["--publish-status"]), &writes, &others);

    script(&cluster, &["--remove"]);
    let refused = limited.run(&["get", "nodes"]).unwrap_err();
    let kinds = "secrets,serviceaccounts,clusterroles,clusterrolebindings,rolebindings";
    let left = cluster.kubectl.must(&["get", kinds, "--all-namespaces", "--output=name"]);
    for namespace in NAMESPACES {
        cluster.kubectl.must(&["delete", "namespace", namespace]);
    }
    assert!(!left.contains("nodegate-haproxy"), "{left}");
    seen("account of hack/haproxy-kubeconfig", format!("as documented; after --remove: {refused}"));
}
