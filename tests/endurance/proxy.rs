//! A proxy before the API server that cuts off connections on which nothing moves: no watch lasts. Changes must be seen in
//! time, and after some minutes one warning says so and the requests become fewer. `PROXY=12m` plays that, too.

use crate::setting;
use nodegate_testbed::{Agent, Cluster, NODE};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

const IDLE: Duration = Duration::from_secs(3);
/// The bound for a missed change.
const SEEN_WITHIN: Duration = Duration::from_secs(16);
/// The time after which the agent lists without watches, and another for the first pauses between them.
const PATIENCE: Duration = Duration::from_secs(330);

/// Starts a proxy that ends a connection after this time without a byte in either direction.
fn cutting_proxy(to: SocketAddr, idle: Duration) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(to) else { continue };
            let last = Arc::new(Mutex::new(Instant::now()));
            for (mut from, mut to) in [
                (client.try_clone().unwrap(), server.try_clone().unwrap()),
                (server.try_clone().unwrap(), client.try_clone().unwrap()),
            ] {
                let last = last.clone();
                from.set_read_timeout(Some(idle / 30)).unwrap();
                thread::spawn(move || {
                    let mut buffer = [0; 16 << 10];
                    loop {
                        match from.read(&mut buffer) {
                            Ok(0) => break,
                            Ok(read) if to.write_all(&buffer[..read]).is_err() => break,
                            Ok(_) => *last.lock().unwrap() = Instant::now(),
                            Err(error)
                                if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                            {
                                break;
                            }
                            Err(_) if last.lock().unwrap().elapsed() >= idle => break,
                            Err(_) => {}
                        }
                    }
                    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
                });
            }
        }
    });
    address
}

/// Cordons or uncordons the node, and waits until the agent shows that.
fn flip(cluster: &Cluster, agent: &Agent, cordon: bool) {
    if cordon {
        cluster.sim.cordon(NODE);
    } else {
        cluster.sim.uncordon(NODE);
    }
    let began = Instant::now();
    while (agent.health().status == 503) != cordon {
        assert!(began.elapsed() < SEEN_WITHIN, "cordon {cordon} is not seen: {}", agent.log_text());
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn behind_a_proxy_that_cuts_off_watches_changes_are_seen_in_time() {
    let length: humantime::Duration = setting("PROXY", Duration::from_secs(20).into());
    let cluster = Cluster::start();
    let sim = cluster.sim.url();
    let address = sim.trim_start_matches("https://").parse().unwrap();
    let proxy = format!("https://{}", cutting_proxy(address, IDLE));
    let kubeconfig = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    std::fs::write(cluster.kubeconfig(), kubeconfig.replace(&sim, &proxy)).unwrap();
    let agent = cluster.ready_agent(&[]);
    let requests = || agent.metric_sum("nodegate_api_requests_total");
    let began = Instant::now();
    let mut steady = None;
    while began.elapsed() < *length {
        for cordon in [true, false] {
            sleep(IDLE + Duration::from_secs(1));
            flip(&cluster, &agent, cordon);
            assert_eq!(agent.metric("nodegate_cache_stale"), Some(0.0));
        }
        if began.elapsed() >= PATIENCE {
            steady.get_or_insert_with(|| (Instant::now(), requests()));
        }
    }
    let Some((from, before)) = steady else { return };
    let (an_hour, failed) = (3600.0 / from.elapsed().as_secs_f64(), agent.logged("watch failed"));
    println!(
        "{:.0} requests an hour after the warning, {failed} lines before it",
        (requests() - before) * an_hour
    );
    assert_eq!(agent.logged("no watch lasts"), 1);
    assert!(failed <= 10, "{}", agent.log_text());
}
