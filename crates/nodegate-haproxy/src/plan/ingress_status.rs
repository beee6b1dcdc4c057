//! The addresses that published Services get in `status.loadBalancer.ingress`, and the change that a status
//! needs. Without IO or a clock.

use crate::plan::applied::{Applied, Checked};
use crate::plan::desired::{ABSENT, Desired, Frontend, INTENDED};
use crate::plan::observed::{Ingress, ServiceKey, ServiceStatus};
use crate::plan::policy::PlanPolicy;
use nodegate_program::sanitize_short;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The maximum length of a reason, as the API server accepts it in an Event.
const MAX_REASON: usize = 1000;

/// Returns the addresses for clients: those of `--publish-status`, or those of `--bind` that the Service
/// chose.
fn addresses_of(listens_on: &[IpAddr], given: &[Ingress], policy: &PlanPolicy) -> Vec<Ingress> {
    if listens_on == policy.default_addresses() || listens_on.iter().any(IpAddr::is_unspecified) {
        return given.to_vec();
    }
    listens_on.iter().copied().map(Ingress::from).collect()
}

impl Applied {
    /// Returns the entries of each published Service. `None` while HAProxy does not listen, or none of its servers has
    /// been up: its status stays.
    pub(crate) fn wanted(
        &self,
        desired: &Desired,
        checked: &Checked,
        addresses: &[Ingress],
        policy: &PlanPolicy,
    ) -> BTreeMap<ServiceKey, Option<Vec<Ingress>>> {
        let mut services = BTreeMap::<ServiceKey, Vec<&Frontend>>::new();
        for frontend in desired.frontends.values() {
            if let Some((key, _)) = &frontend.service {
                services.entry(key.clone()).or_default().push(frontend);
            }
        }
        let serves = |frontend: &&&Frontend| {
            let backend = self.plan.backends.get(&frontend.backend);
            self.runs(frontend) && backend.is_some_and(|backend| checked.was_up(backend))
        };
        let entries = |frontends: &[&Frontend]| {
            let mut entries =
                addresses_of(&frontends.iter().find(serves)?.listen.addresses, addresses, policy);
            for entry in &mut entries {
                entry.ip_mode = entry.ip.as_ref().map(|_| "Proxy".to_owned());
            }
            Some(entries)
        };
        services.into_iter().map(|(key, frontends)| (key, entries(&frontends))).collect()
    }

    /// Returns true if HAProxy listens as the plan has it.
    fn runs(&self, planned: &Frontend) -> bool {
        self.plan.frontends.get(&planned.backend).is_some_and(|runs| runs.listen == planned.listen)
    }

    /// Returns the reason for each Service that asks to be published and is not, or not with all of its
    /// ports.
    pub(crate) fn not_published(&self, desired: &Desired) -> BTreeMap<ServiceKey, String> {
        let stopped = desired.frontends.values().filter(|frontend| !self.runs(frontend));
        let stopped: BTreeSet<&str> = stopped.map(|frontend| frontend.about.as_str()).collect();
        let left_out = self.left_out.iter().filter(|problem| stopped.contains(problem.about.as_str()));
        let mut reasons = BTreeMap::<ServiceKey, BTreeSet<&str>>::new();
        for problem in desired.problems.iter().filter(|problem| problem.unpublished).chain(left_out) {
            if let Some((namespace, name)) = problem.about.split_once('/')
                && ![INTENDED, ABSENT].contains(&problem.kind)
            {
                reasons.entry((namespace.to_owned(), name.to_owned())).or_default().insert(&problem.text);
            }
        }
        let text = |reasons: BTreeSet<&str>| {
            sanitize_short(&reasons.into_iter().collect::<Vec<_>>().join("; "), MAX_REASON)
        };
        reasons.into_iter().map(|(key, reasons)| (key, text(reasons))).collect()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Nothing: it is as wanted, or not ours.
    Keep,
    /// Write these entries. None of them: remove ours, because the Service is no longer published.
    Write(Vec<Ingress>),
    /// Nothing: the Service is published, and another program has written other entries.
    Foreign,
}

impl ServiceStatus {
    /// Decides about this status. `wanted` comes from [`Applied::wanted`]: `None` if the Service is not
    /// published, or is not of type `LoadBalancer`. Only entries of the field manager `manager` are changed.
    pub(crate) fn decide(&self, wanted: Option<&Option<Vec<Ingress>>>, manager: &str) -> Decision {
        let ours = self.writer.as_deref() == Some(manager);
        let is_made_of = |wanted: &[Ingress]| {
            self.ingress.len() == wanted.len()
                && self.ingress.iter().zip(wanted).all(|(made, wanted)| made.is_made_of(wanted))
        };
        match wanted {
            None if ours && !self.ingress.is_empty() => Decision::Write(Vec::new()),
            Some(Some(wanted)) if !is_made_of(wanted) && (self.ingress.is_empty() || ours) => {
                Decision::Write(wanted.clone())
            }
            Some(Some(wanted)) if !is_made_of(wanted) => Decision::Foreign,
            _ => Decision::Keep,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::desired::Problem;
    use crate::plan::observed::{Facts, ObservedService};
    use crate::plan::planner::make_plan;
    use crate::plan::tests::{annotated, service_of};
    use nodegate_program::List;

    const OURS: &str = "nodegate-haproxy";

    fn planned(services: &[ObservedService], policy: &PlanPolicy) -> Desired {
        make_plan(&Facts::of([], services.to_vec()), policy)
    }

    fn key(name: &str) -> ServiceKey {
        ("shop".to_owned(), name.to_owned())
    }

    fn addresses(list: &[&str]) -> Vec<Ingress> {
        list.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn ip(address: &str) -> Ingress {
        Ingress { ip: Some(address.to_owned()), hostname: None, ip_mode: Some("Proxy".to_owned()) }
    }

    #[test]
    fn a_service_gets_the_addresses_of_its_bind_once_a_server_has_been_up() {
        let policy =
            PlanPolicy { bind: List::of("")("10.0.0.5,web=10.0.0.100").ok(), ..PlanPolicy::default() };
        let given = addresses(&["203.0.113.1", "lb.example.com"]);
        let local = ObservedService { local: true, health_port: Some(1), ..service_of("local", 81) };
        let web = ObservedService { annotations: annotated(&[("bind", "web")]), ..service_of("web", 80) };
        let new = service_of("new", 82);
        let desired = planned(&[service_of("plain", 80), web.clone(), local.clone(), new], &policy);
        let plan = planned(&[service_of("plain", 80), web, local], &policy);
        let applied = Applied { plan, ..Applied::default() };
        let host = Ingress { hostname: Some("lb.example.com".to_owned()), ..Ingress::default() };
        let mut checked = Checked::default();
        let mut expected = BTreeMap::from(["local", "new", "plain", "web"].map(|name| (key(name), None)));
        assert_eq!(applied.wanted(&desired, &checked, &given, &policy), expected);
        checked.was_up.insert("nodegate_nodes".to_owned());
        expected.insert(key("plain"), Some(vec![ip("203.0.113.1"), host.clone()]));
        expected.insert(key("web"), Some(vec![ip("10.0.0.100")]));
        assert_eq!(applied.wanted(&desired, &checked, &given, &policy), expected);
        checked.was_up.insert("nodegate_shop_local_81".to_owned());
        expected.insert(key("local"), Some(vec![ip("203.0.113.1"), host]));
        assert_eq!(applied.wanted(&desired, &checked, &given, &policy), expected);
    }

    #[test]
    fn reasons_are_given_but_not_for_what_is_meant() {
        let problems = [
            ("protocol", true, "port 53 is\nnot TCP"),
            (INTENDED, true, "meant"),
            ("annotation", false, "a default is used"),
            ("conflict", true, "a"),
            ("address", true, "a"),
            ("busy", true, "left out"),
            (ABSENT, true, "the other balancer has it"),
        ];
        let problem = |(kind, unpublished, text): (_, _, &str)| Problem {
            about: "shop/web".to_owned(),
            kind,
            text: text.to_owned(),
            unpublished,
        };
        let (left_out, problems): (BTreeSet<_>, _) =
            problems.map(problem).into_iter().partition(|problem| ["busy", ABSENT].contains(&problem.kind));
        let desired = Desired { problems, ..planned(&[service_of("web", 80)], &PlanPolicy::default()) };
        let applied = Applied { left_out, ..Applied::default() };
        let reasons = BTreeMap::from([(key("web"), "a; left out; port 53 is\u{fffd}not TCP".to_owned())]);
        assert_eq!(applied.not_published(&desired), reasons);
    }

    #[test]
    fn only_our_own_entries_are_changed() {
        let wanted = vec![ip("10.0.0.1")];
        let status = |ingress: &[Ingress], writer: Option<&str>| ServiceStatus {
            ingress: ingress.to_vec(),
            writer: writer.map(str::to_owned),
            ..ServiceStatus::default()
        };
        let other = [ip("10.0.0.2")];
        let by_an_old_server = [Ingress { ip_mode: None, ..ip("10.0.0.1") }];
        let set = Decision::Write(wanted.clone());
        let published = Some(wanted.clone());
        for (status, published, decision) in [
            (status(&[], None), Some(&published), set.clone()),
            (status(&wanted, Some(OURS)), Some(&published), Decision::Keep),
            (status(&by_an_old_server, Some(OURS)), Some(&published), Decision::Keep),
            (status(&wanted, Some("kubectl")), Some(&published), Decision::Keep),
            (status(&other, Some(OURS)), Some(&published), set),
            (status(&other, Some("metallb")), Some(&published), Decision::Foreign),
            (status(&other, Some(OURS)), Some(&None), Decision::Keep),
            (status(&other, Some(OURS)), None, Decision::Write(Vec::new())),
            (status(&other, Some("metallb")), None, Decision::Keep),
            (status(&wanted, None), None, Decision::Keep),
            (status(&[], None), None, Decision::Keep),
        ] {
            assert_eq!(status.decide(published, OURS), decision, "{status:?} {published:?}");
        }
    }
}
