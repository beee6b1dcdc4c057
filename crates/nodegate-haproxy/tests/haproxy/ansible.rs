//! The Ansible role of examples/ansible, played by Ansible itself on a Debian whose HAProxy is in use.

use crate::lab::get_from;
use crate::packages::{ADDRESS, Packages, ROOT, Site, VERSION};
use crate::traffic::Traffic;
use serde_json::{Value, json};
use std::process::Output;

/// The counts of Ansible's last line for the host: `changed`, `failed`, …
fn recap(output: &Output) -> impl Fn(&str) -> u32 {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().rev().find(|line| line.contains("unreachable=")).unwrap_or_default().to_owned();
    move |word| {
        let value = line.split_whitespace().find_map(|each| each.strip_prefix(&format!("{word}=")));
        value.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{word}: {text}"))
    }
}

/// Plays the role with these settings and arguments.
fn play(site: &Site, package: &str, settings: &Value, more: &str) -> Output {
    let variables = json!({
        "nodegate_haproxy_package": format!("/root/{package}"),
        "nodegate_haproxy_kubeconfig": "/root/haproxy.kubeconfig",
        "nodegate_haproxy_shared_address": "10.0.0.100",
        "nodegate_haproxy_settings": settings,
    });
    std::fs::write(site.debian.path("/root/variables.json"), variables.to_string()).unwrap();
    // The one host of the group is this one.
    let inventory = "balancers:\n  hosts:\n    localhost:\n      ansible_connection: local\n";
    std::fs::write(site.debian.path("/root/inventory.yml"), inventory).unwrap();
    let words = "--inventory /root/inventory.yml --extra-vars @/root/variables.json --diff";
    site.debian
        .output(&format!("cd /root/ansible && ANSIBLE_PIPELINING=1 ansible-playbook {words} {more} site.yml"))
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ansible_role_installs_the_program_once() {
    let role = Role::start().await;
    role.looks();
    role.installs();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "seven plays take minutes; make packages-test"]
async fn the_ansible_role_restarts_only_what_it_must() {
    let role = Role::start().await;
    role.looks();
    role.is_refused_where_the_address_is();
    role.installs();
    role.changes_a_setting();
}

/// A Debian with the role and a package on it.
struct Role {
    site: Site,
    package: String,
    settings: Value,
}

impl Role {
    async fn start() -> Self {
        let packages = tokio::task::spawn_blocking(|| Packages::build(&[VERSION], "deb")).await.unwrap();
        let site = Site::start().await;
        let package = packages.copy(&site.debian, VERSION, "deb");
        let mut copy = std::process::Command::new("cp");
        copy.arg("-r").arg(format!("{ROOT}/examples/ansible")).arg(site.debian.path("/root/ansible"));
        assert!(copy.status().unwrap().success());
        let settings = site.settings();
        let settings = settings.lines().filter_map(|line| line.split_once('='));
        let settings = settings.map(|(name, value)| (name.to_owned(), json!(value))).collect();
        Self { site, package, settings }
    }

    /// Plays the role, which must succeed. Returns the number of tasks that have changed something.
    fn play(&self, more: &str) -> u32 {
        let played = play(&self.site, &self.package, &self.settings, more);
        assert!(played.status.success(), "{}\n{}", text(&played), self.site.debian.said());
        assert!(!text(&played).contains("token:"), "the kubeconfig is shown");
        recap(&played)("changed")
    }

    /// Plays the role, which must end with this message.
    fn fails(&self, message: &str) {
        let played = play(&self.site, &self.package, &self.settings, "");
        assert!(!played.status.success() && text(&played).contains(message), "{}", text(&played));
    }

    /// Shows that a look changes nothing.
    fn looks(&self) {
        let (site, debian) = (&self.site, &self.site.debian);
        let names = debian.run("cd /root/ansible && ansible-inventory --inventory inventory.yml --list");
        assert!(names.contains("lb1.example.com"), "{names}");
        let (theirs, haproxy) = (site.theirs(), site.haproxy());
        assert!(self.play("--check") > 3);
        assert_eq!((site.left(), site.theirs(), site.haproxy()), (Vec::new(), theirs, haproxy));
    }

    /// Shows that HAProxy is not restarted where the shared address is.
    fn is_refused_where_the_address_is(&self) {
        let (site, debian) = (&self.site, &self.site.debian);
        let (theirs, haproxy) = (site.theirs(), site.haproxy());
        let traffic = Traffic::to(site.at(site.own));
        debian.run("ip address add 10.0.0.100/32 dev lo");
        self.fails("move the address first");
        debian.run("ip address del 10.0.0.100/32 dev lo");
        assert_eq!((site.theirs()[..theirs.len()].to_vec(), site.haproxy()), (theirs, haproxy));
        site.none_lost("a refusal", traffic);
    }

    /// Shows that the role installs the program, and that a second play changes nothing.
    fn installs(&self) {
        let (site, debian) = (&self.site, &self.site.debian);
        assert!(self.play("") > 3);
        assert_eq!(site.unit(), "enabled\nactive\n");
        assert_eq!(debian.run("stat --format %a /etc/nodegate-haproxy/kubeconfig"), "600\n");
        let (theirs, haproxy) = (site.theirs(), site.haproxy());
        assert_eq!(self.play(""), 0);
        assert_eq!((site.theirs(), site.haproxy()), (theirs, haproxy));
    }

    /// Shows that a changed setting restarts nodegate-haproxy alone, and a wrong one nothing.
    fn changes_a_setting(mut self) {
        let main = "systemctl show --property MainPID --value nodegate-haproxy";
        let (before, haproxy) = (self.site.debian.run(main), self.site.haproxy());
        let traffic = [self.site.own, self.site.web].map(|port| Traffic::to(self.site.at(port)));
        self.settings["NODEGATE_HAPROXY_DRAIN_ON"] = json!("unschedulable,taint:example.com/move out");
        self.fails("NODEGATE_HAPROXY_DRAIN_ON");
        assert_eq!(self.site.debian.run(main), before, "restarted with a wrong setting");
        self.settings["NODEGATE_HAPROXY_DRAIN_ON"] = json!("unschedulable");
        assert_eq!(self.play(""), 2, "the settings and the program");
        assert_ne!(self.site.debian.run(main), before);
        assert_eq!(self.site.haproxy(), haproxy);
        for traffic in traffic {
            self.site.none_lost("a play that changes a setting", traffic);
        }
        assert!(get_from((ADDRESS, self.site.web).into()).is_ok());
    }
}
