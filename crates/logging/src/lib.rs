//! Log lines on stderr, alike in both programs.

use std::io::{IsTerminal, stderr};
use std::str::FromStr;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// How a line looks.
#[derive(Clone, Copy, Debug)]
pub enum LogFormat {
    /// For people; coloured on a terminal.
    Text,
    /// One object a line.
    Json,
}

impl FromStr for LogFormat {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, &'static str> {
        match word {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("takes text or json"),
        }
    }
}

/// Which lines are written: a level, or levels of targets; nothing means `info`.
#[derive(Debug, Default)]
pub struct LogFilter(Targets);

impl FromStr for LogFilter {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        const TAKES: &str = "takes a level (error, warn, info, debug, trace, off) or target=level,…";
        // An empty part would mean error to Targets, and a space be part of a target's name.
        let mut parts: Vec<&str> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
        if parts.is_empty() {
            parts.push("info");
        }
        // A lone word that is no level would be a target, and everything of it be logged and nothing else.
        let sound = |part: &&str| part.contains('=') || part.parse::<LevelFilter>().is_ok();
        let targets: Targets = match parts.join(",").parse() {
            Ok(targets) if parts.iter().all(sound) => targets,
            _ => return Err(TAKES),
        };
        // kube logs each failed attempt by itself; we log the first of an episode, with what follows from it.
        let told = |target: &str| targets.iter().any(|(known, _)| known.starts_with(target));
        let quiet = ["kube_client", "kube_runtime"].into_iter().filter(|target| !told(target));
        let quiet: Vec<_> = quiet.map(|target| (target, LevelFilter::OFF)).collect();
        Ok(Self(targets.with_targets(quiet)))
    }
}

/// Starts logging; once in a process.
pub fn init(format: LogFormat, filter: LogFilter) {
    let layer = match format {
        LogFormat::Text => fmt::layer().with_writer(stderr).with_ansi(stderr().is_terminal()).boxed(),
        LogFormat::Json => fmt::layer().with_writer(stderr).json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(filter.0)).init();
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    fn logs(filter: &str, target: &str, level: Level) -> bool {
        filter.parse::<LogFilter>().unwrap().0.would_enable(target, &level)
    }

    #[test]
    fn a_list_means_what_it_looks_like() {
        for nothing in ["", " ", ",", "info", "info,", " info ,, "] {
            assert!(
                logs(nothing, "nodegate", Level::INFO) && !logs(nothing, "nodegate", Level::DEBUG),
                "{nothing:?}"
            );
        }
        assert!(logs("info, nodegate_node_watch=debug", "nodegate_node_watch::guard", Level::DEBUG));
        for nonsense in ["loud", "info,loud", "a=loud"] {
            assert!(nonsense.parse::<LogFilter>().is_err(), "{nonsense:?}");
        }
    }

    #[test]
    fn kube_is_silent_unless_asked() {
        assert!(!logs("trace", "kube_client::client", Level::ERROR));
        assert!(logs("info,kube_client=debug", "kube_client::client", Level::DEBUG));
    }
}
