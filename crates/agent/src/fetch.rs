//! Sends one GET to an agent, bounded in time from the name lookup to the last byte. The commands and the handover
//! use it.

use crate::target::AgentAddress;
use nodegate_agent_client::{AgentReply, AskError, get as get_from};
use nodegate_local_checks::resolve;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::time::timeout;

/// Gets a path. Must not be called on a thread that already runs a runtime.
pub(crate) fn get(target: &AgentAddress, path: &str, within: Duration) -> Result<AgentReply, AskError> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| AskError::Lookup(error.to_string()))?;
    let got = async {
        let found = resolve(&target.host).await.map_err(AskError::Lookup)?;
        let addresses: Vec<_> = found.into_iter().map(|ip| SocketAddr::new(ip, target.port)).collect();
        get_from(&addresses, path, within).await
    };
    let got = runtime.block_on(async { timeout(within, got).await });
    got.unwrap_or(Err(AskError::Late(within)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodegate_testbed::stub::{StubServer, hang};
    use std::io::Write;
    use std::net::TcpStream;
    use std::thread;

    #[test]
    fn it_ends_with_the_deadline_whatever_the_server_does() {
        let drip = |stream: &mut TcpStream| {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            while stream.write_all(b"H").is_ok() {
                thread::sleep(Duration::from_millis(10));
            }
        };
        for server in [StubServer::start(drip), StubServer::start(hang)] {
            let target = AgentAddress { host: "127.0.0.1".to_owned(), port: server.address().port() };
            let error = get(&target, "/", Duration::from_millis(300)).unwrap_err();
            assert_eq!(error.to_string(), "no whole answer within 300ms");
        }
    }
}
