//! The sources of the last known facts on this host, the agent on the same ports and `--state-dir`, for `agent`.

use super::LastKnownSources;
use super::state_file::StateFile;
use crate::agent_ports::PortArgs;
use crate::target::loopback_for;
use nodegate_agent_api::{Predecessor, STATUS_PATH};
use nodegate_agent_client::{AskError, get};
use nodegate_local_checks::DedicatedThread;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::time::timeout;

/// The time limit for the file: longer than a working disk needs, because load balancers wait for this agent, too.
const WITHIN: Duration = Duration::from_secs(3);

/// The sources of the last known facts.
pub(crate) struct HostSources {
    /// See [`targets`].
    pub(crate) predecessors: Vec<SocketAddr>,
    pub(crate) state_file: Option<StateFile>,
}

impl LastKnownSources for HostSources {
    async fn predecessor(&self, node: &str) -> Result<Option<Predecessor>, String> {
        ask(&self.predecessors, node).await
    }

    async fn recorded(&self, node: &str) -> Result<Option<Predecessor>, String> {
        let (Some(file), node) = (self.state_file.clone(), node.to_owned()) else { return Ok(None) };
        // A disk may hang.
        let thread = DedicatedThread::new("handover");
        match timeout(WITHIN, thread.run(move || file.read(&node))).await {
            Ok(Ok(found)) => found,
            Ok(Err(why)) => Err(why.to_string()),
            Err(_) => Err(format!("not within {} s", WITHIN.as_secs())),
        }
    }
}

/// The time limit for each target. An agent answers within milliseconds; another program there must not keep
/// this agent from its port.
const TARGET_WITHIN: Duration = Duration::from_secs(1);

/// Returns the addresses at which the predecessor serves `/status.json`, by this agent's own settings.
pub(crate) fn targets(ports: &PortArgs) -> Vec<SocketAddr> {
    let everywhere = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let http = (ports.address().unwrap_or(everywhere), ports.listen_port);
    let metrics = ports.metrics_addr.map(|address| (address.ip(), address.port()));
    let known = metrics.into_iter().chain([http]).filter(|(_, port)| *port != 0);
    known.map(|(ip, port)| SocketAddr::new(loopback_for(ip), port)).collect()
}

/// Queries the targets in sequence until one has an answer. A closed port is not an error; of several errors
/// the first is returned, as a text for the log.
async fn ask(targets: &[SocketAddr], node: &str) -> Result<Option<Predecessor>, String> {
    let mut nothing = Ok(None);
    for target in targets {
        let error = match get(&[*target], STATUS_PATH, TARGET_WITHIN).await {
            Ok(answer) if answer.status == 200 => {
                match Predecessor::parse(&answer.body, node, nodegate_clock::wall()) {
                    Ok(found) => return Ok(Some(found)),
                    Err(error) => error,
                }
            }
            Ok(answer) => format!("HTTP {}", answer.status),
            Err(AskError::Connect(_)) => continue,
            Err(error) => error.to_string(),
        };
        nothing = nothing.and(Err(format!("http://{target}: {error}")));
    }
    nothing
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodegate_testbed::stub::{StubServer, hang};

    const HERE: &str =
        r#"{"node":"n1","facts_format":2,"cache":{"age_ms":5,"stale":false},"node_exists":false,"more":1}"#;

    fn ask(addresses: &[SocketAddr]) -> Result<Option<Predecessor>, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(super::ask(addresses, "n1"))
    }

    #[test]
    fn other_programs_are_no_predecessor() {
        for (answer, why) in [
            ("SSH-2.0-OpenSSH_9.2p1\r\n", "not HTTP"),
            ("HTTP/1.1 404 Not Found\r\n\r\nnot here", "HTTP 404"),
            ("HTTP/1.1 200 OK\r\n\r\n<html>", "it is not what an agent writes"),
            ("HTTP/1.1 200 OK\r\n\r\n{\"node\":\"n2\"}", "about the node \"n2\""),
        ] {
            let server = StubServer::saying(answer);
            let error = ask(&[server.address()]).unwrap_err();
            assert!(error.contains(why) && error.contains(&server.address().to_string()), "{error}");
        }
        let error = ask(&[StubServer::start(hang).address()]).unwrap_err();
        assert!(error.contains("within 1s"), "{error}");
    }

    #[test]
    fn the_first_error_is_reported_unless_an_agent_answers_and_no_agent_is_no_error() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let no_agent = StubServer::saying("HTTP/1.1 404 Not Found\r\n\r\n").address();
        let silent = StubServer::saying("").address();
        assert!(ask(&[no_agent, free]).unwrap_err().contains("HTTP 404"));
        assert!(ask(&[free, no_agent, silent]).unwrap_err().contains("HTTP 404"));
        assert_eq!([ask(&[free]), ask(&[])], [Ok(None), Ok(None)]);
        let agent = StubServer::saying(format!("HTTP/1.1 200 OK\r\n\r\n{HERE}"));
        assert!(ask(&[no_agent, free, agent.address()]).unwrap().unwrap().is_fresh);
    }
}
