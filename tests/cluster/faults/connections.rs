//! Faults of the API server and of the connections to it.

use super::scene::{CORDONED, FRESH, LOST, REPLACED, SOON_STALE, STALE, Scene};
use nodegate_kube_sim::Effect;
use nodegate_testbed::scenario::TOKEN;
use nodegate_testbed::waiting::until_or;
use nodegate_testbed::{NODE, Scenario, needs_root};
use serde_json::{Value, json};

/// The maximum of open connections: one that the agent leaves stays open until its watches have ended.
const CONNECTIONS: u64 = 6;

#[test]
fn a_killed_api_server_is_followed_again_after_its_restart() {
    let mut scene = Scene::start(SOON_STALE);
    let address = scene.cluster.sim.address();
    let up = format!(r#"nodegate_api_server_up{{address="{address}"}}"#);
    assert_eq!(scene.agent.metric(&up), Some(1.0));
    scene.fault(|scene| scene.cluster.kill_api());
    scene.fails_open();
    assert_eq!(scene.agent.metric(&up), Some(0.0));
    let lost = |line: &&str| {
        line.contains("watch failed; retrying") && line.contains(&format!(r#"server="{address}""#))
    };
    assert_eq!(scene.agent.log_text().lines().filter(lost).count(), 1, "{}", scene.agent.log_text());
    scene.cluster.sim.cordon(NODE);
    scene.heal(|scene| scene.cluster.restart_api());
    scene.restarts("disconnected", 1.0);
    scene.logged_once(LOST);
    scene.recovers(CORDONED);
    scene.ends("API server killed, restarted", &[FRESH, STALE, CORDONED]);
}

#[test]
fn a_connection_whose_packets_vanish_is_replaced() {
    needs_root("packets that the kernel drops");
    let mut scene = Scene::start(&[]);
    scene.fault(|scene| {
        scene.cluster.sim.half_open();
        scene.cluster.sim.cordon(NODE);
    });
    scene.notices(CORDONED, REPLACED);
    scene.restarts("disconnected", 1.0);
    scene.logged_once(LOST);
    let open = scene.cluster.sim.counters().read().connections_max;
    assert!(open <= 3 + 2, "{open}: three of the agent's, and the dead ones");
    scene.heal(|scene| scene.cluster.sim.heal());
    scene.never_stale();
    scene.recovers(CORDONED);
    scene.ends("packets of open connections dropped", &[FRESH, CORDONED]);
}

/// A fault of new connections: how it begins, and the restarts of the Node's watch, with their number, that show what the
/// agent has given up. The first is the end of the old connection.
type NewConnections = (&'static str, fn(&Scenario), &'static str, f64);

#[test]
fn attempts_to_connect_end() {
    needs_root("packets that the kernel drops");
    let faults: [NewConnections; 2] = [
        ("packets of new connections dropped, too", into_a_black_hole, "disconnected", 2.0),
        ("new connections accepted, never served", unserved, "timeout", 1.0),
    ];
    for (name, begin, reason, times) in faults {
        let mut scene = Scene::start(SOON_STALE);
        scene.fault(|scene| begin(&scene.cluster));
        scene.fails_open();
        scene.restarts(reason, times);
        scene.heal(|scene| scene.cluster.sim.heal());
        scene.recovers(FRESH);
        scene.ends(name, &[FRESH, STALE, FRESH]);
    }
}

fn into_a_black_hole(cluster: &Scenario) {
    cluster.sim.half_open();
    cluster.sim.blackhole_new().unwrap();
}

fn unserved(cluster: &Scenario) {
    cluster.sim.ignore_new();
    cluster.sim.reset_connections();
}

/// Sends GOAWAY after every answer, fifty times as often as the maximum of `--goaway-chance`.
#[test]
fn goaway_after_every_answer_makes_no_storm_of_connections() {
    // Long enough for each watch to live for more than 5 s before the consistency check moves it. A watch
    // that ends sooner counts as failed, and backs off for up to 10 s.
    let mut scene = Scene::start(&["--stale-after=12s"]);
    let going = scene.fault(|scene| {
        let going = scene.cluster.sim.faults().add(Effect::GoAway.everywhere());
        scene.cluster.sim.close_watches(None);
        going
    });
    // Twelve seconds of probes.
    scene.prober.wait(600);
    let counted = scene.cluster.sim.counters().read();
    assert!(counted.total() <= 4 * 14, "{} requests in 12 s", counted.total());
    assert!(counted.connections_max <= CONNECTIONS, "{} connections", counted.connections_max);
    scene.heal(|scene| scene.cluster.sim.faults().remove(going));
    scene.watches_again();
    scene.never_stale();
    scene.goes_on();
    scene.ends("GOAWAY after every answer", &[FRESH]);
}

/// Writes a kubeconfig with credentials of this kind, and returns its user. A Pod's token is a `tokenFile`, too.
fn write_user(cluster: &Scenario, kind: &str, token: &str) -> Value {
    let file = cluster.dir.path().join("token");
    let user = match kind {
        "exec" => {
            let args = [json!({"status": {"token": token}}).to_string()];
            let version = "client.authentication.k8s.io/v1";
            json!({"exec": {"apiVersion": version, "command": "echo", "args": args, "interactiveMode": "Never"}})
        }
        "tokenFile" => {
            std::fs::write(&file, token).unwrap();
            json!({ "tokenFile": file })
        }
        "client-certificate" => cluster.sim.client_certificate().unwrap(),
        _ => json!({ "token": token }),
    };
    std::fs::write(cluster.kubeconfig(), cluster.sim.kubeconfig_as(&user)).unwrap();
    user
}

/// The API server refuses the old credentials, and goes on with the open watch. Without a Lease, each proof is a check.
#[test]
fn credentials_that_are_refused_are_read_again_although_the_watch_is_open() {
    for kind in ["token", "exec", "tokenFile", "client-certificate"] {
        let cluster = Scenario::with(|builder| builder);
        let first = write_user(&cluster, kind, TOKEN);
        let agent = cluster.ready_agent(&["--stale-after=6s"]);
        let answered =
            || agent.metric(r#"nodegate_api_requests_total{verb="get",code="200"}"#).unwrap_or(0.0);
        write_user(&cluster, kind, "new-token");
        assert!(cluster.sim.rotate_token(TOKEN, "new-token"));
        assert_eq!(cluster.sim.refuse_certificate(&first), kind == "client-certificate");
        let before = answered();
        until_or(|| (answered() >= before + 2.0).then_some(()), || format!("{kind}: {}", agent.log_text()));
        agent.wait_for("a fresh answer", |reply| reply.status == 200 && !reply.is_stale());
    }
}
