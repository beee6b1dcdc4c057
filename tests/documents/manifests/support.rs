//! The manifests as tests read them, and the agent's settings from its parser.

pub(crate) use crate::docs::pages::ROOT;
use crate::docs::pages::read;
use crate::docs::settings::settings_of;
use clap::CommandFactory;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::flowcontrol::v1::FlowSchema;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// Objects in the order of their file.
pub(crate) struct Manifests(pub(crate) Vec<Value>);

pub(crate) fn manifest(name: &str) -> Manifests {
    Manifests::parse(&read(&format!("manifests/{name}.yaml")))
}

pub(crate) fn install() -> Manifests {
    manifest("install")
}

impl Manifests {
    pub(crate) fn parse(yaml: &str) -> Self {
        Self(serde_saphyr::from_multiple(yaml).unwrap())
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let name = |object: &Value| {
            let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
            let text = |pointer| object.at(pointer).as_str().unwrap();
            format!("{} {namespace}/{}", text("/kind"), text("/metadata/name"))
        };
        self.0.iter().map(name).collect()
    }

    pub(crate) fn the(&self, kind: &str, name: &str) -> &Value {
        let is_it = |object: &&Value| object.at("/kind") == kind && object.at("/metadata/name") == name;
        let found: Vec<_> = self.0.iter().filter(is_it).collect();
        assert_eq!(found.len(), 1, "{kind} {name} among {:?}", self.names());
        found[0]
    }

    pub(crate) fn pod(&self) -> &Value {
        self.the("DaemonSet", "nodegate").at("/spec/template/spec")
    }
}

/// Asserts that Kubernetes' type has every field of the object: an unknown one is lost in the conversion.
pub(crate) fn knows_every_field(object: &Value) {
    fn through<T: DeserializeOwned + Serialize>(object: &Value) -> Value {
        let typed: T = serde_json::from_value(object.clone()).unwrap_or_else(|error| {
            panic!("{} {}: {error}", object.at("/kind"), object.at("/metadata/name"))
        });
        serde_json::to_value(typed).unwrap()
    }
    macro_rules! kinds {
        ($($kind:ident)*) => {
            match object.at("/kind").as_str().unwrap() {
                $(stringify!($kind) => through::<$kind>(object),)*
                // Custom resources, whose types the operator defines.
                _ if object.at("/apiVersion").as_str().unwrap().starts_with("monitoring.coreos.com/") => {
                    object.clone()
                }
                kind => panic!("no type for {kind}"),
            }
        };
    }
    let kept = kinds! {
        ClusterRole ClusterRoleBinding ConfigMap DaemonSet Deployment FlowSchema Namespace NetworkPolicy Pod
        PodDisruptionBudget Role RoleBinding Secret Service ServiceAccount ValidatingAdmissionPolicy
        ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration
    };
    assert_eq!(&kept, object);
}

pub(crate) trait Json {
    fn at(&self, pointer: &str) -> &Value;
    /// Returns the list at a JSON pointer; empty if it is absent.
    fn every(&self, pointer: &str) -> &[Value];
    fn number(&self, pointer: &str) -> u64;
}

impl Json for Value {
    fn at(&self, pointer: &str) -> &Value {
        self.pointer(pointer).unwrap_or_else(|| panic!("no {pointer} in {self:#}"))
    }

    fn every(&self, pointer: &str) -> &[Value] {
        self.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    fn number(&self, pointer: &str) -> u64 {
        self.at(pointer).as_u64().unwrap()
    }
}

pub(crate) fn default_of(env: &str) -> String {
    let mut settings = settings_of(&nodegate_agent::Args::command()).into_iter();
    settings.find(|setting| setting.env == env).unwrap_or_else(|| panic!("no {env}")).default
}

pub(crate) fn seconds_of(env: &str) -> u64 {
    humantime::parse_duration(&default_of(env)).unwrap().as_secs()
}
