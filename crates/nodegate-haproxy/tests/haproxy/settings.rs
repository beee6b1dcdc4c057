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
        ("--reload-interval", "1h", "takes a duration"),
        ("--timeouts", "client=x", "takes timeouts"),
        ("--namespaces", "a,B", "names of namespaces"),
        ("--bind", "::,x", "list of IP addresses"),
        ("--forward", "https=443", "NAME=PORT:NODEPORT"),
        ("--check", "http", "takes agent, tcp or none"),
        ("--node-networks", "10.0.0.0/33", "list of networks"),
        ("--max-removal", "101", "percentage"),
        ("--max-drained", "50", "1% to 100%"),
        ("--listen", "25003", "an IP address and a port"),
        ("--log-format", "xml", "takes text or json"),
        ("--node-selector", "a\nb", "label selector"),
        ("--ports", "a=0", "namespaces with ports"),
        ("--publish-status", "0.0.0.0", "list of IP addresses and host names"),
        ("--field-manager", "a/b", "takes a name"),
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
    for word in ["nodegate.io/haproxy-bind", "--max-removal", "haproxy -W -S", "EXIT CODES"] {
        assert!(stdout.contains(word), "{word}");
    }
    let flags = stdout.lines().filter(|line| line.starts_with("      --")).count();
    assert!(flags <= 24, "{flags} flags");
    let dir = tempfile::tempdir().unwrap();
    let config = format!("--config={}", dir.path().join("haproxy.cfg").display());
    let (code, _, stderr) = run(&[&config, "--forward=a=1:1;a=2:2"]);
    assert!(code == Some(2) && stderr.contains("has two of the name a"), "{stderr}");
}

#[test]
fn a_second_program_on_one_file_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let lock = std::fs::File::create(dir.path().join(".haproxy.cfg.lock")).unwrap();
    lock.lock().unwrap();
    let config = format!("--config={}", dir.path().join("haproxy.cfg").display());
    let (code, _, stderr) = run(&[&config, "--listen=127.0.0.1:0"]);
    assert!(code == Some(1) && stderr.contains("another nodegate-haproxy writes"), "{stderr}");
}
