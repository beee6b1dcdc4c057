#!/bin/sh
# Releases the nodes that the cluster autoscaler removes, when no session is left on them:
#
#   release-autoscaled.sh
#
# The nodes have the annotation below from the beginning, by their node group's template. The autoscaler waits
# until it is removed, after its drain, for at most --node-deletion-delay-timeout. One pass; run it again and
# again.
set -eu
annotation=delay-deletion.cluster-autoscaler.kubernetes.io/nodegate
taint=ToBeDeletedByClusterAutoscaler
nodes=$(kubectl get nodes -o go-template='{{range .items}}{{$node := .metadata.name}}{{range .spec.taints}}{{if eq .key "'$taint'"}}{{$node}} {{end}}{{end}}{{end}}')
for node in $nodes; do
    # What fails for one node leaves it for the next pass.
    address=$(kubectl get node "$node" -o jsonpath='{.status.addresses[?(@.type=="InternalIP")].address}') || continue
    uid=$(kubectl get node "$node" -o jsonpath='{.metadata.uid}') || continue
    # Of two addresses, the first is used.
    address=${address%% *}
    case $address in *:*) address="[$address]" ;; esac
    if nodegate wait --for released --timeout 90s --addr "$address:25001" --node "$node" --node-uid "$uid"; then
        kubectl annotate node "$node" "$annotation-" || continue
    fi
done
