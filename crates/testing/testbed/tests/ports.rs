//! A test that reserved ports and networks are unique, in this process and across processes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may end where a scenario breaks off")]

use nodegate_testbed::network::ports::{Loopback, free, free_row};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// The number of processes. Their counters start 31 places apart, unless another process starts between them.
const PROCESSES: usize = 4;
/// The number of ports and the number of networks that each process reserves. With the rows, that is less
/// than half of all.
const EACH: usize = 300;
const ROWS: usize = 10;
/// The prefix of a line with a reservation.
const TOOK: &str = "took: ";

#[test]
fn no_two_processes_are_given_the_same() {
    let mut processes: Vec<Child> = (0..PROCESSES).map(|_| another()).collect();
    let taken: Vec<String> = processes.iter_mut().flat_map(took).collect();
    assert_eq!(taken.len(), PROCESSES * (2 * EACH + ROWS));
    let mut seen = BTreeSet::new();
    let twice: Vec<&String> = taken.iter().filter(|one| !seen.insert(*one)).collect();
    assert_eq!(twice, Vec::<&String>::new());
    for mut process in processes {
        drop(process.stdin.take());
        assert!(process.wait().unwrap().success());
    }
}

fn another() -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "takes_some_and_keeps_them", "--ignored", "--nocapture"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

fn took(process: &mut Child) -> Vec<String> {
    let mut lines = BufReader::new(process.stdout.as_mut().unwrap()).lines().map_while(Result::ok);
    let said = lines.find_map(|line| Some(line.split_once(TOOK)?.1.to_owned())).expect("what was taken");
    said.split(' ').map(str::to_owned).collect()
}

#[test]
#[ignore = "what no_two_processes_are_given_the_same starts"]
fn takes_some_and_keeps_them() {
    let ports = (0..EACH).map(|_| free().to_string());
    let rows = (0..ROWS).map(|_| free_row().to_string());
    let networks = (0..EACH).map(|_| Loopback::new().prefix());
    println!("{TOOK}{}", ports.chain(rows).chain(networks).collect::<Vec<_>>().join(" "));
    std::io::stdin().lock().lines().for_each(drop);
}
