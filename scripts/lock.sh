#!/usr/bin/env bash
# Resolve pyproject.toml into requirements/dev.txt (everything) and requirements/run.txt (a subset with the same versions).
# Universal: one file for every supported Python, with markers. No index lines, no hashes: plain pip reads both, also as constraints.
set -euo pipefail
cd "$(dirname "$0")/.."
uv="${BIN:-.venv/bin}/uv"
flags=(--quiet --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url --no-emit-find-links "$@")
header="# Made by \`make lock\` from pyproject.toml"

resolve() { # resolve OUT ARG...
  local out=$1
  shift
  "$uv" pip compile "${flags[@]}" "$@" --output-file "$out.new" >/dev/null
  { echo "$header"; cat "$out.new"; } >"$out"
  rm "$out.new"
}

resolve requirements/dev.txt pyproject.toml --group dev
resolve requirements/run.txt --constraints requirements/dev.txt pyproject.toml --group build

for name in triton clients llama llama-server guidellm aiperf locust psutil; do
  header="# Made by \`make lock\` from requirements/peers/$name.in"
  resolve "requirements/peers/$name.txt" "requirements/peers/$name.in"
done
