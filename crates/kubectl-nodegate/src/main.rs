//! kubectl nodegate: the status of every agent of a cluster, and drains that wait for the balancers.

use std::process::ExitCode;

fn main() -> ExitCode {
    nodegate_kubectl::main()
}
