//! nodegate-shutdown: delays a shutdown of the host until every load balancer knows of it.

fn main() -> std::process::ExitCode {
    nodegate_program::run::<nodegate_shutdown::Args>()
}
