//! The settings that choose the default checks, and when each check runs. `args` flattens them.

use nodegate_program::Mistakes;
use nodegate_readiness::check::{KUBE_PROXY, NODE_READY};
use nodegate_readiness::{Catalog, CheckId};

/// The checks that run by default, from the start, and on demand.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Checks of a request that names none
    #[arg(long, env = "NODEGATE_DEFAULT_CHECKS", value_name = "LIST", default_value = NODE_READY)]
    default_checks: String,

    /// Local checks that run from the start and that the alerts cover; others start when a request first
    /// names them, if --on-demand allows it
    #[arg(long, env = "NODEGATE_BACKGROUND_CHECKS", value_name = "LIST")]
    background_checks: Option<String>,

    /// Other local checks that a request may start by naming them: all, none or a list. The rest fail with
    /// "Not enabled"
    #[arg(long, env = "NODEGATE_ON_DEMAND", value_name = "all|none|LIST", default_value = "all")]
    on_demand: String,
}

impl CheckArgs {
    /// Returns the catalog with the beginning of each check, and the default checks.
    pub(crate) fn choose(self, catalog: Catalog, mistakes: &mut Mistakes) -> (Catalog, Vec<CheckId>) {
        let default_checks = match checks(&self.default_checks, &catalog, |_| true) {
            Ok(none) if none.is_empty() => Err("takes at least one check".to_owned()),
            checks => checks,
        };
        let default_checks = mistakes.sound("default-checks", &self.default_checks, default_checks);
        let named = self.background_checks.unwrap_or_default();
        let mut at_start = mistakes.sound("background-checks", &named, local_checks_of(&named, &catalog));
        let on_demand = on_demand(&self.on_demand, &catalog);
        let on_demand = mistakes.sound("on-demand", &self.on_demand, on_demand);
        // Every plain request needs them.
        at_start.extend(&default_checks);
        // A Service's answer reports the health of kube-proxy.
        if catalog.services().next().is_some() {
            at_start.extend(catalog.find(KUBE_PROXY));
        }
        (catalog.with_start_modes(&at_start, &on_demand), default_checks)
    }
}

/// Parses the checks that a request may start.
fn on_demand(text: &str, catalog: &Catalog) -> Result<Vec<CheckId>, String> {
    match text.trim() {
        "all" => Ok(catalog.local_ids().collect()),
        "none" => Ok(Vec::new()),
        list => local_checks_of(list, catalog)
            .map_err(|bad| format!("takes all, none or a list of checks; {bad}")),
    }
}

fn local_checks_of(list: &str, catalog: &Catalog) -> Result<Vec<CheckId>, String> {
    checks(list, catalog, |id| catalog.local(id).is_some())
}

/// Parses a list of checks that exist and are of the right kind.
fn checks(list: &str, catalog: &Catalog, fits: impl Fn(CheckId) -> bool) -> Result<Vec<CheckId>, String> {
    let mut ids = Vec::new();
    for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        match catalog.find(name) {
            Some(id) if !fits(id) => {
                return Err(format!("{name} needs no background run: it answers from memory"));
            }
            Some(id) if !ids.contains(&id) => ids.push(id),
            Some(_) => {}
            None => {
                let known: Vec<&str> =
                    catalog.ids().filter(|id| fits(*id)).map(|id| catalog.name(id)).collect();
                return Err(format!("there is no check {name:?}; takes a list of {}", known.join(", ")));
            }
        }
    }
    Ok(ids)
}
