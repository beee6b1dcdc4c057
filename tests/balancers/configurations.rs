//! The documented configurations are valid.

use crate::nginx;
use crate::site::{Site, documented};
use nodegate_testbed::haproxy;

#[test]
fn haproxy_accepts_the_documented_configurations() {
    let site = Site::new();
    for name in documented("haproxy") {
        haproxy::check(&site.configuration(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn nginx_accepts_the_documented_configurations() {
    let site = Site::new();
    for name in documented("nginx") {
        nginx::check(&site, &name).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}
