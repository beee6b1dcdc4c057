//! Tests that need a real control plane and a real kubelet. `make real-cluster-test KUBEBIN=…` starts both
//! and runs these tests in their namespaces; `cargo test` compiles them and runs none.

// | test | what is real about it |
// |---|---|
// | `services` | the endpoints that a kube-proxy counts |
// | `account` | RBAC of the account that hack/haproxy-kubeconfig makes |
// | `apiserver` | API servers behind HAProxy: restarted, killed, cut off from etcd |
// | `budget` | the API server's load when all nodes are cordoned at once (`--max-drained`), and none; flips |
// | `credentials` | tokens and certificates that an API server refuses while their successors are on disk |
// | `isolated` | an API server cut off from etcd |
// | `kubelet` | the kubelet and the node controller: cut off, dead, without a runtime |
// | `zone` | what the node controller does to four nodes of which some fall silent |
// | `daemonset` | the image in pods: the manifests, the chart, rollouts by the DaemonSet controller |
// | `distributions` | a release with each file of examples/values, an image without a registry, refusals of Pod Security |
// | `objects` | strict validation of the manifests and of a hundred sets of values, and releases by Helm 3 and 4 |
// | `getting_started` | the page, word by word, for two nodes behind two HAProxies: images on the nodes and Helm 4, a registry and Helm 3 |
// | `rights` | RBAC and the audit log |
// | `hooks` | the kubelet's `preStop` hooks on `/wait`, shutdowns that a real systemd-logind announces, power cuts |
// | `plugin` | evictions, and the API server's proxy to a pod |
// | `gate` | the API server's reviews of evictions, and plain `kubectl drain` under requests through HAProxy |
// | `published` | a kube-proxy in nftables mode on a balancer's node, whose address is in a Service's status |
// | `rollout` | an ingress on two nodes that is replaced, evicted and drained under requests through two balancers |

mod account;
mod apiserver;
mod budget;
mod credentials;
mod daemonset;
mod distributions;
mod gate;
mod getting_started;
mod hooks;
mod isolated;
mod kubelet;
mod objects;
mod plugin;
mod published;
mod rights;
mod rollout;
mod services;
mod site;
mod values;
mod zone;

// What the chart knows of the settings, for values by lot.
#[path = "../documents/chart/kinds.rs"]
#[expect(dead_code, reason = "the chart's file has the patterns")]
mod kinds;
#[path = "../documents/chart/program.rs"]
mod program;

// The blocks of a page.
#[path = "../documents/docs/pages.rs"]
#[expect(dead_code, reason = "the documents' tests read all pages")]
mod pages;
