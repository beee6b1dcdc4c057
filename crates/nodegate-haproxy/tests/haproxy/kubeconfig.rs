//! hack/haproxy-kubeconfig, in the repository and as a package has it.

use crate::packages::ROOT;
use crate::scenario::Scenario;
use nodegate_testbed::kubectl::Kubectl;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

pub(crate) fn run(script: &Path, of: &Scenario, arguments: &[&str], succeeds: bool) -> (String, String) {
    let output = Command::new(script).args(arguments).env("KUBECONFIG", of.kubeconfig()).output().unwrap();
    let [out, error] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!(output.status.success(), succeeds, "{arguments:?}: {out}\n{error}");
    (out, error)
}

fn rights(kubectl: &Kubectl) -> String {
    let list = |what: &str| -> Vec<Value> {
        let text = kubectl.must(&["get", what, "--all-namespaces", "--output=json"]);
        serde_json::from_str::<Value>(&text).unwrap()["items"].as_array().unwrap().clone()
    };
    let roles = [list("clusterroles"), list("roles")].concat();
    let words = |list: &Value| serde_json::from_value::<Vec<String>>(list.clone()).unwrap().join(" ");
    let right = |rule: &Value| {
        assert_eq!(rule["apiGroups"], json!([""]), "{rule}");
        match words(&rule["verbs"]).as_str() {
            "get list watch" => words(&rule["resources"]),
            verbs => format!("{verbs} {}", words(&rule["resources"])),
        }
    };
    let mut rights = Vec::new();
    for binding in [list("clusterrolebindings"), list("rolebindings")].concat() {
        let subject = &binding["subjects"][0];
        if subject["name"] == "nodegate-haproxy" {
            assert_eq!(subject["namespace"], "nodegate");
            let role =
                roles.iter().find(|role| role["metadata"]["name"] == binding["roleRef"]["name"]).unwrap();
            let all: Vec<String> = role["rules"].as_array().unwrap().iter().map(right).collect();
            let namespace = binding["metadata"]["namespace"].as_str().unwrap_or("all");
            rights.push(format!("{namespace}: {}", all.join(", ")));
        }
    }
    rights.sort();
    rights.join("; ")
}

#[test]
fn the_script_makes_and_removes_an_account_with_the_rights_it_names() {
    let scenario = Scenario::new(1);
    let kubectl = scenario.admin();
    for namespace in ["shop", "web"] {
        kubectl.must(&["create", "namespace", namespace]);
    }
    // As the package has it.
    let packaged = scenario.file("share");
    std::fs::create_dir_all(packaged.join("manifests")).unwrap();
    let from = Path::new(ROOT).join("manifests/publish-status.yaml");
    std::fs::copy(from, packaged.join("manifests/publish-status.yaml")).unwrap();
    let script = packaged.join("haproxy-kubeconfig");
    std::fs::copy(Path::new(ROOT).join("hack/haproxy-kubeconfig"), &script).unwrap();

    let (kubeconfig, error) = run(&script, &scenario, &[], true);
    assert!(error.contains("is an address of this machine; --server"), "{error}");
    assert!(kubeconfig.contains("server: https://127.0.0.1"), "{kubeconfig}");
    assert_eq!(rights(&kubectl), "all: nodes; all: services");
    // What an earlier run granted is taken back.
    let status = "patch services/status, create events";
    for (arguments, of_services) in [
        ("--namespaces shop,web", "shop: services; web: services"),
        ("--publish-status --namespaces shop", &format!("shop: {status}; shop: services")),
        ("--publish-status --namespaces web", &format!("web: {status}; web: services")),
        ("--publish-status", &format!("all: {status}; all: services")),
        ("", "all: services"),
    ] {
        let words = ["--server", "https://10.0.0.5:6443"].into_iter().chain(arguments.split_whitespace());
        let (kubeconfig, error) = run(&script, &scenario, &words.collect::<Vec<_>>(), true);
        assert!(!error.contains("is an address of this machine"), "{error}");
        assert!(kubeconfig.contains("server: https://10.0.0.5:6443\n"), "{kubeconfig}");
        assert_eq!(rights(&kubectl), format!("all: nodes; {of_services}"));
    }

    for (arguments, message) in [
        (&["--server", "10.0.0.5"][..], "--server 10.0.0.5 is not an https:// URL"),
        (&["--server"], "--server needs a URL"),
        (&["--help"], "haproxy-kubeconfig --remove"),
    ] {
        let (out, error) = run(&script, &scenario, arguments, false);
        assert!(out.is_empty() && error.contains(message), "{error}");
    }

    run(&script, &scenario, &["--remove"], true);
    assert_eq!(rights(&kubectl), "");
    let left = "secrets,serviceaccounts,clusterroles,clusterrolebindings,rolebindings";
    let left = kubectl.must(&["get", left, "--all-namespaces", "--output=name"]);
    assert!(!left.contains("nodegate-haproxy"), "{left}");
}
