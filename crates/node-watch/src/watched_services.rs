//! The Services to watch.

use nodegate_program::Mistakes;
use nodegate_readiness::ServiceName;

/// The maximum number of Services: each costs the API server a watch from every node.
const MAX_SERVICES: usize = 16;

/// The Services to watch.
#[derive(Clone, Debug, clap::Args)]
pub struct ServiceArgs {
    /// Service whose ready endpoints on this node the agent counts, as namespace/name; may be repeated, and
    /// the environment variable takes several separated by ",". Provides /services/<namespace>/<name> and the
    /// check service:<namespace>/<name>; each needs a watch, and the right to watch `EndpointSlices` in its
    /// namespace
    #[arg(long, env = "NODEGATE_WATCH_SERVICE", value_name = "NAMESPACE/NAME", value_delimiter = ',')]
    watch_service: Vec<ServiceName>,
}

impl ServiceArgs {
    /// Returns the Services, each once.
    pub fn services(self, mistakes: &mut Mistakes) -> Vec<ServiceName> {
        let mut names = Vec::new();
        for name in self.watch_service {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if names.len() > MAX_SERVICES {
            let what = format_args!("names {} Services: takes at most {MAX_SERVICES}", names.len());
            mistakes.setting("watch-service", what);
        }
        names
    }
}
