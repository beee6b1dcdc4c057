//! The supported versions are the same wherever a page, the chart or a workflow names them.

use super::pages::read;

#[test]
fn the_range_of_kubernetes_is_the_same_everywhere() {
    let versions = read("docs/versions.md");
    let row = versions.lines().find_map(|line| line.strip_prefix("| Kubernetes | ")).unwrap();
    let (first, last) = row.trim_end_matches(" |").split_once(" to ").unwrap();
    for page in ["README.md", "docs/getting-started.md", "docs/kubectl-nodegate.md"] {
        assert!(read(page).contains(&format!("Kubernetes {first} to {last}")), "{page} has another range");
    }
    assert!(read("charts/nodegate/Chart.yaml").contains(&format!("kubeVersion: \">={first}.0-0\"")));
    let workflow = read(".github/workflows/real-cluster.yml");
    let list = workflow.split("kubernetes: [").nth(1).unwrap().split(']').next().unwrap();
    let minors: Vec<&str> = list.split(", ").map(|version| version.rsplit_once('.').unwrap().0).collect();
    assert_eq!((minors[0], minors[minors.len() - 1]), (first, last), "{minors:?}");
}
