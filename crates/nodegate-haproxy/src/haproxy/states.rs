//! The states of servers over a reload, so that a server that is down or drained does not come back for a
//! moment.

// HAProxy takes ports and weights from such a file without a condition, so those are the new configuration's.

use crate::failure::Failure;
use crate::haproxy::master::Master;
use crate::plan::desired::{Backend, Desired, PlannedServer};
use crate::plan::names;
use crate::plan::render::EMPTY_STATES;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;

const ADDRESS: usize = 4;
const OPERATION: usize = 5;
const ADMIN: usize = 6;
/// The administrative states that a person has set: maintenance and drain.
const FORCED: u32 = 0x01 | 0x08;
/// The minimum number of columns in a line that HAProxy reads.
const MIN_COLUMNS: usize = 20;

/// What HAProxy says of its servers, by backend and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct States(BTreeMap<(String, String), Vec<String>>);

impl States {
    /// Asks for the states of the servers that have a check of their own.
    pub(crate) async fn read(master: &Master, plan: &Desired) -> Result<Self, Failure> {
        let of = plan.backends.values().filter(|backend| backend.own_check().is_some());
        let commands: Vec<String> =
            of.map(|backend| format!("show servers state {}", backend.name)).collect();
        Ok(Self::parse(&master.ask_worker(&commands).await?))
    }

    /// Parses the output of `show servers state`. Leaves out lines that it does not understand.
    fn parse(text: &str) -> Self {
        let mut states = Self::default();
        for line in text.lines() {
            let columns: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            // In a state file, a line that begins with anything else is a comment, above all one with a '#'.
            let is_number = |at: usize| columns.get(at).is_some_and(|text| text.parse::<u32>().is_ok());
            let is_state =
                columns.len() >= MIN_COLUMNS && is_number(0) && is_number(OPERATION) && is_number(ADMIN);
            if let (true, Some(backend), Some(server)) = (is_state, columns.get(1), columns.get(3)) {
                states.0.insert((backend.clone(), server.clone()), columns);
            }
        }
        states
    }

    /// Returns the servers of a backend, and whether each is up.
    pub(crate) fn of(&self, backend: &str) -> impl Iterator<Item = (&str, bool)> {
        let from = (backend.to_owned(), String::new());
        let of = self.0.range(from..).take_while(move |((name, _), _)| name == backend);
        of.map(|((_, server), columns)| {
            (server.as_str(), columns.get(OPERATION).is_some_and(|state| state != "0"))
        })
    }

    /// Returns the state file for a new configuration: the last results of HAProxy's checks, with the new
    /// addresses, ports and weights. If HAProxy could be asked, a server that it does not have is down until
    /// its first check.
    pub(crate) fn compose(&self, desired: &Desired) -> String {
        let mut text = EMPTY_STATES.to_owned();
        for (index, backend) in desired.backends.values().enumerate().filter(|(_, b)| b.own_check().is_some())
        {
            for (place, server) in backend.servers.iter().enumerate() {
                self.line(&mut text, backend, server, (names::id(index), place + 1));
            }
        }
        text
    }

    fn line(&self, text: &mut String, backend: &Backend, server: &PlannedServer, ids: (usize, usize)) {
        let name = &backend.name;
        let known = self.0.get(&(name.clone(), server.name.clone()));
        let same_address = |columns: &&Vec<String>| {
            columns.get(ADDRESS).and_then(|ip| ip.parse::<IpAddr>().ok()) == Some(server.address)
        };
        let known = known.filter(same_address);
        if known.is_none() && self.0.is_empty() {
            return;
        }
        let column = |at: usize, unknown: &'static str| {
            known.and_then(|columns| columns.get(at)).map_or(unknown, String::as_str)
        };
        let admin = column(ADMIN, "0").parse::<u32>().unwrap_or_default() & FORCED;
        let weight = server.weight;
        let (port, address) = (backend.node_port.unwrap_or_default(), server.address);
        let ((backend_id, id), operation) = (ids, column(OPERATION, "0"));
        // The time since the last change, and the results of the check.
        let (since, status, result, health, check) =
            (column(9, "0"), column(10, "1"), column(11, "0"), column(12, "1"), column(13, "6"));
        let _ = writeln!(
            text,
            "{backend_id} {name} {id} {} {address} {operation} {admin} {weight} {weight} \
             {since} {status} {result} {health} {check} 0 1 0 - {port} -",
            server.name
        );
    }
}

/// Returns the commands that set the weights of a plan, but for those that HAProxy has if it runs another plan.
pub(crate) fn set_weights(runs: Option<&Desired>, plan: &Desired) -> Vec<String> {
    let mut commands = Vec::new();
    for (name, backend) in &plan.backends {
        let runs = runs.and_then(|runs| runs.backends.get(name));
        for server in backend.servers.iter() {
            if runs.and_then(|runs| runs.weight_of(&server.name)) != Some(server.weight) {
                commands.push(format!("set server {name}/{} weight {}", server.name, server.weight));
            }
        }
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::desired::{Check, Health};
    use crate::plan::observed::{Facts, ObservedNode};
    use crate::plan::planner::make_plan;
    use crate::plan::policy::PlanPolicy;
    use proptest::prelude::*;
    use std::sync::Arc;

    const DUMP: &str = "1\n# be_id …\n3 local 7 n1 127.0.0.1 2 8 1 1 46 15 3 4 6 0 0 0 - 30000 - 0 19001 - - 1\n\
        3 local 8 n2 127.0.0.2 0 4 1 1 54 15 3 0 6 0 0 0 - 30000 - 0 0 - - 0\n\nbroken line\n \
        #3 local 9 n4 127.0.0.4 2 8 1 1 46 15 3 4 6 18 0 0 - 30000 - 0 19001 - - 1\n";

    fn desired() -> Desired {
        let server = |name: &str, byte, weight| PlannedServer {
            name: name.to_owned(),
            address: [127, 0, 0, byte].into(),
            weight,
        };
        let servers = Arc::new(vec![server("n1", 1, 0), server("n2", 2, 7), server("n3", 3, 100)]);
        let health = Health::Own(Check { port: Some(1), path: None });
        let backend = Backend::new("local".to_owned(), Some(31_000), health, servers);
        let tracking = Backend { name: "other".to_owned(), health: Health::Unchecked, ..backend.clone() };
        let backends = [backend, tracking].map(|backend| (backend.name.clone(), backend)).into();
        Desired { backends, ..Desired::default() }
    }

    fn lines(dump: &str) -> Vec<String> {
        States::parse(dump).compose(&desired()).lines().skip(2).map(str::to_owned).collect()
    }

    #[test]
    fn what_haproxy_found_is_kept_and_ports_and_weights_are_the_new_ones() {
        let expected = [
            // A person has drained it.
            "900000001 local 1 n1 127.0.0.1 2 8 0 0 46 15 3 4 6 0 1 0 - 31000 -",
            "900000001 local 2 n2 127.0.0.2 0 0 7 7 54 15 3 0 6 0 1 0 - 31000 -",
            // It is new, so down until its first check.
            "900000001 local 3 n3 127.0.0.3 0 0 100 100 0 1 0 1 6 0 1 0 - 31000 -",
        ];
        assert_eq!(lines(DUMP), expected);
        assert_eq!(
            lines(&DUMP.replace("127.0.0.1", "127.9.9.9"))[0],
            "900000001 local 1 n1 127.0.0.1 0 0 0 0 0 1 0 1 6 0 1 0 - 31000 -"
        );
        assert_eq!(lines(""), Vec::<String>::new(), "a first start");
        assert_eq!(States::parse(DUMP).of("local").collect::<Vec<_>>(), [("n1", true), ("n2", false)]);
    }

    #[test]
    fn weights_that_haproxy_has_are_not_set() {
        let commands =
            |text: &str| text.split(',').map(|text| format!("set server {text}")).collect::<Vec<_>>();
        let (from, mut to) = (desired(), desired());
        let rest = "other/n1 weight 0,other/n2 weight 7,other/n3 weight 100";
        let expected = format!("local/n1 weight 0,local/n2 weight 7,local/n3 weight 100,{rest}");
        assert_eq!(set_weights(None, &from), commands(&expected));
        Arc::make_mut(&mut to.backends.get_mut("other").unwrap().servers)[1].weight = 9;
        assert_eq!(set_weights(Some(&from), &to), commands("other/n2 weight 9"));
        assert_eq!(set_weights(Some(&from), &from), Vec::<String>::new());
    }

    proptest! {
        #[test]
        fn a_file_made_of_any_dump_has_the_planned_server_once(text in "([a-z0-9.#-]{0,4} ?|\n){0,200}") {
            let addresses = vec![("InternalIP".to_owned(), [127, 0, 0, 1].into())];
            let node = ObservedNode { name: "n".to_owned(), addresses, ..ObservedNode::default() };
            let file = States::parse(&text).compose(&make_plan(&Facts::of([node], []), &PlanPolicy::default()));
            let lines: Vec<Vec<&str>> = file.lines().skip(2).map(|line| line.split(' ').collect()).collect();
            prop_assert!(lines.len() <= 1);
            for line in lines {
                prop_assert_eq!((line.len(), line[4], line[18]), (20, "127.0.0.1", "25001"));
            }
        }
    }
}
