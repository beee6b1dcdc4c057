//! The versions of HAProxy that are supported.

use nodegate_testbed::programs::system;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

/// Runs the program with a HAProxy that prints this version.
fn started_with(says: &str) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let haproxy = dir.path().join("haproxy");
    std::fs::write(&haproxy, format!("#!/bin/sh\necho '{says}'\n")).unwrap();
    std::fs::set_permissions(&haproxy, std::fs::Permissions::from_mode(0o755)).unwrap();
    // There is no cluster, so the program ends in any case.
    let kubeconfig = dir.path().join("kubeconfig");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nodegate-haproxy"));
    command.args(["--once", "--haproxy"]).arg(haproxy).arg("--config").arg(dir.path().join("haproxy.cfg"));
    command.args(["--before", "none", "--state-dir"]).arg(dir.path());
    command.env("KUBECONFIG", kubeconfig).output().unwrap()
}

#[test]
fn one_that_is_too_old_is_refused_in_one_line() {
    for says in ["HA-Proxy version 2.2.9-2+deb11u6 2023/12/23", "HAProxy version 2.5.14 2023/04/29"] {
        let output = started_with(says);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        assert!(
            said.contains("2.6 or later") && said.contains(&says[says.find("2.").unwrap()..][..3]),
            "{said}"
        );
    }
}

/// Returns the version that the tested HAProxy prints.
pub(crate) fn version() -> String {
    let output = system("haproxy").arg("-v").output().expect("haproxy runs (hack/install-tools)");
    String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned()
}
