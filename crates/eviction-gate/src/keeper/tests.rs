//! Replicas that renew at the same time. At every moment, a simulated API server can verify each of them.

use super::pair::{Pair, cas_of};
use super::{Keeper, OwnSecret, Source, issue};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use nodegate_kube_follow::{Connector, KubeApi};
use nodegate_kube_sim::{Builder, Effect, FaultId, FaultScope, Sim};
use serde_json::{Value, json};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tower::util::BoxCloneService;
use tower::{BoxError, ServiceExt as _};

const NAMESPACE: &str = "nodegate";
const NAME: &str = "gate";
const DAY: Duration = Duration::from_hours(24);

fn names() -> Vec<String> {
    vec!["gate.nodegate.svc".to_owned()]
}

struct Lab {
    sim: Sim,
    api: KubeApi,
    now: SystemTime,
    replicas: Vec<Keeper>,
}

impl Lab {
    fn new(replicas: usize) -> Self {
        let sim = Builder::default().tls(false).without_sockets();
        for object in [
            json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": NAMESPACE}}),
            json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": NAME, "namespace": NAMESPACE}}),
            json!({"kind": "ValidatingWebhookConfiguration", "apiVersion": "admissionregistration.k8s.io/v1",
                "metadata": {"name": NAME}, "webhooks": [{"name": "gate.example.com", "sideEffects": "None",
                "admissionReviewVersions": ["v1"], "clientConfig": {"service": {"namespace": NAMESPACE, "name": NAME}},
                "rules": []}]}),
        ] {
            sim.apply(object).unwrap();
        }
        let service = sim.servers().remove(0);
        let open = move || {
            let service = service.clone();
            BoxCloneService::new(tower::service_fn(move |request: Request<Body>| {
                let answered = service.clone().oneshot(request);
                async move {
                    for _ in 0..fastrand::u8(..4) {
                        tokio::task::yield_now().await;
                    }
                    let response = answered.await.map_err(BoxError::from)?;
                    Ok(response.map(|body| body.map_err(BoxError::from).boxed_unsync()))
                }
            }))
        };
        let connector = Connector::Simulated(Arc::new(open));
        let api = KubeApi::over(connector, Duration::from_secs(5));
        let now = UNIX_EPOCH + Duration::from_hours(500_000);
        let mut lab = Self { sim, api, now, replicas: Vec::new() };
        (0..replicas).for_each(|_| lab.start());
        lab
    }

    fn start(&mut self) {
        let secret = OwnSecret { namespace: NAMESPACE.to_owned(), name: NAME.to_owned(), names: names() };
        self.replicas.push(Keeper::new(Source::Own(secret), None));
    }

    async fn refresh(&self, replica: usize) -> Result<(), String> {
        let refreshed = self.replicas[replica].refresh(&self.api, self.now).await;
        self.check();
        refreshed
    }

    /// Refreshes both at the same time, and looks at each moment.
    async fn refresh_both(&self) {
        let both = futures::future::join(
            self.replicas[0].refresh(&self.api, self.now),
            self.replicas[1].refresh(&self.api, self.now),
        );
        let mut both = pin!(both);
        poll_fn(|context| {
            let polled = both.as_mut().poll(context).map(drop);
            self.check();
            polled
        })
        .await;
    }

    fn bundle(&self) -> String {
        let configuration = self.sim.get("validatingwebhookconfigurations", "", NAME).unwrap();
        let text =
            configuration["webhooks"][0]["clientConfig"]["caBundle"].as_str().unwrap_or_default().to_owned();
        String::from_utf8(STANDARD.decode(text).unwrap()).unwrap()
    }

    /// The API server trusts each replica that has a certificate.
    fn check(&self) {
        let cas = cas_of(&self.bundle(), self.now);
        for (number, replica) in self.replicas.iter().enumerate() {
            let is_trusted = |pair: &Arc<Pair>| pair.is_trusted_by(&cas, &names(), self.now);
            assert!(replica.pair().as_ref().is_none_or(is_trusted), "replica {number} of\n{}", self.bundle());
        }
        assert!(self.bundle().matches("BEGIN").count() <= 8);
    }

    fn set_secret(&self, data: Value) {
        let mut secret = self.sim.get("secrets", NAMESPACE, NAME).unwrap();
        secret["data"] = data;
        self.sim.apply(secret).unwrap();
    }

    fn heal(&self, fault: Option<FaultId>) {
        assert!(fault.is_none_or(|fault| self.sim.faults().remove(fault)));
    }

    /// Refreshes each in turn. Returns true for those whose new certificate waits.
    async fn refresh_each(&self) -> [bool; 2] {
        for replica in [0, 1] {
            self.refresh(replica).await.unwrap();
        }
        [0, 1].map(|replica| self.replicas[replica].is_pending())
    }

    fn is_same(&self) -> bool {
        self.replicas[0].pair().unwrap().is_same(&self.replicas[1].pair().unwrap())
    }
}

/// In any order of refreshes, restarts and faults. In the end all replicas have one fresh certificate.
#[tokio::test]
async fn in_any_order_the_api_server_can_verify_every_replica() {
    for seed in 0..25 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut lab = Lab::new(2);
        let puts = || FaultScope::all().resources(&["secrets"]).verbs(&["update"]);
        let mut fault = None;
        for _ in 0..40 {
            match random.u8(..12) {
                0 => lab.set_secret(Value::Null),
                1 => lab.set_secret(json!({"ca.crt": STANDARD.encode("garbage")})),
                2 => {
                    let mut data = lab.sim.get("secrets", NAMESPACE, NAME).unwrap()["data"].clone();
                    if data.is_object() {
                        data["ca.crt"] =
                            json!(STANDARD.encode(issue(&["x".to_owned()], DAY, lab.now).unwrap().ca));
                        lab.set_secret(data);
                    }
                }
                3 => fault = fault.or_else(|| Some(lab.sim.faults().add(Effect::Forbidden.on(puts())))),
                4 => lab.heal(fault.take()),
                // Within the life of what is served.
                5 => lab.now += DAY * 20,
                6 => {
                    lab.replicas[1] = {
                        lab.start();
                        lab.replicas.pop().unwrap()
                    }
                }
                7 => lab.refresh_both().await,
                replica => drop(lab.refresh(usize::from(replica % 2)).await),
            }
            let is_expired =
                |keeper: &Keeper| keeper.pair().is_some_and(|pair| !pair.is_valid(lab.now + DAY * 21));
            if lab.replicas.iter().any(is_expired) {
                break;
            }
            lab.check();
        }
        lab.heal(fault.take());
        for _ in 0..4 {
            for replica in 0..2 {
                let _ = lab.refresh(replica).await;
            }
        }
        assert_eq!(lab.refresh_each().await, [false; 2], "{seed}");
        assert!(lab.is_same() && !lab.replicas[0].pair().unwrap().is_due(lab.now), "{seed}");
    }
}

#[tokio::test]
async fn a_certificate_is_renewed_at_two_thirds_and_served_when_its_ca_is_known() {
    let mut lab = Lab::new(2);
    assert_eq!(lab.refresh_each().await, [false; 2]);
    let first = lab.replicas[0].pair().unwrap();
    lab.now += DAY * 250;
    assert_eq!(lab.refresh_each().await, [true; 2], "the API server may not know it yet");
    assert!(lab.replicas.iter().all(|replica| replica.pair().unwrap().is_same(&first)));
    assert_eq!(lab.refresh_each().await, [false; 2]);
    assert!(lab.is_same() && !lab.replicas[0].pair().unwrap().is_same(&first));
    assert_eq!(lab.bundle().matches("BEGIN").count(), 2);
    lab.now += DAY * 120;
    lab.refresh(0).await.unwrap();
    assert_eq!(lab.bundle().matches("BEGIN").count(), 1, "the first one has expired");
}
