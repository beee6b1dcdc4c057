//! nodegate-shutdown: delays a shutdown of the host until every load balancer knows of it.

use std::process::ExitCode;

fn main() -> ExitCode {
    nodegate_shutdown::main()
}
