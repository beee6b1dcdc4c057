//! `--explain`: reads the current state of the cluster, prints tables, and exits.

use crate::apply::applier::passing;
use crate::apply::free_ports::leave_out;
use crate::apply::template;
use crate::failure::Failure;
use crate::plan::{RemovalLimit, explain, plan};
use crate::run::args::Args;
use crate::run::known_file::KnownFile;
use crate::run::report::Reported;
use crate::watch::life::Life;
use crate::watch::{self, Observed};
use std::io::Write;
use std::time::Duration;
use tokio::sync::watch::channel;

const READ: Duration = Duration::from_mins(1);

pub(super) async fn print(setup: Args) -> Result<(), Failure> {
    let lists = setup.scope.lists();
    let (sender, mut observed) = channel(Observed::of(&lists));
    let watching = watch::run(setup.scope.clone(), sender, Life::new(&lists));
    tokio::select! {
        _ = tokio::time::timeout(READ, observed.wait_for(|now| now.facts().is_some())) => {}
        () = watching => {}
    }
    let late = "no complete list of Nodes and Services within a minute; the lines above say why";
    let facts = observed.borrow().facts().ok_or_else(|| Failure::new("list", late))?;
    let known = KnownFile::new(&setup).load();
    let (facts, retained) = RemovalLimit::new(&setup.policy, known).accept(&facts, |_| false);
    Reported::default().retained(retained);
    let mut desired = plan(&facts, &setup.policy);
    let tools = &setup.tools;
    let template = template::read(tools.template.as_deref())?;
    let launch = tools.master.launch().await;
    let disk = tools.config.read()?.unwrap_or_default();
    let left_out = leave_out(&mut desired, &template, launch.as_ref(), &disk);
    desired.problems.extend(left_out);
    let text = explain(&desired, passing(tools, &desired).await.as_ref());
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| Failure::new("write", error))
}
