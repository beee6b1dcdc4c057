//! Tests of the simulator as a program, with faults through its control port.

use std::net::SocketAddr;
use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::client::{DEADLINE, get, send};

const NODE: &str = "/api/v1/nodes/node-1";
const CACHED: &str = "/api/v1/nodes/node-1?resourceVersion=0";

/// The running program. Drop kills it.
struct Program {
    _child: Child,
    control: SocketAddr,
    servers: Vec<SocketAddr>,
}

impl Program {
    async fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kube-sim"));
        let mut child =
            command.args(arguments).stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("starts");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let line = tokio::time::timeout(DEADLINE, lines.next_line()).await.expect("in time").expect("a line");
        let ready: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
        let address =
            |url: &Value| url.as_str().and_then(|u| u.split('/').nth(2)?.parse().ok()).expect("an address");
        let servers: Vec<SocketAddr> =
            ready["servers"].as_array().expect("servers").iter().map(address).collect();
        assert_eq!(address(&ready["url"]), servers[0]);
        Program { _child: child, control: address(&ready["control"]), servers }
    }

    async fn told(&self, path: &str) -> u16 {
        send(&self.control, "POST", path, &[], "").await.code
    }

    async fn is_cordoned(&self, server: usize, path: &str) -> bool {
        get(&self.servers[server], path).await.json()["spec"]["unschedulable"] == true
    }
}

#[tokio::test]
async fn two_servers_of_an_older_release_one_of_them_cut_off() {
    let program = Program::start(&["--servers", "2", "--release", "1.33"]).await;
    assert_eq!(get(&program.servers[1], "/version").await.json()["minor"], "33");
    assert_eq!(program.told("/servers/1/etcd/cut/nodes").await, 200);
    assert_eq!(program.told("/nodes/node-1/cordon").await, 200);
    assert!(program.is_cordoned(0, CACHED).await);
    assert!(!program.is_cordoned(1, CACHED).await);
    assert_eq!(program.told("/servers/1/etcd/mend").await, 200);
    assert!(program.is_cordoned(1, NODE).await);
    assert_eq!(program.told("/servers/1/etcd/lose-streams").await, 200);
    assert_eq!(program.told("/nodes/node-1/uncordon").await, 200);
    assert!(program.is_cordoned(1, CACHED).await);
    assert!(!program.is_cordoned(1, NODE).await);
    for wrong in
        ["/servers/2/etcd/cut", "/servers/x/kill", "/nodes/none/cordon", "/etcd/restore", "/faults/200"]
    {
        assert_eq!(program.told(wrong).await, 404, "{wrong}");
    }
}

#[tokio::test]
async fn refusals_and_an_etcd_that_goes_back() {
    let program = Program::start(&[]).await;
    assert_eq!(program.told("/etcd/back-up").await, 200);
    assert_eq!(program.told("/nodes/node-1/cordon").await, 200);
    assert_eq!(program.told("/servers/0/kill").await, 200);
    let connected = tokio::net::TcpStream::connect(program.servers[0]).await;
    assert!(connected.is_err(), "nobody listens");
    assert_eq!(program.told("/etcd/restore").await, 200);
    assert_eq!(program.told("/servers/0/restart").await, 200);
    assert!(!program.is_cordoned(0, CACHED).await);
    assert_eq!(program.told("/faults/429/5").await, 200);
    let refused = get(&program.servers[0], NODE).await;
    assert_eq!((refused.code, refused.header("Retry-After")), (429, Some("5")));
    assert_eq!(program.told("/faults/clear").await, 200);
    assert_eq!(get(&program.servers[0], NODE).await.code, 200);
    assert_eq!(get(&program.control, "/counters").await.code, 200);
}
