//! The Services that are published, and the clients whose connections they accept.

use crate::plan::{INTENDED, ObservedService, PlanPolicy, Refusal};
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
    let why_not = match (&service.class, &policy.load_balancer_class) {
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

    #[test]
    fn type_class_and_annotations_decide() {
        let (none, ours) = (PlanPolicy::default(), Some("example.com/haproxy".to_owned()));
        let ours = PlanPolicy { load_balancer_class: ours, ..PlanPolicy::default() };
        for (annotations, load_balancer, class, policy, published) in [
            (&[][..], true, None, &none, true),
            (&[], false, None, &none, false),
            (&[("publish", "true")], false, None, &none, true),
            (&[("publish", "false")], true, None, &none, false),
            (&[("publish", "yes")], true, None, &none, false),
            (&[("ignore", "true"), ("publish", "true")], true, None, &none, false),
            (&[], true, Some("other"), &none, false),
            (&[], true, Some("other"), &ours, false),
            (&[], true, None, &ours, false),
            (&[], true, Some("example.com/haproxy"), &ours, true),
            // A Service of type NodePort can't have a class.
            (&[("publish", "true")], false, None, &ours, true),
        ] {
            let service = ObservedService {
                load_balancer,
                class: class.map(str::to_owned),
                annotations: annotations
                    .iter()
                    .map(|(k, v): &(&str, &str)| (k.to_string(), v.to_string()))
                    .collect(),
                ..ObservedService::default()
            };
            assert_eq!(is_ours(&service, policy).is_ok(), published, "{service:?}");
        }
    }

    #[test]
    fn an_invalid_range_allows_no_client() {
        for (ranges, read, unread) in [
            (&[][..], None, 0),
            (&["10.0.0.0/8", " fd00::/8"], Some("10.0.0.0/8 fd00::/8"), 0),
            (&["10.0.0.0/8 0.0.0.0/0", "10.0.0.1", "10.0.0.0/33"], Some(""), 3),
            (&["0.0.0.0/0"], Some("0.0.0.0/0"), 0),
        ] {
            let source_ranges = ranges.iter().map(|range: &&str| range.to_string()).collect();
            let (sources, wrong) = sources(&ObservedService { source_ranges, ..ObservedService::default() });
            assert_eq!((sources.map(|all| all.join(" ")).as_deref(), wrong), (read, unread));
        }
    }
}
