//! The flags of the local checks, flattened into the agent's.

use crate::host_root::HostRoot;
use crate::local_checks::LocalChecks;
use crate::own::OwnChecks;
use crate::settings::CheckSettings;
use nodegate_program::Mistakes;

/// The flags of the local checks.
#[derive(Clone, Debug, clap::Args)]
pub struct LocalCheckArgs {
    /// Settings of a local check: NAME:key=value,… with interval, timeout, rise, fall and the check's own
    /// keys; may be repeated, and the environment variable takes several separated by ";"
    #[arg(long, env = "NODEGATE_CHECK_SETTINGS", value_name = "NAME:SETTINGS", value_delimiter = ';')]
    check_settings: Vec<String>,

    /// A check of your own that passes while the URL answers 2xx; requests name it with "http:" before the
    /// name. May be repeated, and the environment variable takes several separated by ";"
    #[arg(long, env = "NODEGATE_HTTP_CHECK", value_name = "NAME=URL", value_delimiter = ';')]
    http_check: Vec<String>,

    /// A check of your own that passes while the port accepts connections; requests name it with "tcp:"
    /// before the name. May be repeated, and the environment variable takes several separated by ";"
    #[arg(long, env = "NODEGATE_TCP_CHECK", value_name = "NAME=HOST:PORT", value_delimiter = ';')]
    tcp_check: Vec<String>,

    /// Directory of the host's files; in a container, the path at which the host's / is mounted
    #[arg(long, env = "NODEGATE_HOST_ROOT", value_name = "DIR", default_value_t, value_parser = |path: &str| HostRoot::new(path))]
    host_root: HostRoot,
}

impl LocalCheckArgs {
    /// Returns the checks of the registry and the operator's own.
    pub fn local_checks(self, mistakes: &mut Mistakes) -> LocalChecks {
        let mut own = OwnChecks::default();
        for text in &self.http_check {
            mistakes.sound("http-check", text, own.add_http(text));
        }
        for text in &self.tcp_check {
            mistakes.sound("tcp-check", text, own.add_tcp(text));
        }
        let settings = CheckSettings::parse(&self.check_settings, &own).unwrap_or_else(|errors| {
            for error in &errors {
                mistakes.setting("check-settings", error);
            }
            CheckSettings::default()
        });
        LocalChecks::new(&settings, &self.host_root).with_own(&own, &settings)
    }
}
