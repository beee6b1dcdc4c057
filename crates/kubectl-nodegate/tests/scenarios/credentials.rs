//! Kubeconfigs of every kind, over TLS.

use crate::lab::{Lab, Said, program, ready, says};
use nodegate_kube_sim::ADMIN_TOKEN;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;

fn lab() -> Lab {
    Lab::new([("a", says(&ready("a")))])
}

/// Runs the program with this user.
fn with(lab: &Lab, user: &Value) -> Said {
    let file = lab.file("user.kubeconfig", &lab.sim.kubeconfig_as(user));
    lab.run(&[&format!("--kubeconfig={}", file.display()), "--via=proxy"])
}

#[test]
fn tokens_certificates_and_plugins_are_accepted() {
    let lab = lab();
    let token_file = lab.file("token", ADMIN_TOKEN);
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": ADMIN_TOKEN},
    });
    let plugin = lab.file("plugin", &format!("#!/bin/sh\n[ \"$WHO\" = me ] && echo '{credential}'\n"));
    std::fs::set_permissions(&plugin, std::fs::Permissions::from_mode(0o755)).unwrap();
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": plugin, "interactiveMode": "Never",
        "env": [{"name": "WHO", "value": "me"}],
    });
    for user in [
        json!({"token": ADMIN_TOKEN}),
        json!({"tokenFile": token_file}),
        lab.sim.client_certificate().unwrap(),
        json!({"exec": exec}),
        // kubectl no longer has providers, but kubeconfigs still contain their tokens, which stay valid for
        // some time.
        json!({"auth-provider": {"name": "oidc", "config": {"id-token": id_token()}}}),
    ] {
        if user.get("auth-provider").is_some() {
            assert!(lab.sim.rotate_token(ADMIN_TOKEN, &id_token()));
        }
        let said = with(&lab, &user);
        assert_eq!(said.code, Some(0), "{user}: {said:#?}");
    }
}

/// Returns a token of some user that does not expire.
fn id_token() -> String {
    // {"alg":"none"} and {"exp":4102444800}
    "eyJhbGciOiJub25lIn0.eyJleHAiOjQxMDI0NDQ4MDB9.c2lnbmF0dXJl".to_owned()
}

#[test]
fn bad_credentials_are_an_error_of_one_line() {
    let lab = lab();
    let failing = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/false", "interactiveMode": "Never",
    }});
    for (user, error) in [
        (json!({"token": "wrong"}), ": the API server refuses the credentials of the kubeconfig "),
        (json!({}), ", user \"sim\": the API server gets no credentials; give it a token, "),
        (
            failing,
            "credential plugin /bin/false: it failed (exit status: 1), and printed no error; run it by hand",
        ),
    ] {
        let said = with(&lab, &user);
        assert_eq!((said.code, said.out.as_str()), (Some(3), ""), "{said:#?}");
        assert!(said.err.contains(error) && said.err.lines().count() == 1, "{error}: {said:#?}");
    }
    // A certificate of another server.
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
    let port = format!("--port={}", lab.crowd.port());
    let run = |set: &[(&str, &str)], args: &[&str]| {
        Said::of(
            &program()
                .envs(set.iter().copied())
                .arg(&port)
                .arg("--agent-timeout=20s")
                .args(args)
                .output()
                .unwrap(),
        )
    };
    let home = home.to_str().unwrap();
    let list = format!("{}/absent:{}", lab.dir.path().display(), lab.kubeconfig().display());
    assert_eq!(run(&[("HOME", home)], &[]).code, Some(0));
    let listed = run(&[("KUBECONFIG", &list)], &[]);
    assert_eq!(listed.code, Some(0), "a file that is not there is left out: {listed:#?}");
    assert_eq!(run(&[("HOME", home), ("KUBECONFIG", "")], &["--context=sim"]).code, Some(0));
    // As with kubectl, a server on this machine is behind no proxy.
    let proxied = [("HOME", home), ("HTTPS_PROXY", "http://127.0.0.1:9")];
    assert_eq!(run(&proxied, &[]).code, Some(0));
}
