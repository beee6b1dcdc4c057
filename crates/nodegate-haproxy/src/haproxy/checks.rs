//! The results of HAProxy's checks.

use crate::haproxy::master::Master;
use crate::haproxy::states::States;
use crate::plan::applied::{Checked, Passing};
use crate::plan::desired::{AGENT_SERVICES, Check, Desired, Frontend, Problem};
use crate::plan::names;
use crate::plan::values::CheckKind;

/// The maximum number of frontends whose results are asked for.
const MAX_ASKED: usize = 100;

/// Asks for the states of all servers that have a check of their own. `None` if HAProxy can't be asked.
pub(crate) async fn checked(master: &Master, plan: &Desired) -> Option<Checked> {
    let states = States::read(master, plan).await.ok()?;
    let of =
        |backend: &str| states.of(backend).map(|(server, up)| (server.to_owned(), up)).collect::<Vec<_>>();
    let (mut checked, mut all) = (Checked::default(), Passing::new());
    for backend in plan.backends.values().filter(|backend| backend.own_check().is_some()) {
        for (server, is_up) in of(&backend.name) {
            if plan.check.kind == CheckKind::Tcp || backend.name == names::NODES {
                *all.entry(server).or_default() |= is_up;
            }
            if is_up {
                checked.was_up.insert(backend.name.clone());
            }
        }
    }
    checked.nodes = Some(all).filter(|all| !all.is_empty());
    let down = |frontend: &&Frontend| {
        let servers = of(&frontend.backend);
        !servers.is_empty() && servers.iter().all(|(_, is_up)| !is_up)
    };
    let down: Vec<&Frontend> = plan.frontends.values().filter(down).take(MAX_ASKED).collect();
    if !down.is_empty() {
        let commands: Vec<String> =
            down.iter().map(|frontend| format!("show stat {} 4 -1", frontend.backend)).collect();
        let stat = master.ask_worker(&commands).await.unwrap_or_default();
        for frontend in down {
            let check = plan.backends.get(&frontend.backend)?.own_check()?;
            let text = explain(check, &result(&stat, &frontend.backend));
            let about = frontend.about.clone();
            checked.down.insert(Problem { about, kind: "down", text, unpublished: false });
        }
    }
    Some(checked)
}

/// Returns the result of the first server's check, such as `L7STS 404`, in the CSV of `show stat`.
fn result(stat: &str, backend: &str) -> String {
    let header: Vec<&str> = stat.lines().next().unwrap_or_default().split(',').collect();
    let mut rows = stat.lines().map(|line| line.split(',').collect::<Vec<_>>());
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

    #[test]
    fn the_result_of_a_failing_check_is_found_and_explained() {
        let stat =
            "# pxname,svname,status,check_status,check_code,x\na,n1,DOWN,L4CON,,\n\nb,n1,DOWN,L7STS,404,\n";
        let of = |path: &str, backend| {
            explain(&Check { port: Some(1), path: Some(path.to_owned()) }, &result(stat, backend))
        };
        assert_eq!(of("/healthz", "a"), "no server passes its check (kube-proxy:1: L4CON)");
        assert!(
            of("/services/shop/web?drain=503", "b")
                .ends_with("L7STS 404); the agents do not watch it: they need --watch-service shop/web")
        );
        assert!(of("/services/shop/web?drain=503", "c").ends_with("no result yet)"));
    }
}
