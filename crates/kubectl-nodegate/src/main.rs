//! kubectl nodegate: what every agent of a cluster says, and drains that wait for the balancers.

use std::process::ExitCode;

fn main() -> ExitCode {
    nodegate_kubectl::main()
}
