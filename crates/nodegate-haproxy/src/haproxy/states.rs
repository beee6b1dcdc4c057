//! The states of servers, as HAProxy's checks find them: over a reload, so that a server that is down or drained does not
//! come back for a moment, and for people.

// HAProxy takes ports and weights from such a file without a condition, so those are the new configuration's.

use crate::failure::Failure;
use crate::haproxy::master::Master;
use crate::plan::applied::{Checked, Passing};
use crate::plan::desired::{AGENT_SERVICES, Backend, Check, Desired, Frontend, PlannedServer, Problem};
use crate::plan::names;
use crate::plan::policy::CheckKind;
use crate::plan::render::EMPTY_STATES;
use std::collections::BTreeMap;
use std::fmt::Write;

const ADDRESS: usize = 4;
const OPERATION: usize = 5;
const ADMIN: usize = 6;
/// The administrative states that a person has set: maintenance and drain.
const FORCED: u32 = 0x01 | 0x08;
/// The minimum number of columns in a line that HAProxy reads.
const MIN_COLUMNS: usize = 20;
/// The maximum number of frontends whose results are asked for.
const MAX_ASKED: usize = 100;

/// What HAProxy says of its servers, by backend and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct States(BTreeMap<String, BTreeMap<String, Vec<String>>>);

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
            let is_state = columns.len() >= MIN_COLUMNS && [0, OPERATION, ADMIN].into_iter().all(is_number);
            if let (true, Some(backend), Some(server)) = (is_state, columns.get(1), columns.get(3)) {
                states.0.entry(backend.clone()).or_default().insert(server.clone(), columns);
            }
        }
        states
    }

    /// Returns the servers of a backend, and whether each is up.
    fn of(&self, backend: &str) -> impl Iterator<Item = (&String, bool)> {
        let is_up = |columns: &[String]| columns.get(OPERATION).is_some_and(|state| state != "0");
        self.0.get(backend).into_iter().flatten().map(move |(server, columns)| (server, is_up(columns)))
    }

    /// Returns the state file for a new configuration: the last results of HAProxy's checks, with the new addresses,
    /// ports and weights. If HAProxy could be asked, a server that it does not have is down until its first check.
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
        let PlannedServer { name: server, address, weight } = server;
        let known = self.0.get(&backend.name).and_then(|servers| servers.get(server));
        let known =
            known.filter(|columns| columns.get(ADDRESS).and_then(|ip| ip.parse().ok()) == Some(*address));
        if known.is_none() && self.0.is_empty() {
            return;
        }
        // From the ninth on: the time since the last change, and the results of the check.
        let columns = [(OPERATION, "0"), (ADMIN, "0"), (9, "0"), (10, "1"), (11, "0"), (12, "1"), (13, "6")];
        let [operation, admin, since, status, result, health, check] = columns
            .map(|(at, unknown)| known.and_then(|columns| columns.get(at)).map_or(unknown, String::as_str));
        let admin = admin.parse::<u32>().unwrap_or_default() & FORCED;
        let (name, port, (backend_id, id)) = (&backend.name, backend.node_port.unwrap_or_default(), ids);
        let _ = writeln!(
            text,
            "{backend_id} {name} {id} {server} {address} {operation} {admin} {weight} {weight} \
             {since} {status} {result} {health} {check} 0 1 0 - {port} -"
        );
    }
}

/// Returns the commands for the weights that differ from those of the plan that HAProxy runs; for all if it runs none.
pub(crate) fn weight_commands(runs: Option<&Desired>, plan: &Desired) -> Vec<String> {
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

/// Asks for the states of all servers that have a check of their own. `None` if HAProxy can't be asked.
pub(crate) async fn checked(master: &Master, plan: &Desired) -> Option<Checked> {
    let states = States::read(master, plan).await.ok()?;
    let (mut checked, mut all) = (Checked::default(), Passing::new());
    for backend in plan.backends.values().filter(|backend| backend.own_check().is_some()) {
        for (server, is_up) in states.of(&backend.name) {
            if plan.check.kind == CheckKind::Tcp || backend.name == names::NODES {
                *all.entry(server.clone()).or_default() |= is_up;
            }
            if is_up {
                checked.was_up.insert(backend.name.clone());
            }
        }
    }
    checked.nodes = Some(all).filter(|all| !all.is_empty());
    let is_down = |frontend: &&Frontend| {
        let mut servers = states.of(&frontend.backend).peekable();
        servers.peek().is_some() && servers.all(|(_, is_up)| !is_up)
    };
    let down: Vec<&Frontend> = plan.frontends.values().filter(is_down).take(MAX_ASKED).collect();
    let commands: Vec<_> =
        down.iter().map(|frontend| format!("show stat {} 4 -1", frontend.backend)).collect();
    let stat = master.ask_worker(&commands).await.unwrap_or_default();
    for frontend in down {
        let check = plan.backends.get(&frontend.backend)?.own_check()?;
        let text = explain(check, &result(&stat, &frontend.backend));
        let about = frontend.about.clone();
        checked.down.insert(Problem { about, kind: "down", text, unpublished: false });
    }
    Some(checked)
}

/// Returns the result of the first server's check, such as `L7STS 404`, in the CSV of `show stat`.
fn result(stat: &str, backend: &str) -> String {
    let mut rows = stat.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = rows.next().unwrap_or_default();
    let row = rows.find(|row| row.first() == Some(&backend)).unwrap_or_default();
    let column =
        |name: &str| header.iter().position(|column| *column == name).and_then(|at| row.get(at).copied());
    let words = ["check_status", "check_code"].into_iter().filter_map(column);
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

fn explain(check: &Check, result: &str) -> String {
    let path = check.path.as_deref().unwrap_or_default();
    let why = match path.strip_prefix(AGENT_SERVICES).and_then(|path| path.split_once('?')) {
        Some((service, _)) if result.ends_with(" 404") => {
            format!("; the agents do not watch it: they need --watch-service {service}")
        }
        _ => String::new(),
    };
    let result = if result.is_empty() { "no result yet" } else { result };
    format!("no server passes its check ({check}: {result}){why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::desired::Health;
    use std::sync::Arc;

    const DUMP: &str = "1\n# be_id …\n3 local 7 n1 127.0.0.1 2 8 1 1 46 15 3 4 6 0 0 0 - 30000 - 0 19001 - - 1\n\
        3 local 8 n2 127.0.0.2 0 4 1 1 54 15 3 0 6 0 0 0 - 30000 - 0 0 - - 0\n\nbroken line\n \
        #3 local 9 n4 127.0.0.4 2 8 1 1 46 15 3 4 6 18 0 0 - 30000 - 0 19001 - - 1\n";

    fn desired() -> Desired {
        let server = |(byte, weight)| PlannedServer {
            name: format!("n{byte}"),
            address: [127, 0, 0, byte].into(),
            weight,
        };
        let servers = Arc::new([(1, 0), (2, 7), (3, 100)].map(server).to_vec());
        let (name, health) = ("local".to_owned(), Health::Own(Check { port: Some(1), path: None }));
        let backend =
            Backend { name, comment: "", is_sticky: false, health, node_port: Some(31_000), servers };
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
        let moved = lines(&DUMP.replace("127.0.0.1", "127.9.9.9")).swap_remove(0);
        assert_eq!(moved, "900000001 local 1 n1 127.0.0.1 0 0 0 0 0 1 0 1 6 0 1 0 - 31000 -");
        assert_eq!(lines(""), Vec::<String>::new(), "a first start");
        let servers = States::parse(DUMP);
        assert!(servers.of("local").eq([(&"n1".to_owned(), true), (&"n2".to_owned(), false)]));
    }

    #[test]
    fn weights_that_haproxy_has_are_not_set() {
        let commands =
            |text: &str| text.split(',').map(|text| format!("set server {text}")).collect::<Vec<_>>();
        let (from, mut to) = (desired(), desired());
        let rest = "other/n1 weight 0,other/n2 weight 7,other/n3 weight 100";
        let expected = format!("local/n1 weight 0,local/n2 weight 7,local/n3 weight 100,{rest}");
        assert_eq!(weight_commands(None, &from), commands(&expected));
        Arc::make_mut(&mut to.backends.get_mut("other").unwrap().servers)[1].weight = 9;
        assert_eq!(weight_commands(Some(&from), &to), commands("other/n2 weight 9"));
        assert_eq!(weight_commands(Some(&from), &from), Vec::<String>::new());
    }

    #[test]
    fn the_result_of_a_failing_check_is_found_and_explained() {
        let stat =
            "# pxname,svname,status,check_status,check_code,x\na,n1,DOWN,L4CON,,\n\nb,n1,DOWN,L7STS,404,\n";
        let asked = "/services/shop/web?drain=503";
        for (path, backend, says) in [
            ("/healthz", "a", "no server passes its check (/healthz: L4CON)"),
            (asked, "b", "L7STS 404); the agents do not watch it: they need --watch-service shop/web"),
            (asked, "c", "no result yet)"),
        ] {
            let check = Check { port: Some(1), path: Some(path.to_owned()) };
            assert!(explain(&check, &result(stat, backend)).ends_with(says), "{says}");
        }
    }
}
