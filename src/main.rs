//! nodegate: may this node get new traffic now? All of it is in `crates/agent`.

fn main() -> std::process::ExitCode {
    nodegate_program::run::<nodegate_agent::Args>()
}
