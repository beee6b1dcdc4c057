//! `haproxy -c` sees what the running master sees, and its time and output are bounded.

use crate::lab::{Lab, get, local};
use crate::traffic::Traffic;
use nodegate_testbed::network::ports;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_has_the_master_s_variables_directory_options_and_sockets() {
    let (own, port) = (ports::free(), ports::free());
    let mut lab = Lab::new(1).await;
    let home = lab.dir.path().join("home");
    std::fs::create_dir(&home).unwrap();
    let page = "HTTP/1.0 503 Own\r\n\r\nown page";
    std::fs::write(home.join("503.http"), page).unwrap();
    // Bytes that are not UTF-8, and a variable.
    let mut template = b"# \xff\xfe\ndefaults pages\n  mode http\n  timeout client 5s\n".to_vec();
    template
        .extend(b"  errorfile 503 503.http\nfrontend own\n  bind \"127.0.0.1:${OWN_PORT}\"\n  bind fd@3\n");
    std::fs::write(&lab.template, template).unwrap();
    // As an operator's HAProxy that has run before: of the same template, and with nothing generated.
    std::fs::copy(&lab.template, &lab.config).unwrap();
    let (config, home) = (lab.config.display().to_string(), home.display().to_string());
    lab.haproxy_arguments = ["-dr", "-C", &home, "-f", &config].map(str::to_owned).to_vec();
    let socket = "exec 3<&0; exec env LISTEN_FDS=1 OWN_PORT=$0 \"$@\"";
    let listener = format!(
        "import socket,os,sys\ns=socket.create_server(('127.0.0.1',0))\nos.dup2(s.fileno(),0)\nos.execvp('sh',['sh','-c',{socket:?},'{own}']+sys.argv[1:])"
    );
    lab.haproxy_by = ["python3", "-c", &listener].map(str::to_owned).to_vec();
    lab.start_haproxy().await;
    assert_eq!(get(own), Err("status 503".to_owned()));
    std::fs::remove_file(&lab.config).unwrap();
    lab.sim.apply(lab.service("thief", own, &json!({}))).unwrap();
    lab.sim.apply(lab.distinct(lab.service("web", port, &json!({}))).await).unwrap();
    lab.start_program();
    lab.until("the Service is served", async || get(port).is_ok() && lab.is_ready()).await;
    let body = nodegate_testbed::http::get(local(own), "/").unwrap().body;
    assert!(body.contains("own page"), "the template's part serves as before: {body}");
    lab.until_metric("nodegate_haproxy_problems{kind=\"reserved\"}", 1.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_that_prints_without_end_or_hangs_is_ended() {
    let mut lab = Lab::new(2).await;
    let haproxy = lab.dir.path().join("haproxy");
    let directory = lab.dir.path().to_owned();
    let script = |text: &str| {
        let new = directory.join("haproxy.new");
        std::fs::write(&new, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::rename(&new, &haproxy).unwrap();
    };
    script("exit 0");
    let arguments = vec!["--haproxy".to_owned(), haproxy.to_string_lossy().into_owned()];
    lab.arguments = arguments;
    let port = lab.publish().await;
    let traffic = Traffic::start(port);
    let (before, _) = lab.memory();
    script("exec yes '[ALERT] no'");
    lab.sim.apply(lab.distinct(lab.service("next", ports::free(), &json!({}))).await).unwrap();
    lab.until_logged("prints more than").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (after, peak) = lab.memory();
    assert!(peak < before + (64 << 10), "{before} kB, then {after} kB, at most {peak} kB");
    script("exit 0");
    lab.until_metric("nodegate_haproxy_pending", 0.0).await;
    let good = traffic.none_lost(&lab);
    let grown = (peak.saturating_sub(before)) >> 10;
    println!(
        "haproxy -c that prints without end: ended after 1 MiB, {grown} MiB more at most; {good} requests, 0 lost"
    );
}
