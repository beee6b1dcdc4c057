//! Log lines on stderr, in the same form in all programs. `run` starts them.

use crate::sanitize::sanitize;
use crate::value::choice;
use clap::ArgAction;
use std::io::{self, Write, stderr};
use std::str::FromStr;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// The default log level.
const DEFAULT_LEVEL: &str = "info";

/// The format and the filter of log lines; a part of every program's settings.
#[derive(Clone, Debug, clap::Args)]
pub struct LogSettings {
    /// Format of log lines on stderr: text or json
    #[arg(id = "log_format", long = "log-format", env = "NODEGATE_LOG_FORMAT", value_name = "text|json")]
    #[arg(default_value = "text", action = ArgAction::Set)]
    #[arg(value_parser = choice(&[("text", false), ("json", true)]))]
    is_json: bool,

    /// Least severe level to log (error, warn, info, debug, trace, off), or target=level,…
    #[arg(long = "log", env = "RUST_LOG", value_name = "FILTER", default_value = DEFAULT_LEVEL)]
    log_filter: LogFilter,
}

/// The filter of log lines: a level, or levels of targets; empty means the default level.
#[derive(Clone, Debug)]
struct LogFilter(Targets);

impl FromStr for LogFilter {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        const TAKES: &str = "takes a level (error, warn, info, debug, trace, off) or target=level,…";
        // `Targets` would read an empty part as the level error, and a space as part of a target's name.
        let mut parts: Vec<&str> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
        if parts.is_empty() {
            parts.push(DEFAULT_LEVEL);
        }
        // `Targets` would read a single word that is not a level as a target, and log only that target.
        let sound = |part: &&str| part.contains('=') || part.parse::<LevelFilter>().is_ok();
        let targets = parts.join(",").parse::<Targets>().ok();
        let targets = targets.filter(|_| parts.iter().all(sound)).ok_or(TAKES)?;
        // kube logs each failed attempt; the agent logs the first of an episode, with its consequence.
        let is_named = |target: &str| targets.iter().any(|(known, _)| known.starts_with(target));
        let quiet = ["kube_client", "kube_runtime"].into_iter().filter(|target| !is_named(target));
        let quiet: Vec<_> = quiet.map(|target| (target, LevelFilter::OFF)).collect();
        Ok(Self(targets.with_targets(quiet)))
    }
}

impl LogSettings {
    /// Starts logging. Call it once in a process.
    pub fn start(self) {
        let layer = tracing_subscriber::fmt::layer().with_writer(|| Lines(stderr()));
        let lines = if self.is_json { layer.json().flatten_event(true).boxed() } else { layer.boxed() };
        tracing_subscriber::registry().with(lines.with_filter(self.log_filter.0)).init();
    }
}

/// A writer of log lines, each by one call. No value of an event can start a line of its own, or steer a terminal.
struct Lines<W>(W);

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let (text, end) = text.strip_suffix('\n').map_or((&*text, ""), |text| (text, "\n"));
        self.0.write_all(format!("{}{end}", sanitize(text)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn no_value_starts_a_line_or_steers_a_terminal() {
        let mut written = Vec::new();
        Lines(&mut written).write_all("INFO a=\"b\nERROR \u{1b}[2J\u{202e}\"\n".as_bytes()).unwrap();
        let written = String::from_utf8(written).unwrap();
        assert_eq!(written, "INFO a=\"b\u{fffd}ERROR \u{fffd}[2J\u{fffd}\"\n");
    }

    fn logs(filter: &str, target: &str, level: Level) -> bool {
        filter.parse::<LogFilter>().unwrap().0.would_enable(target, &level)
    }

    #[test]
    fn a_list_means_what_it_looks_like() {
        for nothing in ["", " ", ",", "info", "info,", " info ,, "] {
            let levels = [Level::INFO, Level::DEBUG].map(|level| logs(nothing, "nodegate", level));
            assert_eq!(levels, [true, false], "{nothing:?}");
        }
        assert!(logs("info, nodegate_node_watch=debug", "nodegate_node_watch::driver", Level::DEBUG));
        assert!(!logs("trace", "kube_client::client", Level::ERROR), "kube is silent unless asked");
        assert!(logs("info,kube_client=debug", "kube_client::client", Level::DEBUG));
    }
}
