//! The file from which a new HAProxy process takes the states of its servers, so that a drained server does
//! not come back for a moment.

use crate::plan::desired::{Desired, PlannedNode, PlannedServer, PlannedState};
use crate::plan::policy::HealthCheck;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;

/// The version and the columns of HAProxy's format (management guide, "show servers state"). Optional columns
/// are not written, so that TLS and the addresses and ports of checks come from the configuration.
const HEADER: &str = "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight \
srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state \
bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord\n";

/// The state of an agent-check that HAProxy runs. `AGENT_NOT_ASKED` keeps an agent from overriding a set
/// state.
const AGENT_ASKED: &str = "22";
const AGENT_NOT_ASKED: &str = "18";
const FORCED_MAINT: u32 = 0x01;
const FORCED_DRAIN: u32 = 0x08;
const AGENT_CONFIGURED: u32 = 0x02;
const AGENT_ENABLED: u32 = 0x04;
const ADMIN_COLUMN: usize = 6;
const AGENT_COLUMN: usize = 14;
const PORT_COLUMN: usize = 18;
/// The minimum number of columns in a line that HAProxy reads.
const MIN_COLUMNS: usize = 20;

/// The line of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLine {
    /// The administrative state that was set last.
    pub state: PlannedState,
    /// True if HAProxy asks the server's agent.
    pub agent_check: bool,
    /// True if the server has an agent-check.
    pub has_agent_check: bool,
    columns: Vec<String>,
}

impl ServerLine {
    fn column(&self, at: usize) -> &str {
        self.columns.get(at).map_or("0", String::as_str)
    }
}

/// Servers by backend and name.
pub type Servers = BTreeMap<(String, String), ServerLine>;

/// Parses the output of `show servers state`. Leaves out lines that it does not understand.
pub fn parse(text: &str) -> Servers {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<((String, String), ServerLine)> {
    let columns: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    if columns.len() < MIN_COLUMNS {
        return None;
    }
    let number = |at: usize| columns.get(at)?.parse::<u32>().ok();
    // In a state file, a line that begins with anything else is a comment, above all one with a '#'.
    number(0)?;
    let admin = number(ADMIN_COLUMN)?;
    let state = match admin {
        admin if admin & FORCED_MAINT != 0 => PlannedState::Maint,
        admin if admin & FORCED_DRAIN != 0 => PlannedState::Drain,
        _ => PlannedState::Ready,
    };
    let agent = number(AGENT_COLUMN)?;
    let (agent_check, has_agent_check) = (agent & AGENT_ENABLED != 0, agent & AGENT_CONFIGURED != 0);
    let key = (columns.get(1)?.clone(), columns.get(3)?.clone());
    Some((key, ServerLine { state, agent_check, has_agent_check, columns }))
}

/// Returns the content of the state file: the last results of HAProxy's checks and agents, with the desired
/// state of each server. Values that the configuration has, too, come from the plan, because HAProxy prefers
/// the file to the configuration.
pub fn compose(desired: &Desired, known: &Known<'_>, check: &HealthCheck) -> String {
    let mut text = HEADER.to_owned();
    let mut add = |server: &Planned<'_>| {
        let live = known.live.get(&(server.backend.to_owned(), server.name.to_owned()));
        if known.ours || live.is_some_and(|line| line.column(PORT_COLUMN) == server.port.to_string()) {
            server.line(&mut text, live);
        }
    };
    for node in &desired.nodes {
        let PlannedNode { name, address, state, .. } = node;
        let (backend, port) = (desired.names.nodes(), check.port);
        add(&Planned { backend, name, address, port, weight: 1, state: *state, starts_down: false });
    }
    let starts_down = known.asked;
    for frontend in desired.local_backends() {
        let (backend, port) = (frontend.backend.as_str(), frontend.node_port);
        for PlannedServer { name, address, weight } in frontend.servers.iter() {
            let state = desired.node(name).map_or(PlannedState::Ready, |node| node.state);
            add(&Planned { backend, name, address, port, weight: *weight, state, starts_down });
        }
    }
    for last_resort in desired.local_last_resorts() {
        let Some(port) = last_resort.node_port else { continue };
        let (backend, state) = (last_resort.name.as_str(), PlannedState::Ready);
        for PlannedServer { name, address, weight } in last_resort.servers.iter() {
            add(&Planned { backend, name, address, port, weight: *weight, state, starts_down });
        }
    }
    text
}

/// The known states of HAProxy's servers.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The states that HAProxy reported last.
    pub live: &'a Servers,
    /// True if the generated sections are the built-in ones. The plan does not know the ports in an
    /// operator's template. Of its servers, only those get a line whose reported port is the planned one.
    pub ours: bool,
    /// True if HAProxy can be asked. Then a server without a known state is a new one.
    pub asked: bool,
}

/// A server of the next configuration.
struct Planned<'a> {
    backend: &'a str,
    name: &'a str,
    address: &'a IpAddr,
    port: u16,
    weight: u16,
    state: PlannedState,
    /// True if the server is down until its first check succeeds, because only that check knows about
    /// endpoints.
    starts_down: bool,
}

impl Planned<'_> {
    fn line(&self, text: &mut String, known: Option<&ServerLine>) {
        let Self { backend, name, address, port, weight, state, starts_down } = self;
        // A server in maintenance is stopped for that reason alone, so its reported state says nothing about
        // checks.
        let known = known.filter(|line| line.state != PlannedState::Maint || *state == PlannedState::Maint);
        let bits = match (state, known) {
            // The agent drained this server, not nodegate-haproxy. It stays drained.
            (PlannedState::Ready, Some(line)) if line.state == PlannedState::Drain && line.agent_check => {
                FORCED_DRAIN
            }
            (PlannedState::Ready, Some(_)) => 0,
            (PlannedState::Ready, None) if *starts_down => 0,
            // The server starts like any other.
            (PlannedState::Ready, None) => return,
            (PlannedState::Drain, _) => FORCED_DRAIN,
            (PlannedState::Maint, _) => FORCED_MAINT,
        };
        let stopped = if *starts_down || *state == PlannedState::Maint { "0" } else { "2" };
        let column = |at: usize, unknown| known.map_or(unknown, |line| line.column(at));
        let (backend_id, id, operation) = (column(0, "1"), column(2, "1"), column(5, stopped));
        // The time since the last change, and the results of the check and the agent.
        let (since, status, result, health) =
            (column(9, "0"), column(10, "1"), column(11, "0"), column(12, "1"));
        let (check, agent) = (column(13, "6"), self.agent(column(AGENT_COLUMN, AGENT_ASKED)));
        let _ = writeln!(
            text,
            "{backend_id} {backend} {id} {name} {address} {operation} {bits} {weight} {weight} \
             {since} {status} {result} {health} {check} {agent} 0 0 - {port} -"
        );
    }

    /// Returns the state of the agent-check. HAProxy asks an agent only while the set state is "ready", which
    /// shows whose drain it is.
    fn agent<'a>(&self, known: &'a str) -> &'a str {
        if self.state == PlannedState::Ready { known } else { AGENT_NOT_ASKED }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::annotation::{Balance, Mode, SendProxy};
    use crate::plan::desired::{Frontend, LocalHealth};
    use crate::plan::policy::PlanPolicy;
    use proptest::prelude::*;
    use std::sync::Arc;

    const DUMP: &str = "1\n# be_id …\n3 nodegate_nodes 1 n1 127.0.0.1 2 8 1 1 46 15 3 4 6 18 0 0 - 25001 - 0 19001 - - 1\n\
        3 nodegate_nodes 2 n2 127.0.0.2 0 0 1 1 54 15 3 0 6 22 0 0 - 0 - 0 0 - - 0\n\nbroken line\n";

    fn node(name: &str, state: PlannedState) -> PlannedNode {
        PlannedNode {
            name: name.to_owned(),
            address: IpAddr::from([127, 0, 0, 9]),
            state,
            weight: 100,
            labels: Arc::default(),
        }
    }

    fn written(desired: &Desired, dump: &str, ours: bool) -> Vec<String> {
        let text =
            compose(desired, &Known { live: &parse(dump), ours, asked: true }, &PlanPolicy::default().check);
        text.lines().skip(2).map(str::to_owned).collect()
    }

    #[test]
    fn what_a_state_file_would_take_for_a_comment_is_left_out() {
        let line = "3 nodegate_nodes 1 n1 127.0.0.1 2 8 1 1 46 15 3 4 6 18 0 0 - 25001 - 0 19001 - - 1";
        assert_eq!(parse(line).len(), 1);
        assert_eq!(parse(&format!(" #{line}")), Servers::new());
    }

    #[test]
    fn what_haproxy_found_is_kept_and_all_else_is_the_plans() {
        let nodes = vec![
            node("n1", PlannedState::Ready),
            node("n2", PlannedState::Drain),
            node("n3", PlannedState::Maint),
            node("n4", PlannedState::Ready),
            node("n5", PlannedState::Drain),
        ];
        let desired = Desired { nodes, ..Desired::default() };
        let lines = [
            "3 nodegate_nodes 1 n1 127.0.0.9 2 0 1 1 46 15 3 4 6 18 0 0 - 25001 -",
            // The check found the server down, and that is kept. The port that HAProxy was once told is not
            // kept.
            "3 nodegate_nodes 2 n2 127.0.0.9 0 8 1 1 54 15 3 0 6 18 0 0 - 25001 -",
            "1 nodegate_nodes 1 n3 127.0.0.9 0 1 1 1 0 1 0 1 6 18 0 0 - 25001 -",
            "1 nodegate_nodes 1 n5 127.0.0.9 2 8 1 1 0 1 0 1 6 18 0 0 - 25001 -",
        ];
        assert_eq!(written(&desired, DUMP, true), lines);
        // The states of the other servers in an operator's template are unknown.
        assert_eq!(written(&desired, DUMP, false), lines[..1]);
    }

    #[test]
    fn a_local_server_has_the_port_and_the_weight_of_its_service() {
        let servers =
            vec![PlannedServer { name: "n1".to_owned(), address: [127, 0, 0, 9].into(), weight: 7 }];
        let frontend = Frontend {
            name: "shop".to_owned(),
            backend: "local".to_owned(),
            namespace: "shop".to_owned(),
            service: "local".to_owned(),
            service_port: 80,
            node_port: 30_001,
            port: 80,
            binds: Vec::new(),
            addresses: Vec::new(),
            sources: None,
            mode: Mode::Tcp,
            balance: Balance::RoundRobin,
            hashed: false,
            send_proxy: SendProxy::Off,
            last_resort: Vec::new(),
            local: Some(LocalHealth { port: 31_000, path: "/healthz".to_owned() }),
            servers: Arc::new(servers),
        };
        let nodes = vec![node("n1", PlannedState::Drain)];
        let desired = Desired { nodes, frontends: vec![frontend], ..Desired::default() };
        let dump = "5 local 1 n1 127.0.0.1 2 8 0 0 46 15 3 4 6 18 0 0 - 30000 - 0 19001 - - 1\n";
        let local = "5 local 1 n1 127.0.0.9 2 8 7 7 46 15 3 4 6 18 0 0 - 30001 -";
        assert_eq!(written(&desired, dump, true)[1], local);
    }

    proptest! {
        #[test]
        fn any_dump_is_read(text in "([a-z0-9.#-]{0,4} ?|\n){0,200}") {
            let live = parse(&text);
            prop_assert!(live.len() <= text.lines().count());
            let desired = Desired { nodes: vec![node("n1", PlannedState::Drain)], ..Desired::default() };
            let file = compose(&desired, &Known { live: &live, ours: true, asked: true }, &PlanPolicy::default().check);
            let key = (desired.names.nodes().to_owned(), "n1".to_owned());
            prop_assert_eq!(parse(&file).get(&key).map(|line| line.state), Some(PlannedState::Drain));
        }
    }
}
