//! Log lines on stderr.

use std::io::{IsTerminal, stderr};
use std::str::FromStr;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// How a line looks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LogFormat {
    Text,
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

/// Which lines are written.
#[derive(Default)]
pub(crate) struct LogFilter(Targets);

impl FromStr for LogFilter {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let targets: Targets = text
            .parse()
            .map_err(|_| "takes a level (error, warn, info, debug, trace, off) or target=level,…")?;
        // kube logs each failed attempt by itself; we log the first of an episode, with what follows from it.
        let told = |target: &str| targets.iter().any(|(known, _)| known.starts_with(target));
        let quiet = ["kube_client", "kube_runtime"].into_iter().filter(|target| !told(target));
        let quiet: Vec<_> = quiet.map(|target| (target, LevelFilter::OFF)).collect();
        Ok(Self(targets.with_targets(quiet)))
    }
}

/// Starts logging.
pub(crate) fn init(format: LogFormat, filter: LogFilter) {
    let layer = match format {
        LogFormat::Text => fmt::layer().with_writer(stderr).with_ansi(stderr().is_terminal()).boxed(),
        LogFormat::Json => fmt::layer().with_writer(stderr).json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(filter.0)).init();
}
