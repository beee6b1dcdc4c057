//! The programs' own help, on a terminal of 80 columns.

use nodegate_testbed::programs::{agent, must_run};
use std::process::Command;

const COMMANDS: &str = "nodegate|nodegate status|nodegate wait|nodegate-eviction-gate|nodegate-haproxy|\
    nodegate-shutdown|nodegate-shutdown status|kubectl-nodegate|kubectl-nodegate drain|kubectl-nodegate uncordon|\
    kubectl-nodegate wait";

/// The most lines of `-h`.
const SCREEN: usize = 50;

#[test]
fn each_text_fits_80_columns_and_the_short_one_a_screen() {
    for command in COMMANDS.split('|') {
        let (program, words) = command.split_once(' ').unwrap_or((command, ""));
        let [short, long] = ["-h", "--help"].map(|flag| {
            let mut program = Command::new(agent().with_file_name(program));
            must_run(program.args(words.split_whitespace()).arg(flag).env_clear())
        });
        let wide =
            [&short, &long].into_iter().flat_map(|text| text.lines()).find(|line| line.chars().count() > 79);
        assert_eq!(wide, None, "{command}");
        let [lines, all] = [&short, &long].map(|text| text.lines().count());
        assert!(lines <= SCREEN && lines < all, "{command}: {short}");
    }
}
