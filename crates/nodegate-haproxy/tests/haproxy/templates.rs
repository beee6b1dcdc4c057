//! The operator's part of the file: nothing in it reaches the generated sections, and HAProxy reads it as before.

use crate::scenario::Scenario;
use crate::servers::{get, local, node_name};
use nodegate_testbed::network::ports;
use serde_json::json;

/// `defaults` that broke a generated section in the operator's own configuration.
const HOSTILE: &str = include_str!("hostile_defaults.txt");

#[test]
fn hostile_defaults_reach_no_generated_section() {
    let mut scenario = Scenario::new(2);
    let port = scenario.publish();
    // HAProxy lets no section inherit from one with rules by chance.
    let rules = "defaults rules\n  mode http\n  timeout client 1s\n  http-request deny\n";
    for block in HOSTILE.trim_end().split("\n\n").skip(1) {
        let (name, lines) = block.split_once('\n').unwrap();
        let before = scenario.reloads();
        let template = format!("{rules}defaults hostile\n{lines}\n  timeout connect 1s\n");
        std::fs::write(&scenario.template, &template).unwrap();
        scenario.until_reloaded(before);
        assert!(scenario.written().starts_with(&template), "{name}");
        for index in 0..2 {
            let up = || scenario.status("nodegate_nodes", &node_name(index)) == "UP";
            scenario.until(&format!("{name}: node {index} passes its check"), up);
        }
        get(port).unwrap_or_else(|error| panic!("{name}: {error}\n{}", scenario.log()));
        scenario.drain(port, 0);
        scenario.until(&format!("{name}: only the other node serves"), || scenario.reached(port) == [1]);
        scenario.undrain(port, 0);
        scenario.until(&format!("{name}: both serve"), || scenario.reached(port) == [0, 1]);
    }
}

#[test]
fn variables_directory_options_and_sockets_of_the_master_count() {
    let own = ports::free();
    let mut scenario = Scenario::new(1);
    let home = scenario.file("home");
    std::fs::create_dir(&home).unwrap();
    let page = "HTTP/1.0 503 Own\r\n\r\nown page";
    std::fs::write(home.join("503.http"), page).unwrap();
    // Bytes that are not UTF-8, and a variable.
    let mut template = b"# \xff\xfe\ndefaults pages\n  mode http\n  timeout client 5s\n".to_vec();
    template
        .extend(b"  errorfile 503 503.http\nfrontend own\n  bind \"127.0.0.1:${OWN_PORT}\"\n  bind fd@3\n");
    std::fs::write(&scenario.template, template).unwrap();
    // As an operator's HAProxy that has run before: of the same template, and with nothing generated.
    std::fs::copy(&scenario.template, &scenario.config).unwrap();
    let socket = "exec 3<&0; exec env LISTEN_FDS=1 OWN_PORT=$0 \"$@\"";
    let listener = format!(
        "import socket,os,sys\ns=socket.create_server(('127.0.0.1',0))\nos.dup2(s.fileno(),0)\nos.execvp('sh',['sh','-c',{socket:?},'{own}']+sys.argv[1:])"
    );
    scenario.haproxy_command.extend(["-dr", "-C", home.to_str().unwrap()].map(str::to_owned));
    scenario.haproxy_command.splice(0..0, ["python3", "-c", &listener].map(str::to_owned));
    scenario.start_haproxy();
    assert_eq!(get(own), Err("status 503".to_owned()));
    std::fs::remove_file(&scenario.config).unwrap();
    scenario.add_at(own, "thief", &json!({}));
    let port = scenario.add("web", &json!({}));
    scenario.start_program();
    scenario.until("the Service is served", || get(port).is_ok() && scenario.is_ready());
    let body = nodegate_testbed::http::get(local(own), "/").unwrap().body;
    assert!(body.contains("own page"), "the template's part serves as before: {body}");
    scenario.until_metric("nodegate_haproxy_problems{kind=\"busy\"}", 1.0);
}
