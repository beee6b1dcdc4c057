//! nodegate-eviction-gate: evictions wait until the load balancers know.

fn main() -> std::process::ExitCode {
    nodegate_program::run::<nodegate_eviction_gate::Args>()
}
