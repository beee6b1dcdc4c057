//! The machine and the programs behind the figures.

use nodegate_testbed::programs::system;
use std::fs;

/// Returns keys and values for the head of the tables.
pub(crate) fn describe() -> Vec<(&'static str, String)> {
    let cores =
        std::thread::available_parallelism().map_or_else(|_| "?".to_owned(), |cores| cores.to_string());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = kernel.split('-').next().unwrap_or_default().trim().to_owned();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    vec![
        ("CPU", cpu()),
        ("cores", cores),
        ("Linux", kernel),
        ("nginx", version("nginx", "-v")),
        ("HAProxy", version("haproxy", "-v")),
        ("Go", version("go", "version")),
        ("load average before", load.split(' ').next().unwrap_or_default().to_owned()),
    ]
}

fn cpu() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    name.unwrap_or("unknown").to_owned()
}

/// Returns the first word of the program's output that has digits and dots. nginx prints its version to
/// stderr.
fn version(program: &str, flag: &str) -> String {
    let output = system(program).arg(flag).output();
    let Ok(output) = output else { return "unknown".to_owned() };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let words = text.split([' ', '/', '\n']).map(|word| word.trim_start_matches("go"));
    let words = words.into_iter().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    words.unwrap_or("unknown").split('-').next().unwrap_or_default().to_owned()
}
