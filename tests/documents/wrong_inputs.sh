# shellcheck shell=bash
# The functions of wrong_inputs.txt.
log() {
  local part=$1 out; shift; out=$(mktemp -p "$DIR")
  "$@" >"$out" 2>&1 & local pid=$!
  until grep -q -e "$part" "$out"; do kill -0 $pid 2>/dev/null || break; sleep 0.05; done
  grep -q -e "$part" "$out" || cat "$out"
  grep -m1 -e "$part" "$out" | sed 's/^[^ ]*Z *//'
  kill $pid 2>/dev/null; wait $pid 2>/dev/null
}
kubeconfig() {
  local file; file=$(mktemp -p "$DIR" kubeconfig.XXXXXX); ln -sf "$file" "$DIR/kubeconfig"
  echo "{current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: $2}],
    clusters: [{name: c, cluster: {server: \"$1\", insecure-skip-tls-verify: true}}]}" | sed "$3" >"$file"
  echo "$DIR/kubeconfig"
}
plugin() {
  printf '#!/bin/sh\n%s\n' "$1" >"$DIR/login"; chmod +x "$DIR/login"
  echo "{exec: {apiVersion: client.authentication.k8s.io/v1, command: $DIR/login, interactiveMode: Never}}"
}
# Runs a program with each of these values.
each() { # PROGRAM FLAG[=PREFIX] VALUE…
  local program=$1 flag=$2 value; shift 2
  [[ $flag == *=* ]] || flag+==
  for value; do timeout 20 "$program" "$flag$value"; done
}
sim() { sed -n 's/.*server: *"\?\(https:[^" ,}]*\).*/\1/p' "$DEMO" | head -n1; }
taken() { sim | sed 's/.*://'; }
agent() {
  export NODE_NAME=${NODE_NAME-worker-1} NODEGATE_LISTEN_ADDRESS=127.0.0.1 LISTEN_PORT=0 NODEGATE_AGENT_CHECK_PORT=0
  exec nodegate "$@"
}
haproxy() {
  export NODEGATE_HAPROXY_CONFIG=$DIR/haproxy.cfg NODEGATE_HAPROXY_BINARY=none NODEGATE_HAPROXY_LISTEN=127.0.0.1:0
  exec nodegate-haproxy "$@"
}
gate() {
  export NODEGATE_GATE_LISTEN=127.0.0.1:0 NODEGATE_GATE_HEALTH_LISTEN=127.0.0.1:0
  exec nodegate-eviction-gate "$@"
}
