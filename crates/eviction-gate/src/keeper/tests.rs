//! Replicas that renew at the same time. At every moment, a simulated API server can verify each of them.

use super::*;
use crate::Issued;
use crate::certificate::tests::is_trusted;
use clap::Parser as _;
use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use nodegate_kube_follow::Connector;
use nodegate_kube_sim::{Builder, Effect, FaultScope, Sim};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::time::UNIX_EPOCH;
use tower::util::BoxCloneService;
use tower::{BoxError, ServiceExt as _};

const NAMESPACE: &str = "nodegate";
const NAME: &str = "gate";
const DAY: Duration = Duration::from_hours(24);

struct Scenario {
    sim: Sim,
    api: KubeApi,
    now: SystemTime,
    replicas: Vec<Keeper>,
}

impl Scenario {
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
        let mut scenario = Self { sim, api, now, replicas: Vec::new() };
        (0..replicas).for_each(|_| scenario.start());
        scenario
    }

    fn start(&mut self) {
        let args = Args::parse_from(["gate", "--name", NAME, "--namespace", NAMESPACE]);
        self.replicas.push(Keeper::new(Arc::new(args)));
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
        let bundle = self.bundle();
        for (number, replica) in self.replicas.iter().enumerate() {
            let is_trusted =
                |served: Arc<Certificate>| is_trusted(&served.pem, &bundle, "gate.nodegate.svc", self.now);
            assert!(replica.served().is_none_or(is_trusted), "replica {number} of\n{bundle}");
        }
        assert!(bundle.matches("BEGIN").count() <= MAX_IN_BUNDLE);
    }

    fn set_secret(&self, data: Value) {
        let mut secret = self.sim.get("secrets", NAMESPACE, NAME).unwrap();
        secret["data"] = data;
        self.sim.apply(secret).unwrap();
    }

    /// Refreshes each in turn. Returns true for those whose new certificate waits.
    async fn refresh_each(&self) -> [bool; 2] {
        for replica in [0, 1] {
            self.refresh(replica).await.unwrap();
        }
        [0, 1].map(|replica| self.replicas[replica].is_pending())
    }

    fn is_same(&self) -> bool {
        self.replicas[0].served().unwrap().pem == self.replicas[1].served().unwrap().pem
    }
}

/// In any order of refreshes, restarts and faults. In the end all replicas have one fresh certificate.
#[tokio::test]
async fn in_any_order_the_api_server_can_verify_every_replica() {
    for seed in 0..25 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut scenario = Scenario::new(2);
        let puts = || FaultScope::all().resources(&["secrets"]).verbs(&["update"]);
        for _ in 0..40 {
            match random.u8(..12) {
                0 => scenario.set_secret(Value::Null),
                1 => scenario.set_secret(json!({"tls.crt": STANDARD.encode("garbage")})),
                2 => {
                    let Issued { certificate, key } = issue("x", DAY, scenario.now).unwrap();
                    scenario.set_secret(
                        json!({"tls.crt": STANDARD.encode(certificate), "tls.key": STANDARD.encode(key)}),
                    );
                }
                3 => _ = scenario.sim.faults().add(Effect::Forbidden.on(puts())),
                4 => scenario.sim.faults().clear(),
                // Within the life of what is served.
                5 => scenario.now += DAY * 20,
                6 => {
                    scenario.replicas[1] = {
                        scenario.start();
                        scenario.replicas.pop().unwrap()
                    }
                }
                7 => scenario.refresh_both().await,
                replica => drop(scenario.refresh(usize::from(replica % 2)).await),
            }
            let then = scenario.now + DAY * 21;
            let is_expired = |keeper: &Keeper| keeper.served().is_some_and(|served| !served.is_valid(then));
            if scenario.replicas.iter().any(is_expired) {
                break;
            }
            scenario.check();
        }
        scenario.sim.faults().clear();
        for _ in 0..4 {
            for replica in 0..2 {
                let _ = scenario.refresh(replica).await;
            }
        }
        assert_eq!(scenario.refresh_each().await, [false; 2], "{seed}");
        assert!(scenario.is_same() && !scenario.replicas[0].served().unwrap().is_due(scenario.now), "{seed}");
    }
}

#[tokio::test]
async fn a_certificate_is_renewed_at_two_thirds_and_served_when_its_ca_is_known() {
    let mut scenario = Scenario::new(2);
    assert_eq!(scenario.refresh_each().await, [false; 2]);
    let first = scenario.replicas[0].served().unwrap();
    scenario.now += DAY * 250;
    assert_eq!(scenario.refresh_each().await, [true; 2], "the API server may not know it yet");
    assert!(scenario.replicas.iter().all(|replica| replica.served().unwrap().pem == first.pem));
    assert_eq!(scenario.refresh_each().await, [false; 2]);
    assert!(scenario.is_same() && scenario.replicas[0].served().unwrap().pem != first.pem);
    assert_eq!(scenario.bundle().matches("BEGIN").count(), 2);
    scenario.now += DAY * 120;
    scenario.refresh(0).await.unwrap();
    assert_eq!(scenario.bundle().matches("BEGIN").count(), 1, "the first one has expired");
}
