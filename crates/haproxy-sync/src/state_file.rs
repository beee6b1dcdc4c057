//! The file from which a new HAProxy process takes the states of its servers, so that a drained one does not come back
//! for a moment.

use crate::desired::{Desired, ServerState};
use crate::names::NODES_BACKEND;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;

/// The version and the columns of HAProxy's format (management guide, "show servers state").
const HEADER: &str = "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight \
srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state \
bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr srv_agent_addr \
srv_agent_port\n";

const FORCED_MAINT: u32 = 0x01;
const FORCED_DRAIN: u32 = 0x08;
const AGENT_ENABLED: u32 = 0x04;
const ADMIN_COLUMN: usize = 6;
const AGENT_COLUMN: usize = 14;

/// A server's line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLine {
    /// What an administrator said last.
    pub state: ServerState,
    /// Whether its agent is asked.
    pub agent: bool,
    columns: Vec<String>,
}

/// Servers by backend and name.
pub type Servers = BTreeMap<(String, String), ServerLine>;

/// Reads `show servers state`; lines that are not understood are left out.
pub fn parse(text: &str) -> Servers {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<((String, String), ServerLine)> {
    let columns: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    if line.starts_with('#') || columns.len() < 25 {
        return None;
    }
    let number = |at: usize| columns.get(at)?.parse::<u32>().ok();
    let admin = number(ADMIN_COLUMN)?;
    let state = match admin {
        admin if admin & FORCED_MAINT != 0 => ServerState::Maint,
        admin if admin & FORCED_DRAIN != 0 => ServerState::Drain,
        _ => ServerState::Ready,
    };
    let agent = number(AGENT_COLUMN)? & AGENT_ENABLED != 0;
    let key = (columns.get(1)?.clone(), columns.get(3)?.clone());
    Some((key, ServerLine { state, agent, columns }))
}

/// The file for these states: what HAProxy said last of each server, with the state that we want it to have.
pub fn compose(desired: &Desired, live: &Servers) -> String {
    let mut text = HEADER.to_owned();
    for node in &desired.nodes {
        line(&mut text, live, NODES_BACKEND, &node.name, node.address, node.state);
    }
    for frontend in desired.local_backends() {
        for server in frontend.servers.iter() {
            let state = desired.node(&server.name).map_or(ServerState::Ready, |node| node.state);
            line(&mut text, live, &frontend.name, &server.name, server.address, state);
        }
    }
    text
}

fn line(text: &mut String, live: &Servers, backend: &str, name: &str, address: IpAddr, state: ServerState) {
    let bits = match state {
        ServerState::Ready => 0,
        ServerState::Drain => FORCED_DRAIN,
        ServerState::Maint => FORCED_MAINT,
    };
    let known = live.get(&(backend.to_owned(), name.to_owned()));
    // One that was under maintenance is stopped in the dump for no other reason, so its dump says nothing.
    let known = known.filter(|line| line.state != ServerState::Maint || state == ServerState::Maint);
    if let Some(known) = known {
        // An agent's word for "ready" is not ours: what the agent drained stays drained.
        let bits = if state == ServerState::Ready && known.state == ServerState::Drain && known.agent {
            FORCED_DRAIN
        } else {
            bits
        };
        for (at, column) in known.columns.iter().enumerate() {
            let separator = if at == 0 { "" } else { " " };
            let _ = match at {
                ADMIN_COLUMN => write!(text, "{separator}{bits}"),
                _ => write!(text, "{separator}{column}"),
            };
        }
        text.push('\n');
    } else if state != ServerState::Ready {
        let op = if state == ServerState::Maint { 0 } else { 2 };
        let _ =
            writeln!(text, "1 {backend} 1 {name} {address} {op} {bits} 1 1 0 1 0 1 6 22 0 0 - 0 - 0 0 - - 0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::Node;
    use proptest::prelude::*;

    const DUMP: &str = "1\n# be_id …\n3 nodegate_nodes 1 n1 127.0.0.1 2 8 1 1 46 15 3 4 6 18 0 0 - 25001 - 0 19001 - - 1\n\
        3 nodegate_nodes 2 n2 127.0.0.2 0 0 1 1 54 15 3 0 6 22 0 0 - 25001 - 0 19001 - - 1\n\nbroken line\n";

    #[test]
    fn what_haproxy_said_is_kept_and_our_states_are_put_in() {
        let live = parse(DUMP);
        assert_eq!(live.len(), 2);
        let node = |name: &str, state| Node {
            name: name.to_owned(),
            address: IpAddr::from([127, 0, 0, 9]),
            state,
            weight: 100,
        };
        let nodes = vec![
            node("n1", ServerState::Ready),
            node("n2", ServerState::Drain),
            node("n3", ServerState::Maint),
            node("n4", ServerState::Ready),
        ];
        let text = compose(&Desired { nodes, ..Desired::default() }, &live);
        let again = parse(&text);
        let state =
            |name: &str| again.get(&(NODES_BACKEND.to_owned(), name.to_owned())).map(|line| line.state);
        assert_eq!(state("n1"), Some(ServerState::Ready));
        assert_eq!(state("n2"), Some(ServerState::Drain));
        assert_eq!(state("n3"), Some(ServerState::Maint));
        assert_eq!(state("n4"), None);
        // The check found n2 down; that survives.
        assert!(text.contains("n2 127.0.0.2 0 8 "), "{text}");
    }

    proptest! {
        #[test]
        fn any_dump_is_read(text in "([a-z0-9.#-]{0,4} ?|\n){0,200}") {
            let live = parse(&text);
            prop_assert!(live.len() <= text.lines().count());
            let node = Node { name: "n1".to_owned(), address: [127, 0, 0, 1].into(), state: ServerState::Drain, weight: 1 };
            let file = compose(&Desired { nodes: vec![node], ..Desired::default() }, &live);
            let key = (NODES_BACKEND.to_owned(), "n1".to_owned());
            prop_assert_eq!(parse(&file).get(&key).map(|line| line.state), Some(ServerState::Drain));
        }
    }
}
