#!/usr/bin/env bash
# Line coverage: the Rust engine by its own tests, the Python package by pytest.
# Needs llvm-profdata and llvm-cov of rustc's LLVM major version: `rustup component add llvm-tools`, or on Debian `apt-get install llvm-22`.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${BIN:-.venv/bin}
target=${CARGO_TARGET_DIR:-target}
profiles=$(mktemp -d)
trap 'rm -rf "$profiles"' EXIT

llvm=$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
tool() { # tool NAME: its path, of rustc's own LLVM
  local own
  own=$(find "$(rustc --print sysroot)/lib/rustlib" -name "$1" -type f 2>/dev/null | head -n 1)
  if [ -n "$own" ]; then echo "$own"
  elif command -v "$1-$llvm"; then :
  elif [ "$("$1" --version 2>/dev/null | sed -n 's/.*LLVM version \([0-9]*\).*/\1/p')" = "$llvm" ]; then command -v "$1"
  else
    echo "coverage: no $1 for LLVM $llvm: rustup component add llvm-tools, or apt-get install llvm-$llvm" >&2
    return 3
  fi
}
profdata=$(tool llvm-profdata)
cov=$(tool llvm-cov)

export RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/rustc-instrumented.sh
export LLVM_PROFILE_FILE="$profiles/%p-%m.profraw"
cargo test --workspace --locked
mapfile -t binaries < <(cargo test --workspace --locked --no-run --message-format json 2>/dev/null |
  "$bin/python" -c 'import json, sys
for line in sys.stdin:
    made = json.loads(line)
    if made.get("executable") and made.get("profile", {}).get("test"):
        print("--object=" + made["executable"])')
unset RUSTC_WORKSPACE_WRAPPER LLVM_PROFILE_FILE
"$profdata" merge --sparse "$profiles"/*.profraw --output "$profiles/all.profdata"

"$bin/coverage" erase
"$bin/coverage" run -m pytest --quiet
"$bin/coverage" combine --quiet

echo
echo "== Rust, by file"
"$cov" report --instr-profile "$profiles/all.profdata" --ignore-filename-regex '/(registry|rustc|tests|bench-tools|bench-worlds)/' \
  --show-region-summary=false --show-branch-summary=false "${binaries[@]}" | tee "$target/coverage-rust.txt"
echo
echo "== Python, by file"
"$bin/coverage" report | tee "$target/coverage-python.txt"
echo
awk '$1 == "TOTAL" { print "Rust lines covered:   " $NF }' "$target/coverage-rust.txt"
awk '$1 == "TOTAL" { print "Python lines covered: " $NF }' "$target/coverage-python.txt"
