//! nodegate-eviction-gate: evictions wait until the load balancers know.

use std::process::ExitCode;

fn main() -> ExitCode {
    nodegate_eviction_gate::main()
}
