//! Tests every block of commands in the documents, unless its fence gives a reason not to.

// - ```` ```console ````: each line with `$ ` is a command (a `\` at its end continues it) that must end
//   with exit code 0. The lines below it are its output; `…` matches any text. The test repeats the command
//   until it prints that.
// - ```` ```sh ````: a script that must end with exit code 0.
// - ```` ```console not-run: needs a cluster ````, ```` ```sh not-run: … ````: not run, for this reason.
//
// The blocks of a page run in their order, from the top of the repository, each page with a demo of its own.

use super::pages::{self, Block, Page, Step, matches};
use crate::running_demo::Running;
use nodegate_testbed::programs;
use nodegate_testbed::waiting::DEADLINE;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const NOT_RUN: &str = "not-run:";

#[test]
fn every_documented_command_runs_or_has_a_reason_not_to() {
    let pages = pages::all();
    let mistakes: Vec<String> = pages.iter().flat_map(mistakes).collect();
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    let runs: Vec<&Page> = pages.iter().filter(|page| page.blocks.iter().any(Block::runs)).collect();
    assert!(runs.iter().any(|page| page.path == "README.md"), "the README shows nothing that can be tried");
    // Each page has a demo of its own, so they can run in parallel.
    let failures = thread::scope(|scope| {
        let pages: Vec<_> = runs.iter().map(|page| scope.spawn(|| run(page))).collect();
        pages.into_iter().filter_map(|page| page.join().unwrap().err()).collect::<Vec<_>>()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// Returns the mistakes of a page that show before a run.
fn mistakes(page: &Page) -> Vec<String> {
    let wrong = |block: &Block| {
        let commands = block.body.lines().any(|line| line.starts_with("$ "));
        let has_reason = |why: &str| !why.trim().is_empty();
        match block.language.as_str() {
            "console" | "sh"
                if !block.runs() && !block.note.strip_prefix(NOT_RUN).is_some_and(has_reason) =>
            {
                Some("takes `not-run: <reason>` or nothing")
            }
            "console" if !commands => Some("has no line with `$ `"),
            "console" | "sh" => None,
            "bash" | "shell" | "shell-session" | "zsh" => Some("is to be called console or sh"),
            _ if commands => Some("has commands: call it console"),
            _ => None,
        }
    };
    let mistake =
        |block: &Block| wrong(block).map(|what| format!("{}:{}: this block {what}", page.path, block.line));
    page.blocks.iter().filter_map(mistake).collect()
}

impl Block {
    fn runs(&self) -> bool {
        matches!(self.language.as_str(), "console" | "sh") && self.note.is_empty()
    }
}

fn run(page: &Page) -> Result<(), String> {
    let demo = Running::start(&["--no-haproxy"]);
    for block in page.blocks.iter().filter(|block| block.runs()) {
        for step in block.steps() {
            demo.take(&step).map_err(|error| format!("{}:{}: {error}", page.path, block.line))?;
        }
    }
    Ok(())
}

impl Running {
    /// Runs a command until it prints the expected output; a command without one runs once.
    fn take(&self, step: &Step) -> Result<(), String> {
        // The test only checks that make would start it; the demo's own tests run it.
        let command = self.moved(&step.command).replace("make demo", "make --dry-run demo");
        let (prints, start) = (self.moved(&step.prints), Instant::now());
        loop {
            let output = self.execute(&command);
            let text = String::from_utf8_lossy(&output.stdout);
            let right = prints.is_empty() || matches(&prints, &text);
            if output.status.success() && right {
                return Ok(());
            }
            if prints.is_empty() || start.elapsed() > DEADLINE {
                let errors = String::from_utf8_lossy(&output.stderr);
                return Err(format!("$ {command}\n{}\n{text}{errors}\nexpected:\n{prints}", output.status));
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn execute(&self, command: &str) -> Output {
        let agent = programs::agent();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut bash = Command::new("timeout");
        bash.args(["120", "bash", "-euo", "pipefail", "-c", command]).current_dir(pages::ROOT);
        bash.env("PATH", format!("{}:{path}", agent.parent().unwrap().display()))
            .env_remove("KUBERNETES_SERVICE_HOST");
        bash.env("KUBECONFIG", &self.kubeconfig).env("KUBECACHEDIR", self.kubeconfig.with_file_name("cache"));
        for kind in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            bash.env(kind, self.kubeconfig.with_file_name(kind));
        }
        // A user's environment, also when make runs the tests.
        bash.env_remove("MAKELEVEL").env_remove("MAKEFLAGS");
        bash.stdin(Stdio::null()).output().expect("bash and timeout are needed")
    }
}
