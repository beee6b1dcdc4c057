#!/usr/bin/env bash
set -euo pipefail
mkdir -p "$1"
echo '<p>' >"$1/index.html"
