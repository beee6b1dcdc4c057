//! Wrong settings: the program reports all at once, one per line, and exits with code 2.

use std::process::Command;

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_nodegate-haproxy")).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn every_mistake_is_named_on_a_line_of_its_own() {
    let wrong = [
        ("--config", "/nowhere/haproxy.cfg", "directory that exists"),
        ("--before", "/nowhere/haproxy.cfg", "that exist, or none"),
        ("--state-dir", "/dev/null/state", "can't be made"),
        ("--state-file", "/tmp/a b", "absolute path"),
        ("--prefix", "a_b", "lower-case letters"),
        ("--reload-timeout", "1h", "takes a duration from 1s to 2m"),
        ("--namespaces", "a,B", "names of namespaces"),
        ("--bind", "::,x", "list of IP addresses"),
        ("--reserved-ports", "70000", "list of ports"),
        ("--mode", "udp", "takes tcp or http"),
        ("--balance", "static-rr", "takes roundrobin"),
        ("--address-types", "Hostname", "InternalIP and ExternalIP"),
        ("--check-port", "0", "takes a port"),
        ("--check-path", "/a b", "takes a path"),
        ("--check-interval", "1ms", "takes a duration"),
        ("--agent-check-port", "x", "0 for none"),
        ("--local-check", "x", "auto or nodegate"),
        ("--max-removal", "101", "percentage"),
        ("--last-resort", "x", "all, drained or none"),
        ("--listen", "25003", "an address and a port"),
        ("--log-format", "xml", "takes text or json"),
        ("--service-selector", "a\nb", "label selector"),
        ("--publish", "none", "takes load-balancers, all or annotated"),
        ("--bind-allow", "a", "namespaces with names of addresses"),
        ("--ports", "a=0", "namespaces with ports"),
        ("--publish-status", "0.0.0.0", "list of IP addresses and host names"),
        ("--lease", "a/b/c", "takes a name, or a namespace and a name"),
        ("--load-balancer-class", "a b", "loadBalancerClass"),
        ("--drain-on", "cordon", "takes unschedulable, deleting"),
    ];
    let arguments: Vec<&str> = wrong.iter().flat_map(|(flag, value, _)| [*flag, *value]).collect();
    let (code, _, stderr) = run(&arguments);
    assert_eq!(code, Some(2), "{stderr}");
    assert_eq!(stderr.lines().count(), wrong.len(), "{stderr}");
    for (flag, _, takes) in wrong {
        let start = format!("nodegate-haproxy: {flag} (");
        let named = stderr.lines().any(|line| line.starts_with(&start) && line.contains(takes));
        assert!(named, "{flag}: {takes}\n{stderr}");
    }
}

#[test]
fn help_teaches_and_what_contradicts_itself_is_refused() {
    let (code, stdout, _) = run(&["--help"]);
    assert_eq!(code, Some(0));
    for word in ["nodegate.io/haproxy-port", "--max-removal", "haproxy -W -S", "EXIT CODES"] {
        assert!(stdout.contains(word), "{word}");
    }
    let (code, _, stderr) = run(&["--print", "--once"]);
    assert_eq!((code, stderr.lines().count()), (Some(2), 1), "{stderr}");
    // The operator's own file is not written, under any name.
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join("haproxy.cfg");
    std::fs::write(&own, "listen web\n").unwrap();
    let link = dir.path().join("link.cfg");
    std::os::unix::fs::symlink(&own, &link).unwrap();
    let words = ["--print", "--config", link.to_str().unwrap(), "--before", own.to_str().unwrap()];
    let (code, _, stderr) = run(&words);
    assert_eq!((code, stderr.lines().count()), (Some(2), 1), "{stderr}");
    assert!(stderr.contains("--before none"), "{stderr}");
    for (words, error) in [
        (
            &["--publish-status=web=10.0.0.1"][..],
            "--publish-status (NODEGATE_HAPROXY_PUBLISH_STATUS) \"web\": no",
        ),
        (&["--bind=a=0.0.0.0", "--publish-status=10.0.0.1"], "has no address for a="),
        (&["--bind=::,a=10.0.0.1", "--publish-status=a=10.0.0.1"], "has no address without a name"),
    ] {
        let (code, _, stderr) = run(&[&["--print", "--before=none"], words].concat());
        assert!(code == Some(2) && stderr.contains(error), "{words:?}: {stderr}");
    }
    let (code, _, stderr) = run(&["--print", "--master-socket", "/a", "--reload-command", "b"]);
    assert_eq!((code, stderr.lines().count()), (Some(2), 1), "{stderr}");
}
