//! kubectl nodegate: the status of every agent of a cluster, and drains that wait for the balancers.

fn main() -> std::process::ExitCode {
    nodegate_kubectl::completed().unwrap_or_else(nodegate_program::run::<nodegate_kubectl::Args>)
}
