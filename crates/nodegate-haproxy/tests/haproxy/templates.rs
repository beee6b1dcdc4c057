//! The operator's part of the file: nothing in it reaches the generated sections, and a part that HAProxy
//! refuses leaves the last file running.

use crate::lab::{Lab, TEMPLATE, get, node_name};
use crate::traffic::Traffic;

/// Twelve `defaults` that broke a generated section in the operator's own configuration.
const HOSTILE: [(&str, &str); 12] = [
    ("PROXY to every server", "default-server send-proxy-v2 check-send-proxy"),
    ("TLS to every server", "default-server ssl verify none check-ssl"),
    ("disabled servers", "default-server disabled"),
    ("checks by default", "default-server check port 1 inter 1h fall 1 rise 100\n  option redispatch 1"),
    ("agent checks", "default-server check agent-check agent-port 1 agent-inter 500ms"),
    ("HTTP/2 to every server", "default-server proto h2"),
    ("HTTP logs", "mode http\n  option httplog\n  log-format \"%HM %HU %ST\""),
    ("another check", "option httpchk POST /nothing\n  http-check expect status 418"),
    ("a TCP check", "option tcp-check\n  tcp-check connect port 1\n  tcp-check expect string NO"),
    ("a source address", "source 192.0.2.1"),
    ("limits", "maxconn 1\n  fullconn 1\n  default-server maxconn 1 minconn 1 slowstart 10m weight 0"),
    (
        "timeouts and states",
        "mode http\n  timeout client 1\n  timeout server 1\n  timeout queue 1\n  retries 0\n  option abortonclose\n  \
         load-server-state-from-file global\n  option http-server-close",
    ),
];

/// A named section with rules, which HAProxy lets no other one inherit from by chance.
const RULES: &str = "defaults rules\n  mode http\n  timeout client 1s\n  http-request deny\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_defaults_reach_no_generated_section() {
    let mut lab = Lab::new(2).await;
    let port = lab.publish().await;
    let backend = format!("nodegate_default_web_{port}");
    for (name, words) in HOSTILE {
        let before = lab.reloads().await;
        let template = format!("{RULES}defaults hostile\n  {words}\n  timeout connect 1s\n");
        std::fs::write(&lab.template, &template).unwrap();
        lab.until_reloaded(before).await;
        assert!(std::fs::read_to_string(&lab.config).unwrap().starts_with(&template), "{name}");
        for index in 0..2 {
            let up = async || lab.status("nodegate_nodes", &node_name(index)).await == "UP";
            lab.until(&format!("{name}: node {index} passes its check"), up).await;
        }
        get(port).unwrap_or_else(|error| panic!("{name}: {error}\n{}", lab.log()));
        lab.drain(&backend, 0).await;
        lab.until(&format!("{name}: only the other node serves"), async || lab.reached(port) == [1]).await;
        lab.undrain(&backend, 0).await;
        lab.until(&format!("{name}: both serve"), async || lab.reached(port) == [0, 1]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_template_leaves_the_last_file_running() {
    let mut lab = Lab::new(2).await;
    let port = lab.publish().await;
    let old = std::fs::read(&lab.config).unwrap();
    let traffic = Traffic::start(port);
    for (template, says) in [
        ("global\n  no-such-keyword\n", "no-such-keyword"),
        ("defaults nodegate\n", "which the generated part has"),
        (".if defined(NO)\nglobal\n", ".if"),
        ("backend nodegate_nodes\n", "nodegate_nodes"),
    ] {
        std::fs::write(&lab.template, template).unwrap();
        lab.until_logged(says).await;
        assert_eq!(std::fs::read(&lab.config).unwrap(), old, "{template}");
        assert!(lab.is_ready(), "the last file runs\n{}", lab.log());
    }
    let before = lab.reloads().await;
    std::fs::write(&lab.template, "global\n  maxconn 1999").unwrap();
    lab.until_reloaded(before).await;
    let good = traffic.none_lost(&lab);
    println!(
        "broken templates: 4 refused in HAProxy's words, a good one applied at once; {good} requests, 0 lost"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_template_that_tracks_a_deleted_node_is_named_until_it_is_edited() {
    let mut lab = Lab::new(3).await;
    let port = lab.publish().await;
    let before = lab.reloads().await;
    let own = format!(
        "backend own\n  timeout connect 1s\n  timeout server 1s\n  option httpchk GET /health?drain=404\n  \
         http-check disable-on-404\n  server own 127.0.0.1:1 track nodegate_nodes/{}\n",
        node_name(2)
    );
    std::fs::write(&lab.template, &own).unwrap();
    lab.until_reloaded(before).await;
    lab.sim.delete_node(&node_name(2));
    lab.until_logged("haproxy -c refuses the new configuration").await;
    assert!(lab.whole_log().contains("own"), "{}", lab.log());
    assert!(get(port).is_ok() && lab.is_ready());
    let before = lab.reloads().await;
    std::fs::write(&lab.template, TEMPLATE).unwrap();
    lab.until_reloaded(before).await;
    let text = std::fs::read_to_string(&lab.config).unwrap();
    assert!(!text.contains(&node_name(2)), "{text}");
}
