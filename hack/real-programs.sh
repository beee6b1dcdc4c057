# For hack/real-node and hack/real-power to source: how they start a program of hack/real-cluster, and wait for it.
# shellcheck shell=bash
dir=$REAL_CLUSTER
private=$dir/private
log=$dir/log
node_ip=10.10.0.10

fail() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}

# Tries for three minutes.
wait_for() {
  local what=$1 began=$SECONDS
  shift
  until "$@" >/dev/null 2>&1; do
    [ $((SECONDS - began)) -lt 180 ] || fail "waited 180 s for $what"
    sleep 0.2
  done
}

# Starts a program in the background, with a log and a PID of its own.
run() {
  local part=$1
  shift
  TMPDIR=$private/tmp setsid "$@" </dev/null >>"$log/$part" 2>&1 &
  echo $! >"$private/$part.pid"
}

pid() {
  local pid
  pid=$(cat "$private/$1.pid" 2>/dev/null) && kill -0 "$pid" 2>/dev/null && echo "$pid"
}
