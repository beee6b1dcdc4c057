//! Debian's Apache httpd with `mod_proxy_hcheck`.

use crate::balancer::{Balancer, Row};
use crate::nodes::Nodes;
use crate::site::Site;
use nodegate_testbed::http;
use nodegate_testbed::process::Program;
use nodegate_testbed::programs::system;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;

const MODULES: [&str; 9] = [
    "mpm_event",
    "authz_core",
    "slotmem_shm",
    "proxy",
    "proxy_http",
    "proxy_balancer",
    "proxy_hcheck",
    "lbmethod_byrequests",
    "status",
];
const STATUS_PORT: u16 = 30445;

struct Apache {
    _program: Program,
    status: SocketAddr,
}

impl Balancer for Apache {
    /// Reads the balancer-manager page, which has one row per member with its state.
    fn says(&self, site: &Site, node: usize) -> Option<String> {
        let page = http::get(self.status, "/").ok()?.body;
        let member = format!("http://{}:{}</a>", site.frontend().ip(), 8011 + node);
        let row = page.split_once(&member)?.1.split_once("</tr>")?.0;
        let state = row.split("<td>").find(|cell| cell.starts_with("Init"))?;
        Some(format!("`{}`", state.split("</td>").next()?.trim()))
    }
}

pub(crate) fn start(row: &Row, nodes: &Nodes) -> Box<dyn Balancer> {
    let (site, dir) = (&nodes.site, nodes.site.dir().display());
    let status = SocketAddr::from((site.frontend().ip(), STATUS_PORT));
    let mut text = format!(
        "ServerName localhost\nServerRoot {dir}\nPidFile {dir}/pid\nDefaultRuntimeDir {dir}\nErrorLog {dir}/error.log\nUser nobody\nGroup nogroup\n"
    );
    for module in MODULES {
        let _ = writeln!(text, "LoadModule {module}_module /usr/lib/apache2/modules/mod_{module}.so");
    }
    let _ = write!(
        text,
        "Include {}\nListen {status}\n<VirtualHost {status}>\n<Location />\nSetHandler balancer-manager\n</Location>\n</VirtualHost>\n",
        site.configuration(row.file).display()
    );
    let main = site.dir().join("apache.conf");
    fs::write(&main, text).unwrap();
    let program = Program::start(system("apache2").arg("-DFOREGROUND").arg("-f").arg(main));
    Box::new(Apache { _program: program, status })
}
