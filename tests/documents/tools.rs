//! hack/install-tools, with placeholders for apt-get and kubectl.
//!
//! The test needs root for its private mount namespace.

use nodegate_testbed::needs_root;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Runs hack/install-tools on a machine with an empty /usr/sbin and these programs. Returns true if it
/// succeeded, and its stderr.
fn install(tool: &str, programs: &[(&str, &str)], before: &str) -> (bool, String) {
    needs_root("a mount namespace");
    let stands_in = tempfile::tempdir().unwrap();
    for (name, script) in programs {
        let file = stands_in.path().join(name);
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(file, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let script = format!(
        "mount -t tmpfs nodegate-test /usr/sbin; {before}
         PATH={}:$PATH hack/install-tools {tool}; ended=$?
         ls /usr/sbin >&2; exit $ended",
        stands_in.path().display()
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
    let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    (output.status.success(), String::from_utf8(output.stderr).unwrap())
}

const APT_GET: (&str, &str) =
    ("apt-get", "[ \"$1\" = update ] || { /usr/sbin/policy-rc.d; echo \"policy $?; $*\" >&2; }");

#[test]
fn install_tools_starts_no_daemon_and_removes_its_policy() {
    let (installed, said) = install("haproxy", &[APT_GET], "");
    let expected = "policy 101; install -y -qq --no-install-recommends haproxy\n";
    assert_eq!((installed, said.as_str()), (true, expected));
}

#[test]
fn install_tools_keeps_an_existing_policy() {
    let own = "printf '#!/bin/sh\\nexit 7\\n' >/usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d";
    let (installed, said) = install("haproxy", &[APT_GET], own);
    let expected = "policy 7; install -y -qq --no-install-recommends haproxy\npolicy-rc.d\n";
    assert_eq!((installed, said.as_str()), (true, expected));
}

#[test]
fn install_tools_reports_an_outdated_kubectl() {
    let kubectl = |version: &str| {
        install("kubectl", &[("kubectl", &format!("[ $1 = version ] && printf '{version}\\n'"))], "")
    };
    let debian_12 = "clientVersion:\\n  gitVersion: v1.20.2";
    let (enough, said) = kubectl(debian_12);
    assert!(!enough && said.contains("is v1.20.2; the tests need 1.27 or later"), "{said}");
    let (enough, said) = kubectl("clientVersion:\\n  gitVersion: v1.26.0\\nkustomizeVersion: v4.5.7");
    assert!(!enough && said.contains("is v1.26.0; "), "{said}");
    let (enough, said) = kubectl("clientVersion:\\n  gitVersion: v1.27.0\\nkustomizeVersion: v5.0.1");
    assert_eq!((enough, said.as_str()), (true, ""));
    let (enough, said) = install("kubectl", &[("kubectl", "exit 1")], "");
    assert!(!enough && said.contains("is unknown; "), "{said}");
}
