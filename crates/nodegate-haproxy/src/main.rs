//! nodegate-haproxy: HAProxy's configuration from Nodes and Services.

fn main() -> std::process::ExitCode {
    nodegate_program::run::<nodegate_haproxy::Args>()
}
