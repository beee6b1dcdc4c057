//! Balancers that stand before the nodes, each a real program with a documented configuration.

use crate::backend::Backend;
use crate::balancer::{Balancer, Row};
use crate::nodes::{FRONTEND, NODES, Nodes, SERVICE_PORT, configuration, documented, node_address};
use nodegate_testbed::haproxy::{self, Haproxy};
use nodegate_testbed::process::Program;
use nodegate_testbed::programs::{self, must_run, system};
use nodegate_testbed::{ProbeReply, http, until};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// The address at which a balancer before the nodes shows its status.
const STATUS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 30445);

pub(crate) fn haproxy(row: &Row, nodes: &Nodes) -> Balancer {
    let program =
        if row.source == "Debian" { PathBuf::from("haproxy") } else { fetched(row.source, row.name) };
    let configuration = nodes.configuration(row.file);
    let haproxy = nodes.lan.front().act(|| Haproxy::start_as(&program, &configuration));
    Balancer::new(Vec::new(), move |_, node| Some(haproxy.server(NODES[node])?.status))
}

fn front(nodes: &Nodes, command: &mut Command) -> Vec<Program> {
    vec![nodes.lan.front().act(|| Program::start(command))]
}

/// Returns a program from another of Debian's suites, by the version in the row.
fn fetched(source: &str, name: &str) -> PathBuf {
    let directory = must_run(Command::new("hack/install").arg(source).current_dir(ROOT));
    let program = Path::new(directory.trim()).join("haproxy");
    let says = must_run(Command::new(&program).arg("-v"));
    let (_, wanted) = name.split_once(' ').unwrap();
    assert!(says.contains(&format!("version {wanted}.")), "the row is called {name}, and this is {says}");
    program
}

#[test]
fn haproxy_accepts_the_documented_configurations() {
    let dir = tempfile::tempdir().unwrap();
    for name in documented("haproxy") {
        let file = configuration(dir.path(), &name);
        haproxy::check(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// Starts Debian's nginx, whose passive checks see the agent's answer. Without a subscription it has no status.
pub(crate) fn nginx(row: &Row, nodes: &Nodes) -> Balancer {
    let (documented, main) = (nodes.configuration(row.file), nodes.dir().join("nginx.conf"));
    let dir = nodes.dir().display();
    let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {dir}/{kind};"))
        .join(" ");
    let text = format!(
        "pid {dir}/nginx.pid; error_log {dir}/error.log; events {{}}\nhttp {{ access_log off; {paths} include {}; }}\n",
        documented.display()
    );
    fs::write(&main, text).unwrap();
    let mut command = system("nginx");
    command.arg("-e").arg(nodes.dir().join("error.log")).arg("-c").arg(main);
    command.args(["-g", "daemon off; master_process off;"]);
    Balancer::new(front(nodes, &mut command), |_, _| None)
}

#[test]
fn nginx_passes_on_what_the_service_answers_and_counts_no_failure() {
    let nodes = Nodes::start(&[]);
    let _nginx = nginx(&Row::with("nginx/local-servers.conf"), &nodes);
    let (to, _on_client) = (FRONTEND, nodes.lan.client.stay());
    let get = |path: &str| {
        let request = format!("GET {path} HTTP/1.0\r\nhost: x\r\n\r\n");
        Some(ProbeReply::parse(&http::exchange(to, &request, http::TIMEOUT).ok()?)?.status)
    };
    let served = || nodes.backends.iter().map(Backend::connections).sum::<u64>();
    until("nginx to serve", || (get("/") == Some(200)).then_some(()));
    for status in [429, 502, 504, 500, 429] {
        let before = served();
        assert_eq!(get(&format!("/{status}")), Some(status));
        assert_eq!(served(), before + 1, "the request of the {status} was repeated");
        assert_eq!([(); 4].map(|()| get("/")), [Some(200); 4], "after a {status}");
    }
    let mut socket = http::connect(to).unwrap();
    let upgrade = "GET /chat HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n";
    socket.write_all(upgrade.as_bytes()).unwrap();
    let mut lines = BufReader::new(socket.try_clone().unwrap()).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().contains(" 101 "));
    lines.find(String::is_empty);
    socket.write_all(b"hello\n").unwrap();
    assert!(lines.next().unwrap().ends_with(" hello"));
    let body = "x".repeat(3 << 20) + "\n";
    let post = format!("POST / HTTP/1.0\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    assert_eq!(ProbeReply::parse(&http::exchange(to, &post, http::TIMEOUT).unwrap()).unwrap().status, 200);
}

/// Servers as people write them.
const SERVERS: &str = r#"
    server quoted "127.0.0.1:1"
    server prefix ipv4@127.0.0.1:2
    server six [::1]:3
    server long 0:0:0::1:4
    server 'upper' ipv6@[2001:DB8::00A]:5
    server named localhost:6
    server portless 127.0.0.1
    server-template many 1-2 localhost:7
    server moved 127.0.0.1:8
    server variable "${HOME}":9
"#;

#[test]
fn the_documented_filter_keeps_the_states_that_it_can_compare_and_names_the_others() {
    let files = tempfile::tempdir().unwrap();
    let (dir, file) = (files.path().display(), files.path().join("haproxy.cfg"));
    let servers = SERVERS.replace("${HOME}", "127.0.0.1");
    let write = |servers: &str| {
        let global = format!(
            "global\n stats socket {dir}/nodegate.sock level admin\n server-state-file {dir}/server-state\n"
        );
        let defaults = "defaults\n timeout connect 1s\n timeout client 1s\n timeout server 1s\n load-server-state-from-file global\n";
        fs::write(&file, format!("{global}{defaults}backend nodes\n{servers}")).unwrap();
    };
    write(&servers);
    let mut haproxy = Haproxy::start(&file);
    let all = [
        "quoted", "prefix", "six", "long", "upper", "named", "portless", "many1", "many2", "moved",
        "variable",
    ];
    for name in all {
        haproxy.command(&format!("set server nodes/{name} state maint"));
    }
    write(&servers.replace(":8", ":88").replace("\"127.0.0.1\":9", "\"${NODEGATE_TEST_UNSET-127.0.0.1}\":9"));
    let said = haproxy.reload();
    let kept: Vec<&str> =
        all.into_iter().filter(|name| haproxy.server(name).unwrap().administrative == 1).collect();
    assert_eq!(kept, ["quoted", "prefix", "six", "named", "portless", "many1", "many2"], "{said}");
    let named = |name: &&str| said.contains(&format!("not kept: nodes/{name},"));
    assert!(["long", "upper", "moved", "variable"].iter().all(named), "{said}");
}

const APACHE_MODULES: &str = "mpm_event authz_core slotmem_shm proxy proxy_http proxy_balancer proxy_hcheck \
    lbmethod_byrequests status";

/// Starts Debian's Apache httpd with `mod_proxy_hcheck`. Its balancer-manager page has one row per member with its state.
pub(crate) fn apache(row: &Row, nodes: &Nodes) -> Balancer {
    let dir = nodes.dir().display();
    let mut text = format!(
        "ServerName localhost\nServerRoot {dir}\nPidFile {dir}/pid\nDefaultRuntimeDir {dir}\nErrorLog {dir}/error.log\nUser nobody\nGroup nogroup\n"
    );
    for module in APACHE_MODULES.split(' ') {
        let _ = writeln!(text, "LoadModule {module}_module /usr/lib/apache2/modules/mod_{module}.so");
    }
    let _ = write!(
        text,
        "Include {}\nListen {STATUS}\n<VirtualHost {STATUS}>\n<Location />\nSetHandler balancer-manager\n</Location>\n</VirtualHost>\n",
        nodes.configuration(row.file).display()
    );
    let main = nodes.dir().join("apache.conf");
    fs::write(&main, text).unwrap();
    let programs = front(nodes, system("apache2").arg("-DFOREGROUND").arg("-f").arg(main));
    Balancer::new(programs, move |lan, node| {
        let page = lan.router.act(|| http::get(STATUS, "/")).ok()?.body;
        let member = format!("http://127.0.0.1:{}</a>", 8011 + node);
        let row = page.split_once(&member)?.1.split_once("</tr>")?.0;
        let state = row.split("<td>").find(|cell| cell.starts_with("Init"))?;
        Some(format!("`{}`", state.split("</td>").next()?.trim()))
    })
}

/// Returns the command of a program that is not in Debian, or in an older version.
fn pinned(name: &str) -> Command {
    Command::new(programs::fetched(name).expect("hack/install installs it"))
}

/// Starts Caddy. Its metric covers both pools, so it has no status of one node.
pub(crate) fn caddy(row: &Row, nodes: &Nodes) -> Balancer {
    let file = nodes.configuration(row.file);
    let documented = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{{\n\tadmin off\n}}\n{documented}")).unwrap();
    let mut command = pinned("caddy");
    command.args(["run", "--adapter", "caddyfile", "--config"]).arg(file);
    command.env("HOME", nodes.dir()).env("GOMAXPROCS", "1");
    Balancer::new(front(nodes, &mut command), |_, _| None)
}

pub(crate) fn traefik(row: &Row, nodes: &Nodes) -> Balancer {
    let mut command = pinned("traefik");
    command.arg(format!("--entrypoints.ingress.address={FRONTEND}"));
    command.arg(format!("--entrypoints.traefik.address={STATUS}")).arg("--api.insecure=true");
    let file = nodes.configuration(row.file);
    command.arg(format!("--providers.file.filename={}", file.display())).env("GOMAXPROCS", "1");
    // Traefik must not contact its vendor.
    command.args(["--global.checknewversion=false", "--global.sendanonymoususage=false"]);
    let (protocol, scheme) = if row.file.contains("tcp") { ("tcp", "") } else { ("http", "http://") };
    Balancer::new(front(nodes, &mut command), move |lan, node| {
        let path = format!("/api/{protocol}/services/nodes@file");
        let reply = lan.router.act(|| http::get(STATUS, &path)).ok()?;
        let service: Value = serde_json::from_str(&reply.body).ok()?;
        let server = format!("{scheme}{}:{SERVICE_PORT}", node_address(node));
        Some(service["serverStatus"][server].as_str()?.to_owned())
    })
}

/// Envoy's status of a host that no check has failed.
const HEALTHY: &str = "healthy";

/// Starts Envoy with a documented configuration and an admin port that shows the status of each node.
pub(crate) fn envoy(row: &Row, nodes: &Nodes) -> Balancer {
    let mut command = pinned("envoy");
    command.arg("-c").arg(nodes.configuration(row.file));
    command.args(["--log-level", "off", "--use-dynamic-base-id", "--concurrency", "1"]);
    command.arg("--config-yaml").arg(format!(
        "admin: {{address: {{socket_address: {{address: {}, port_value: {}}}}}}}",
        STATUS.ip(),
        STATUS.port()
    ));
    let envoy = Balancer::new(front(nodes, &mut command), move |lan, node| {
        // Envoy refuses HTTP/1.0.
        let request = "GET /clusters HTTP/1.1\r\nhost: envoy\r\nconnection: close\r\n\r\n";
        let ask = || http::exchange(STATUS, request, Duration::from_secs(10));
        let clusters = lan.router.act(ask).ok()?;
        let before = format!("nodes::{}:{SERVICE_PORT}::health_flags::", node_address(node));
        let flags = clusters.lines().find_map(|line| line.strip_prefix(&before))?;
        Some(format!("`{}`", flags.trim_start_matches('/')))
    });
    let says = |node| (envoy.says)(&nodes.lan, node);
    until("each node to be healthy", || {
        (0..NODES.len()).all(|node| says(node) == Some(format!("`{HEALTHY}`"))).then_some(())
    });
    envoy
}

/// Until a cluster is used, Envoy probes at another interval: by default once a minute. A cluster that speaks TLS to its
/// nodes checks them without TLS.
#[test]
fn envoy_notices_a_cordon_before_the_first_request_and_with_tls() {
    for file in ["envoy/nodes.yaml", "envoy/tls.yaml"] {
        if programs::fetched("envoy").is_none() {
            println!("not played: Envoy, {file}: hack/install installs it");
            return;
        }
        let nodes = Nodes::start(&[]);
        let envoy = envoy(&Row { file, ..Row::with("envoy/nodes.yaml") }, &nodes);
        assert!(nodes.cluster.sim.cordon(NODES[0]));
        let started = Instant::now();
        until("the cordon to be noticed", || {
            ((envoy.says)(&nodes.lan, 0) != Some(format!("`{HEALTHY}`"))).then_some(())
        });
        // Well below that minute.
        assert!(started.elapsed() < Duration::from_secs(20), "{file}: {:?}", started.elapsed());
    }
}
