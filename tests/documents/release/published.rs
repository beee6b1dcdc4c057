//! Images and chart in a real registry, pushed by digest.

use super::{Clone, DATE, VERSION};
use nodegate_testbed::process::Program;
use nodegate_testbed::programs::system;
use nodegate_testbed::until_or;
use std::fs;
use std::path::Path;

/// A registry on loopback, ended when dropped.
struct Registry {
    address: String,
    _program: Program,
}

impl Registry {
    fn start(directory: &Path) -> Self {
        let (settings, log) = (directory.join("registry.yml"), directory.join("registry.log"));
        let root = directory.join("registry").display().to_string();
        let text = format!(
            "version: 0.1\nlog: {{level: info}}\nstorage: {{filesystem: {{rootdirectory: {root}}}}}\nhttp: {{addr: '127.0.0.1:0'}}\n"
        );
        fs::write(&settings, text).unwrap();
        // It logs on stderr.
        let serve = format!("exec docker-registry serve {} 2>{}", settings.display(), log.display());
        let program = Program::start(system("sh").args(["-c", &serve]));
        let address = until_or(
            || {
                let log = fs::read_to_string(&log).ok()?;
                let rest = log.split("listening on ").nth(1)?;
                Some(rest.split(['"', ',', ' ', '\n']).next()?.to_owned())
            },
            || fs::read_to_string(&log).unwrap_or_default(),
        );
        Self { address, _program: program }
    }
}

#[test]
fn images_and_chart_are_pushed_by_digest_and_the_chart_deploys_them() {
    let (clone, work) = (Clone::new(DATE, true), tempfile::tempdir().unwrap());
    let registry = Registry::start(work.path());
    let image = format!("{}/lb/nodegate", registry.address);
    let run = |script: &str| {
        clone.run(&format!("export CARGO_TARGET_DIR=$PWD/target/out TLS_VERIFY=false HELM_CACHE_HOME=$PWD/target/helm; {script}"))
    };
    run(&format!("hack/release {VERSION} {image}")).unwrap();
    // Without a Mac.
    let krew = run("cat target/out/release-*/nodegate.krew.yaml").unwrap();
    assert!(krew.contains("os: windows") && !krew.contains("darwin"), "{krew}");
    let elsewhere = run(&format!("hack/publish {VERSION} {image}-other")).unwrap_err();
    assert!(elsewhere.contains("make release"), "{elsewhere}");
    run(&format!("hack/publish {VERSION} {image}")).unwrap();

    let published = fs::read_to_string(clone.path().join(format!("target/out/published-{VERSION}"))).unwrap();
    let references: Vec<&str> = published.lines().collect();
    let [agent, gate, haproxy, chart] = references[..] else { panic!("{published}") };
    assert!(agent.starts_with(&format!("{image}@sha256:")), "{agent}");
    assert!(gate.starts_with(&format!("{image}-eviction-gate@sha256:")), "{gate}");
    assert!(haproxy.starts_with(&format!("{image}-haproxy@sha256:")), "{haproxy}");
    assert!(chart.starts_with(&format!("{}/lb/charts/nodegate@sha256:", registry.address)), "{chart}");
    assert_ne!(agent.split_once('@').unwrap().1, gate.split_once('@').unwrap().1);

    // The chart of the registry deploys these images.
    let oci = format!("oci://{}/lb/charts/nodegate --version {VERSION} --plain-http", registry.address);
    let set = "evictionGate.enabled=true,haproxy.enabled=true";
    let rendered = run(&format!("helm template nodegate {oci} --set {set}")).unwrap();
    for reference in [agent, gate, haproxy] {
        assert!(rendered.contains(&format!("image: {reference}")), "{reference}: {rendered}");
    }
    let shown = run(&format!("helm show chart {oci}")).unwrap();
    assert!(shown.contains(&format!("image: {image}:{VERSION}")), "{shown}");
    let artifacthub = format!("docker://{}/lb/charts/nodegate:artifacthub.io", registry.address);
    let metadata = run(&format!("skopeo inspect --raw --tls-verify=false {artifacthub}")).unwrap();
    assert!(
        metadata.contains("application/vnd.cncf.artifacthub.repository-metadata.layer.v1.yaml"),
        "{metadata}"
    );
}
