//! `--explain`: reads the current state of the cluster, prints tables, and exits.

use crate::apply::applier::passing;
use crate::apply::ports;
use crate::apply::template::{self, TemplateError};
use crate::plan::desired::Unpublished;
use crate::plan::explain::explain;
use crate::plan::planner::plan;
use crate::plan::removal_limit::RemovalLimit;
use crate::plan::render::sockets;
use crate::run::known_file::KnownFile;
use crate::run::report::Reported;
use crate::run::setup::Setup;
use crate::watch;
use crate::watch::life::Life;
use crate::watch::observed::Observed;
use crate::watch::statuses::StatusSink;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::channel;

/// The timeout for reading from the API server.
const READ: Duration = Duration::from_mins(1);

/// The error of such a run.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExplainError {
    #[error("no complete list of Nodes and Services within {} s; the lines above say why", READ.as_secs())]
    NoFacts,
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error("can't write: {0}")]
    Write(io::Error),
}

/// Prints the tables.
pub(super) async fn print(setup: Setup) -> Result<(), ExplainError> {
    let lists = setup.scope.lists();
    let (sender, mut observed) = channel(Observed::default());
    let watching =
        watch::run(setup.scope.clone(), sender, StatusSink::default(), Life::new(&lists), Arc::default());
    let complete = observed.wait_for(|now| lists.iter().all(|list| now.synced.contains(list)));
    let facts = tokio::select! {
        complete = tokio::time::timeout(READ, complete) => match complete {
            Ok(Ok(observed)) => observed.facts.clone(),
            _ => return Err(ExplainError::NoFacts),
        },
        () = watching => return Err(ExplainError::NoFacts),
    };
    let known = KnownFile::new(&setup).load();
    let (facts, retained) = RemovalLimit::new(&setup.policy, known).accept(&facts, &|_| false);
    Reported::default().report(&[], &retained);
    let mut desired = plan(&facts, &setup.policy);
    let tools = &setup.tools;
    let template = template::read(tools.template.as_deref())?;
    let launch = tools.master.launch().await;
    let bound = template::sockets(&template, |name| launch.as_ref()?.variable(name));
    let disk = tools.config.read().ok().flatten().unwrap_or_default();
    for problem in ports::leave_out(&mut desired, &bound, &sockets(&disk)) {
        let unpublished =
            Unpublished { service: problem.about, port: None, why: problem.text, intended: false };
        desired.unpublished.push(unpublished);
    }
    desired.unpublished.sort();
    let text = explain(&desired, &facts, passing(tools, &desired).await.as_ref());
    io::stdout().write_all(text.as_bytes()).map_err(ExplainError::Write)
}
