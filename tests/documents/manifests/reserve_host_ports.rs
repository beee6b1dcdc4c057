//! examples/security: a policy that keeps other Pods from the agent's ports on the host.

use super::support::{Json, Manifests, default_of, install, knows_every_field};
use crate::docs::pages::read;

#[test]
fn the_host_port_policy_is_complete_and_names_the_agents_ports_and_namespace() {
    let policy = read("examples/security/reserve-host-ports.yaml");
    let objects = Manifests::parse(&policy);
    objects.0.iter().for_each(knows_every_field);
    let policy = objects.the("ValidatingAdmissionPolicy", "nodegate-host-ports");
    let binding = objects.the("ValidatingAdmissionPolicyBinding", "nodegate-host-ports");
    assert_eq!(binding.at("/spec/policyName"), policy.at("/metadata/name"));
    assert_eq!(binding.at("/spec/validationActions/0"), "Deny");
    let ports = ["LISTEN_PORT", "NODEGATE_AGENT_CHECK_PORT"].map(default_of).join(", ");
    assert_eq!(policy.at("/spec/variables/0/expression"), &format!("[{ports}]"));
    let namespace = install().the("DaemonSet", "nodegate").at("/metadata/namespace").clone();
    let expression = format!("request.namespace != '{}'", namespace.as_str().unwrap());
    assert_eq!(policy.at("/spec/matchConditions/0/expression"), &expression);
    for (validation, list) in policy.every("/spec/validations").iter().zip(["containers", "initContainers"]) {
        let expression = validation.at("/expression").as_str().unwrap();
        assert!(expression.contains(&format!("object.spec.{list}.all(")), "{expression}");
        assert!(expression.contains("port.hostPort in variables.reserved"), "{expression}");
    }
    assert_eq!(policy.every("/spec/validations").len(), 2);
}
