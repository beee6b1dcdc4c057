//! nodegate-haproxy: HAProxy's configuration from Nodes and Services.

use std::process::ExitCode;

fn main() -> ExitCode {
    nodegate_haproxy::run::main()
}
