#!/bin/sh
# Reaches the nodes, which have no sshd.
node=$1; shift
case $node in
  real-node) exec "$@" ;;
  real-node-b) REAL_CLUSTER=$cluster exec $repository/hack/real-node node-b exec "$@" ;;
esac
exit 255
