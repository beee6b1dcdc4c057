//! Wrong inputs of every program, each with its whole message: `wrong_inputs.txt`. A message names the flag, variable,
//! file or parameter, the value, and what is accepted or what to do.

use crate::docs::pages::{ROOT, matches};
use crate::running_demo::Running;
use nodegate_testbed::programs;
use std::fmt::Write as _;
use std::process::{Command, Stdio};

const INPUTS: &str = include_str!("wrong_inputs.txt");

/// The functions of the table: `log PART COMMAND…` runs a program until a line of its log has this part, and prints the
/// line without its time; `kubeconfig SERVER USER [SED]` prints the path of one; `plugin SCRIPT` a user with a credential plugin; `taken` a port that a program has.
const FUNCTIONS: &str = include_str!("wrong_inputs.sh");

#[test]
fn every_wrong_input_is_answered_in_words() {
    let demo = Running::start(&["--no-haproxy"]);
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().to_str().unwrap();
    let programs = programs::agent();
    let path = format!("{}:/usr/bin:/bin", programs.parent().unwrap().display());
    let (mut all, mut wrong, mut count) = (String::new(), 0, 0);
    for row in INPUTS.split("\n$ ").skip(1) {
        let (command, message) = row.split_once('\n').unwrap();
        let script = format!("exec 2>&1\n{FUNCTIONS}\n{}", demo.moved(command));
        let mut bash = Command::new("timeout");
        bash.args(["60", "bash", "-c", &script]).current_dir(ROOT).env_clear().env("PATH", &path);
        bash.env("DIR", dir).env("DEMO", &demo.kubeconfig).env("HOME", "/absent").stdin(Stdio::null());
        let output = bash.output().expect("bash and timeout are needed");
        let said = String::from_utf8_lossy(&output.stdout).replace(dir, "DIR");
        let is_right = matches(&demo.moved(message), &said);
        (wrong, count) = (wrong + usize::from(!is_right), count + 1);
        let mark = if is_right { "" } else { "  <- another message" };
        writeln!(all, "\n$ {command}{mark}\n{said}").unwrap();
    }
    assert!(wrong == 0 && count >= 60, "{wrong} of {count}:\n{all}");
}
