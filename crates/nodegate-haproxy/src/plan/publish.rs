//! The Services that are published, and the clients whose connections they accept.

use crate::plan::desired::{INTENDED, Refusal};
use crate::plan::facts::ObservedService;
use crate::plan::policy::PlanPolicy;
use ipnet::IpNet;

/// The maximum number of source ranges of one Service. HAProxy compares each client with all of them.
const MAX_RANGES: usize = 1000;

/// Checks that a Service is to be published. The error is the reason against it.
pub(crate) fn is_ours(service: &ObservedService, policy: &PlanPolicy) -> Result<(), Refusal> {
    // A value other than true or false prevents publishing, because its author wanted less, not more.
    let flag = |name: &str| {
        let value = service.annotations.get(name).map(|text| text.parse::<bool>()).transpose();
        value.map_err(|_| ("annotation", format!("haproxy-{name} takes true or false")))
    };
    let (ignored, asked) = (flag("ignore")?, flag("publish")?);
    let why_not = match (&service.class, &policy.class) {
        _ if ignored == Some(true) => "nodegate.io/haproxy-ignore: true".to_owned(),
        _ if asked == Some(false) => "nodegate.io/haproxy-publish: false".to_owned(),
        (Some(theirs), ours) if ours.as_ref() != Some(theirs) => {
            format!("its loadBalancerClass is {theirs}, another controller's")
        }
        (None, Some(ours)) if service.load_balancer => {
            format!("it has no loadBalancerClass, and --load-balancer-class is {ours}")
        }
        _ if service.load_balancer || asked.is_some() => return Ok(()),
        _ => "it is of type NodePort and has no nodegate.io/haproxy-publish: true".to_owned(),
    };
    Err((INTENDED, why_not))
}

/// Returns the source ranges whose connections are accepted, as HAProxy writes them, or `None` for all. Also
/// returns the number of ranges that can't be parsed or exceed the limit; these allow no client.
pub(crate) fn sources(service: &ObservedService) -> (Option<Vec<String>>, usize) {
    if service.source_ranges.is_empty() {
        return (None, 0);
    }
    let range = |text: &String| Some(text.trim().parse::<IpNet>().ok()?.to_string());
    let read: Vec<String> = service.source_ranges.iter().filter_map(range).take(MAX_RANGES).collect();
    let unread = service.source_ranges.len() - read.len();
    (Some(read), unread)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(annotations: &[(&str, &str)], class: Option<&str>) -> ObservedService {
        ObservedService {
            load_balancer: true,
            class: class.map(str::to_owned),
            annotations: annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            ..ObservedService::default()
        }
    }

    #[test]
    fn a_class_selects_one_program_and_no_class_selects_all() {
        let ours = PlanPolicy { class: Some("example.com/haproxy".to_owned()), ..PlanPolicy::default() };
        for (class, policy, published) in [
            (None, &PlanPolicy::default(), true),
            (Some("other"), &PlanPolicy::default(), false),
            (None, &ours, false),
            (Some("other"), &ours, false),
            (Some("example.com/haproxy"), &ours, true),
        ] {
            assert_eq!(is_ours(&service(&[], class), policy).is_ok(), published, "{class:?}");
        }
        // A Service of type NodePort can't have one.
        let node_port = ObservedService { load_balancer: false, ..service(&[("publish", "true")], None) };
        assert_eq!(is_ours(&node_port, &ours), Ok(()));
    }

    #[test]
    fn opting_in_and_out() {
        for (annotations, load_balancer, node_port) in [
            (&[][..], true, false),
            (&[("publish", "true")], true, true),
            (&[("publish", "false")], false, false),
            (&[("publish", "yes")], false, false),
            (&[("ignore", "true")], false, false),
            (&[("ignore", "true"), ("publish", "true")], false, false),
            (&[("port", "80")], true, false),
        ] {
            let published = |service: &ObservedService| is_ours(service, &PlanPolicy::default()).is_ok();
            let plain = service(annotations, None);
            let other = ObservedService { load_balancer: false, ..plain.clone() };
            assert_eq!((published(&plain), published(&other)), (load_balancer, node_port), "{annotations:?}");
        }
    }

    #[test]
    fn an_invalid_range_allows_no_client() {
        let of = |ranges: &[&str]| {
            let source_ranges = ranges.iter().map(|range| (*range).to_owned()).collect();
            sources(&ObservedService { source_ranges, ..ObservedService::default() })
        };
        let some = |ranges: &[&str]| Some(ranges.iter().map(|range| (*range).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&[]), (None, 0));
        assert_eq!(of(&["10.0.0.0/8", " fd00::/8"]), (some(&["10.0.0.0/8", "fd00::/8"]), 0));
        assert_eq!(of(&["10.0.0.0/8 0.0.0.0/0", "10.0.0.1", "10.0.0.0/33"]), (some(&[]), 3));
        assert_eq!(of(&["0.0.0.0/0"]), (some(&["0.0.0.0/0"]), 0));
    }
}
