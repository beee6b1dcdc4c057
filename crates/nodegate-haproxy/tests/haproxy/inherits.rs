//! Servers that are added at run time get the `default-server` settings of the operator's head, too.

use crate::Row;
use crate::lab::{Lab, get, service};
use crate::servers::{Counts, count};
use nodegate_testbed::network::ports;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// The first bytes of version 2 of the PROXY protocol.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Starts an application that counts connections with and without the PROXY protocol separately.
async fn behind_proxy(with: Counts, without: Counts) -> u16 {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let Ok((mut stream, _)) = listener.accept().await else { continue };
            let (with, without) = (with.clone(), without.clone());
            tokio::spawn(async move {
                let mut buffer = [0; 2048];
                let Ok(bytes @ 1..) = stream.read(&mut buffer).await else { return };
                let counts = if buffer[..bytes].starts_with(SIGNATURE) { with } else { without };
                *counts.lock().unwrap().entry(stream.local_addr().unwrap().ip()).or_insert(0) += 1;
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")
                    .await;
                let _ = stream.shutdown().await;
                let _ = stream.read(&mut buffer).await;
            });
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_added_at_run_time_has_what_default_server_says() {
    default_server().await;
}

pub(crate) async fn default_server() -> Row {
    let mut lab = Lab::new(2).await;
    let template = lab.dir.path().join("head");
    let head = "defaults\n  timeout connect 2s\n  timeout client 20s\n  timeout server 20s\n  \
        default-server send-proxy-v2 # as the applications want it\n";
    std::fs::write(&template, head).unwrap();
    lab.arguments = vec!["--template".to_owned(), template.to_string_lossy().into_owned()];
    let (with, without) = (Counts::default(), Counts::default());
    let node_port = behind_proxy(with.clone(), without.clone()).await;
    let port = ports::free();
    lab.sim.apply(service("web", port, node_port, &json!({}))).unwrap();
    lab.start(&[port]).await;
    let before = lab.processes_now().await;
    lab.add_node(2);
    let reached = async || get(port).is_ok() && count(&with, 2) + count(&without, 2) > 0;
    lab.until("the new node serves", reached).await;
    assert_eq!(count(&without, 2), 0, "without the PROXY protocol\n{}", lab.log());
    assert_eq!(lab.processes_now().await, before, "no reload\n{}", lab.log());
    // A setting that a server can't get at run time needs a reload.
    std::fs::write(&template, format!("{head}  default-server init-addr libc\n")).unwrap();
    let reloads = async || lab.processes().await.map_or(0, |now| now.reloads);
    lab.sim.apply(lab.service("more", ports::free(), &json!({}))).unwrap();
    lab.until("the new head is loaded", async || reloads().await == before.reloads + 1).await;
    lab.add_node(3);
    lab.until("the next node serves", async || get(port).is_ok() && count(&with, 3) > 0).await;
    lab.until("that took a reload", async || reloads().await == before.reloads + 2).await;
    assert!(without.lock().unwrap().is_empty(), "{}", lab.log());
    let result = "new node gets the PROXY protocol, without a reload; with one where it must".to_owned();
    Row { what: "default-server of the head, a node joins", result }
}
