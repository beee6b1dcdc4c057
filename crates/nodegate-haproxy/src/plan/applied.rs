//! What HAProxy runs, as it has proven, what its checks have found, and the statuses of Services that follow. Without IO
//! or a clock.

use crate::plan::desired::{ABSENT, Backend, Desired, Frontend, Health, INTENDED, Problem};
use crate::plan::observed::{ServiceKey, ServiceStatus};
use crate::plan::policy::PlanPolicy;
use crate::plan::template::Template;
use k8s_openapi::api::core::v1::LoadBalancerIngress;
use nodegate_program::{List, is_object_name, sanitize_short};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The maximum length of a reason, as the API server accepts it in an Event.
const MAX_REASON: usize = 1000;

/// The entries of `status.loadBalancer.ingress`: addresses and host names that clients use to reach HAProxy.
pub(crate) type Ingress = Vec<LoadBalancerIngress>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Applied {
    pub(crate) template: Template,
    /// The plan, without what was left out.
    pub(crate) plan: Desired,
    /// What HAProxy can't have now, with the reasons.
    pub(crate) left_out: BTreeSet<Problem>,
    pub(crate) file: Vec<u8>,
    pub(crate) hash: String,
    /// The process ID of the worker that runs it.
    pub(crate) worker: u32,
}

/// The nodes, and whether each passes HAProxy's check.
pub(crate) type Passing = BTreeMap<String, bool>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checked {
    /// `None` if HAProxy can't be asked or has no check.
    pub(crate) nodes: Option<Passing>,
    /// The frontends whose servers all fail a check of their own, with the results of the check.
    pub(crate) down: BTreeSet<Problem>,
    /// The backends that have had a server that is up.
    pub(crate) was_up: BTreeSet<String>,
}

impl Checked {
    /// Returns true if a server of the backend has been up, as far as HAProxy checks them.
    fn was_up(&self, backend: &Backend) -> bool {
        match &backend.health {
            Health::Own(_) => self.was_up.contains(&backend.name),
            Health::Track(other, _) => self.was_up.contains(other),
            Health::Unchecked => true,
        }
    }

    /// Returns true if there are nodes, and none passes.
    pub(crate) fn no_node_passes(&self) -> bool {
        self.nodes.as_ref().is_some_and(|nodes| !nodes.is_empty() && !nodes.values().any(|passes| *passes))
    }
}

/// Parses `--publish-status`: what the API server accepts. A name of digits and dots alone is a mistyped address.
pub(crate) fn client_addresses(text: &str) -> Result<List<LoadBalancerIngress>, &'static str> {
    let is_name = |text: &str| {
        is_object_name(text) && text.bytes().any(|c| c.is_ascii_lowercase()) && !text.contains("..")
    };
    let entry = |text: &str| match text.parse::<IpAddr>() {
        Ok(ip) if ip.is_unspecified() || ip.is_multicast() => None,
        Ok(ip) => Some(entry_of(ip)),
        Err(_) => is_name(text).then(|| LoadBalancerIngress {
            hostname: Some(text.to_owned()),
            ..LoadBalancerIngress::default()
        }),
    };
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    let takes = "takes a list of IP addresses and host names, e.g. 203.0.113.10,lb.example.com";
    words.map(entry).collect::<Option<_>>().map(List).ok_or(takes)
}

/// Returns the entry of an address. HAProxy delivers to the address of a node, which is the API's definition of `Proxy`.
fn entry_of(ip: IpAddr) -> LoadBalancerIngress {
    let (ip, ip_mode) = (Some(ip.to_string()), Some("Proxy".to_owned()));
    LoadBalancerIngress { ip, ip_mode, ..LoadBalancerIngress::default() }
}

impl Applied {
    /// Returns the entries of each published Service and Forward: those of `--publish-status`, or the addresses of `--bind` that the
    /// Service chose. `None` while HAProxy does not listen, or none of its servers has been up: its status stays.
    pub(crate) fn wanted(
        &self,
        desired: &Desired,
        checked: &Checked,
        given: &Ingress,
        policy: &PlanPolicy,
    ) -> BTreeMap<ServiceKey, Option<Ingress>> {
        let mut services = BTreeMap::<ServiceKey, Option<Ingress>>::new();
        for frontend in desired.frontends.values() {
            let backend = self.plan.backends.get(&frontend.backend);
            let serves = self.runs(frontend) && backend.is_some_and(|backend| checked.was_up(backend));
            let on = &frontend.listen.addresses;
            let is_default = *on == policy.default_addresses() || on.iter().any(IpAddr::is_unspecified);
            let entries =
                || if is_default { given.clone() } else { on.iter().copied().map(entry_of).collect() };
            let entry = services.entry(frontend.about.clone()).or_default();
            *entry = entry.take().or_else(|| serves.then(entries));
        }
        services
    }

    /// Returns true if HAProxy listens as the plan has it.
    fn runs(&self, planned: &Frontend) -> bool {
        self.plan.frontends.get(&planned.backend).is_some_and(|runs| runs.listen == planned.listen)
    }

    /// Returns the reason for each Service that asks to be published and is not, or not with all of its ports.
    pub(crate) fn not_published(&self, desired: &Desired) -> BTreeMap<ServiceKey, String> {
        let stopped = desired.frontends.values().filter(|frontend| !self.runs(frontend));
        let stopped: BTreeSet<&str> = stopped.map(|frontend| frontend.about.as_str()).collect();
        let left_out = self.left_out.iter().filter(|problem| stopped.contains(problem.about.as_str()));
        let mut reasons = BTreeMap::<&ServiceKey, Vec<&str>>::new();
        let all = desired.problems.iter().filter(|problem| problem.unpublished).chain(left_out);
        for problem in all.filter(|problem| ![INTENDED, ABSENT].contains(&problem.kind)) {
            reasons.entry(&problem.about).or_default().push(&problem.text);
        }
        let text = |reasons: &[&str]| sanitize_short(&reasons.join("; "), MAX_REASON);
        reasons.into_iter().map(|(key, reasons)| (key.clone(), text(&reasons))).collect()
    }
}

impl ServiceStatus {
    /// Returns the entries to write, if the status needs any. None of them: ours are removed, because the Service is no
    /// longer published. `wanted` comes from [`Applied::wanted`]: `None` if the Service is not published, or is not of
    /// type `LoadBalancer`. Only entries of the field manager `manager` are changed.
    pub(crate) fn change(&self, wanted: Option<&Option<Ingress>>, manager: &str) -> Option<Ingress> {
        let ours = self.writer.as_deref() == Some(manager);
        // An old API server drops `ipMode`.
        let is_made_of = |(made, wanted): (&LoadBalancerIngress, &LoadBalancerIngress)| {
            (&made.ip, &made.hostname) == (&wanted.ip, &wanted.hostname)
                && (made.ip_mode.is_none() || made.ip_mode == wanted.ip_mode)
        };
        let Some(wanted) = wanted else { return (ours && !self.ingress.is_empty()).then(Vec::new) };
        let wanted = wanted.as_ref().filter(|_| ours || self.ingress.is_empty())?;
        let is_same = self.ingress.len() == wanted.len() && self.ingress.iter().zip(wanted).all(is_made_of);
        (!is_same).then(|| wanted.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::observed::{Facts, ObservedService};
    use crate::plan::planner::make_plan;
    use crate::plan::tests::service_of;

    const OURS: &str = "nodegate-haproxy";

    fn planned(services: &[ObservedService], policy: &PlanPolicy) -> Desired {
        make_plan(&Facts::of([], services.to_vec()), policy)
    }

    fn ip(address: &str) -> LoadBalancerIngress {
        entry_of(address.parse().unwrap())
    }

    #[test]
    fn client_addresses_are_those_that_the_api_server_accepts() {
        for good in ["10.0.0.1", "fd00::1", "lb.example.com", "a", "1a.b"] {
            let LoadBalancerIngress { ip, hostname, .. } = client_addresses(good).unwrap().0.remove(0);
            assert_eq!(ip.or(hostname).as_deref(), Some(good));
        }
    }

    #[test]
    fn a_service_gets_the_addresses_of_its_bind_once_a_server_has_been_up() {
        let policy = PlanPolicy { bind: List::of("")("10.0.0.5,10.0.0.100").ok(), ..PlanPolicy::default() };
        let given = client_addresses("203.0.113.1,lb.example.com").unwrap().0;
        let local = ObservedService { local: true, health_port: Some(1), ..service_of("local", 81) };
        let web = ObservedService { address: Some("10.0.0.100".to_owned()), ..service_of("web", 80) };
        let new = service_of("new", 82);
        let desired = planned(&[service_of("plain", 80), web.clone(), local.clone(), new], &policy);
        let plan = planned(&[service_of("plain", 80), web, local], &policy);
        let applied = Applied { plan, ..Applied::default() };
        let (given, own) = (Some(given), Some(vec![ip("10.0.0.100")]));
        for (up, [local, plain, web]) in [
            (&[][..], [&None, &None, &None]),
            (&["nodegate_nodes"], [&None, &given, &own]),
            (&["nodegate_nodes", "nodegate_shop_local_81"], [&given, &given, &own]),
        ] {
            let was_up = up.iter().map(|name: &&str| name.to_string()).collect();
            let checked = Checked { was_up, ..Checked::default() };
            let entries = applied.wanted(&desired, &checked, given.as_ref().unwrap(), &policy);
            assert!(entries.keys().eq(["shop/local", "shop/new", "shop/plain", "shop/web"]));
            assert!(entries.values().eq([local, &None, plain, web]), "{entries:?}");
        }
    }

    #[test]
    fn reasons_are_given_but_not_for_what_is_meant() {
        let problem = |(kind, unpublished, text): (_, _, &str)| Problem {
            about: "shop/web".to_owned(),
            kind,
            text: text.to_owned(),
            unpublished,
        };
        let problems = [
            ("protocol", true, "port 53 is\nnot TCP"),
            (INTENDED, true, "meant"),
            ("annotation", false, "a default is used"),
            ("conflict", true, "a"),
        ];
        let left_out = [("busy", true, "left out"), (ABSENT, true, "the other balancer has it")];
        let problems = problems.map(problem).into();
        let desired = Desired { problems, ..planned(&[service_of("web", 80)], &PlanPolicy::default()) };
        let applied = Applied { left_out: left_out.map(problem).into(), ..Applied::default() };
        let reasons = "a; port 53 is\u{fffd}not TCP; left out".to_owned();
        assert_eq!(applied.not_published(&desired), BTreeMap::from([("shop/web".to_owned(), reasons)]));
    }

    #[test]
    fn only_our_own_entries_are_changed() {
        let wanted = vec![ip("10.0.0.1")];
        let status = |ingress: &Ingress, writer: Option<&str>| ServiceStatus {
            ingress: ingress.clone(),
            writer: writer.map(str::to_owned),
            ..ServiceStatus::default()
        };
        let (nothing, other) = (Vec::new(), vec![ip("10.0.0.2")]);
        let by_an_old_server = vec![LoadBalancerIngress { ip_mode: None, ..ip("10.0.0.1") }];
        let published = Some(wanted.clone());
        for (status, published, change) in [
            (status(&nothing, None), Some(&published), Some(wanted.clone())),
            (status(&wanted, Some(OURS)), Some(&published), None),
            (status(&by_an_old_server, Some(OURS)), Some(&published), None),
            (status(&wanted, Some("kubectl")), Some(&published), None),
            (status(&other, Some(OURS)), Some(&published), Some(wanted.clone())),
            (status(&other, Some("metallb")), Some(&published), None),
            (status(&other, Some(OURS)), Some(&None), None),
            (status(&other, Some(OURS)), None, Some(Vec::new())),
            (status(&other, Some("metallb")), None, None),
            (status(&wanted, None), None, None),
            (status(&nothing, None), None, None),
        ] {
            assert_eq!(status.change(published, OURS), change, "{status:?} {published:?}");
        }
    }
}
