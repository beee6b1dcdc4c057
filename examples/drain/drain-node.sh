#!/bin/sh
# Drains a node after every load balancer has acknowledged that it is out, with kubectl and nodegate:
#
#   drain-node.sh NODE [flags of kubectl drain]
#
# WAIT has other flags for nodegate wait: WAIT="--for released --timeout 10m". If the wait fails, the node
# stays cordoned with its pods on it, and the exit code is that of nodegate wait: 1 not in time, 3 not known.
set -eu
node=$1
shift
address=$(kubectl get node "$node" -o jsonpath='{.status.addresses[?(@.type=="InternalIP")].address}')
uid=$(kubectl get node "$node" -o jsonpath='{.metadata.uid}')
# Of two addresses, the first is used.
address=${address%% *}
case $address in *:*) address="[$address]" ;; esac
kubectl cordon "$node"
# WAIT is split into words.
# shellcheck disable=SC2086
nodegate wait --addr "$address:25001" --node "$node" --node-uid "$uid" ${WAIT:---for acknowledged}
kubectl drain "$node" --ignore-daemonsets --delete-emptydir-data "$@"
