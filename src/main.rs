//! nodegate: may this node get new traffic now? All of it is in `crates/agent`.

use std::process::ExitCode;

fn main() -> ExitCode {
    nodegate_agent::main()
}
