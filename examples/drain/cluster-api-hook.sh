#!/bin/sh
# Answers Cluster API's pre-drain hook, one pass over the Machines that are being deleted:
#
#   cluster-api-hook.sh NAMESPACE WORKLOAD-KUBECONFIG
#
# The template of their MachineDeployment gives the Machines the annotation below. Cluster API cordons and
# drains a Machine's node when no such annotation is left. KUBECONFIG is the management cluster's. A Machine
# whose Node is gone has nothing to wait for. Not tried with Cluster API.
set -eu
namespace=$1 workload=$2
annotation=pre-drain.delete.hook.machine.cluster.x-k8s.io/nodegate
kubectl -n "$namespace" get machines \
    -o go-template='{{range .items}}{{if .metadata.deletionTimestamp}}{{if .status.nodeRef}}{{.metadata.name}} {{.status.nodeRef.name}}{{"\n"}}{{end}}{{end}}{{end}}' |
while read -r machine node; do
    # What fails for one Machine leaves it for the next pass.
    found=$(kubectl --kubeconfig "$workload" get node "$node" --ignore-not-found -o name </dev/null) || continue
    if [ -n "$found" ]; then
        kubectl --kubeconfig "$workload" cordon "$node" </dev/null || continue
        kubectl nodegate wait "$node" --for acknowledged --kubeconfig "$workload" </dev/null || continue
    fi
    kubectl -n "$namespace" annotate machine "$machine" "$annotation-" </dev/null || continue
done
