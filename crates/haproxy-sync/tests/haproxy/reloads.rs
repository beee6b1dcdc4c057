//! When HAProxy does not run what the program believes.

use crate::Row;
use crate::faults::failed;
use crate::lab::{Lab, get};
use nodegate_testbed::ports;
use serde_json::json;
use std::time::Duration;

const RELOADED: &str = "nodegate_haproxy_applies_total{kind=\"reloaded\"}";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_haproxy_with_another_configuration_is_not_reloaded_again_and_again() {
    other_configuration().await;
}

pub(crate) async fn other_configuration() -> Row {
    let mut lab = Lab::new(2).await;
    lab.publish().await;
    lab.program.take().unwrap().kill().await.unwrap();
    // HAProxy goes on with its own file whatever is written to this one.
    lab.config = lab.dir.path().join("other.cfg");
    lab.sim.apply(lab.service("more", ports::free(), &json!({}))).unwrap();
    lab.start_program(&[]);
    lab.until("it is noticed", async || lab.log().contains("HAProxy runs another configuration")).await;
    lab.until("it is loaded again", async || lab.metric(RELOADED) == Some(2.0)).await;
    let look = async || lab.processes().await.map(|now| now.reloads);
    lab.at_rest("the number of reloads", look, Duration::from_secs(2)).await;
    assert_eq!(lab.metric(RELOADED), Some(2.0), "{}", lab.log());
    let result = "named, one more reload, then none".to_owned();
    Row { what: "HAProxy runs another file than --config", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_that_fails_at_first_is_made_in_the_end() {
    failing_at_first().await;
}

pub(crate) async fn failing_at_first() -> Row {
    let mut lab = Lab::new(2).await;
    let template = lab.dir.path().join("head");
    let head = "defaults\n  timeout connect 2s\n  timeout client 20s\n  timeout server 20s\n";
    std::fs::write(&template, head).unwrap();
    lab.arguments = vec!["--template".to_owned(), template.to_string_lossy().into_owned()];
    let port = lab.publish().await;
    // HAProxy is started with another version of its file, and there is a reason why it can't be reloaded at first.
    let ours = std::fs::read(&lab.config).unwrap();
    lab.stop_haproxy();
    std::fs::remove_file(&template).unwrap();
    std::fs::write(&lab.config, format!("{head}listen x\n  bind 127.0.0.1:{}\n", ports::free())).unwrap();
    lab.start_haproxy().await;
    std::fs::write(&lab.config, ours).unwrap();
    lab.until("the reload fails", async || failed(&lab, "template").await).await;
    std::fs::write(&template, head).unwrap();
    let took = lab.until("it is made", async || get(port).is_ok()).await;
    let result = format!("port answers {} ms after the template is back", took.as_millis());
    Row { what: "HAProxy restarted with an old file", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_without_a_haproxy_is_not_ready_until_one_has_loaded_its_file() {
    late_haproxy().await;
}

pub(crate) async fn late_haproxy() -> Row {
    let port = ports::free();
    let mut lab = Lab::new(2).await;
    lab.sim.apply(lab.service("web", port, &json!({}))).unwrap();
    lab.start_program(&[]);
    let looks = "nodegate_haproxy_applies_total{kind=\"not-running\"}";
    lab.until("it has looked twice", async || lab.metric(looks) >= Some(2.0)).await;
    assert!(!lab.is_ready(), "{}", lab.log());
    assert_eq!(lab.metric("nodegate_haproxy_pending"), Some(1.0));
    assert_eq!(lab.log().matches("no HAProxy runs").count(), 1, "told once\n{}", lab.log());
    lab.start_haproxy().await;
    let took = lab.until("it is ready", async || lab.is_ready()).await;
    assert!(get(port).is_ok(), "{}", lab.log());
    assert_eq!(lab.metric(RELOADED), Some(1.0), "{}", lab.log());
    let result = format!("not ready before, ready {} ms after HAProxy was", took.as_millis());
    Row { what: "HAProxy starts after the program", result }
}
