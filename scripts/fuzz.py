#!/usr/bin/env python3
"""Fuzz the wire's readers with libFuzzer, on the stable toolchain; needs a C++ compiler for libFuzzer itself.

Each target starts from the corpora of rust/gpusize-engine/tests/corpus and from rust/fuzz/corpus, which earlier runs
left. With --keep what a run learnt goes back there, minimised. An input that breaks a property ends the run with exit
code 1 and lies in target/fuzz/found.

    scripts/fuzz.py --seconds 120 --keep          every target for two minutes
    scripts/fuzz.py --seconds 10 sse              a short one
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CORPORA = ROOT / "rust" / "gpusize-engine" / "tests" / "corpus"
KEPT = ROOT / "rust" / "fuzz" / "corpus"
BUILD = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "fuzz"
TARGETS = ("http1", "http2", "sse", "grpc")

MAX_INPUT_BYTES = 16_384
# More than this of one target would weigh on the repository.
MAX_KEPT_BYTES = 300_000

# What cargo-fuzz passes too. All are stable options: only the sanitizers would ask for another toolchain.
INSTRUMENT = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
    "-Ccodegen-units=1",
]
# With --sanitizer: the readers have no unsafe code, but the JSON parser below them has.
ADDRESS = ["-Zsanitizer=address"]

# How a seed is cut: as in rust/fuzz/src/input.rs, pieces of 1, 8, 64 and 1024 bytes.
LENGTHS = bytes([0, 7, 63, 63 | 2 << 6])


def _host() -> str:
    version = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    return next(line.removeprefix("host: ") for line in version.splitlines() if line.startswith("host: "))


def build(sanitize: bool) -> Path:
    """Build all targets and return the folder of their programs."""
    host = _host()
    flags = INSTRUMENT + (ADDRESS if sanitize else [])
    env = os.environ | {"CARGO_ENCODED_RUSTFLAGS": "\x1f".join(flags), "CARGO_TARGET_DIR": str(BUILD)}
    if sanitize:
        # The option is not stable yet, though its runtime is part of the stable toolchain.
        env["RUSTC_BOOTSTRAP"] = "1"
    command = [
        "cargo",
        "build",
        "--locked",
        "--package",
        "gpusize-fuzz",
        "--bins",
        "--profile",
        "fuzz",
        "--target",
        host,
    ]
    subprocess.run(command, check=True, cwd=ROOT, env=env)
    return BUILD / host / "fuzz"


def _bytes(wire: Any) -> bytes:
    parts = [wire] if isinstance(wire, str) else wire
    return b"".join((p if isinstance(p, str) else p[0] * p[1]).encode("latin-1") for p in parts)


def seeds(target: str) -> Iterator[bytes]:
    """The messages of the corpora as inputs of a target."""
    for folder in ("sse", "interpret") if target == "sse" else (target,):
        for file in sorted((CORPORA / folder).glob("*.json")):
            for case in json.loads(file.read_text()):
                wire = _bytes(case["wire"])
                flags = [int(case.get("head", False))] if target == "http1" else [0]
                if folder == "interpret":
                    wire = b"data: " + wire + b"\n\n"
                if target == "sse":
                    flags = [3] if "other" in case else [0, 1, 2]
                for flag in flags:
                    yield bytes([flag]) + LENGTHS + wire


def fuzz(target: str, programs: Path, seconds: int, keep: bool) -> bool:
    """Run one target; returns whether it found nothing."""
    work, found = BUILD / "work" / target, BUILD / "found" / target
    for folder in (work, found, KEPT / target):
        folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds(target)):
        if len(seed) <= MAX_INPUT_BYTES:
            (work / f"seed-{number:04}").write_bytes(seed)
    program = str(programs / target)
    options = [f"-max_len={MAX_INPUT_BYTES}", f"-artifact_prefix={found}/", "-timeout=10", "-rss_limit_mb=2048"]
    print(f"== {target}: {seconds} s", flush=True)
    run = [program, *options, f"-max_total_time={seconds}", "-print_final_stats=1", str(work), str(KEPT / target)]
    if subprocess.run(run, check=False, cwd=BUILD).returncode != 0:
        print(f"== {target}: FOUND SOMETHING, in {found}; {program} FILE repeats it", file=sys.stderr)
        return False
    if keep:
        _keep(target, program, options, work)
    return True


def _keep(target: str, program: str, options: list[str], work: Path) -> None:
    """Put the fewest inputs that cover what all cover into the repository, the short ones first."""
    least = BUILD / "least" / target
    shutil.rmtree(least, ignore_errors=True)
    least.mkdir(parents=True)
    merge = [
        program,
        *options,
        "-merge=1",
        "-use_counters=0",
        "-verbosity=0",
        str(least),
        str(KEPT / target),
        str(work),
    ]
    subprocess.run(merge, check=True, cwd=BUILD)
    for old in (KEPT / target).iterdir():
        # An input with a name of its own once broke something and stays.
        if len(old.name) == 40:
            old.unlink()
    total = 0
    for file in sorted(least.iterdir(), key=lambda f: f.stat().st_size):
        total += file.stat().st_size
        if total > MAX_KEPT_BYTES:
            break
        shutil.copyfile(file, KEPT / target / file.name)
    shutil.rmtree(work)


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the wire's readers.")
    parser.add_argument(
        "targets", nargs="*", choices=[*TARGETS, []], default=[], help="http1, http2, sse, grpc; all without"
    )
    parser.add_argument("--seconds", type=int, default=120, help="for each target (120)")
    parser.add_argument("--keep", action="store_true", help="put what was learnt into rust/fuzz/corpus")
    parser.add_argument("--sanitizer", action="store_true", help="with AddressSanitizer, at half the speed")
    args = parser.parse_args()
    programs = build(args.sanitizer)
    clean = [fuzz(target, programs, args.seconds, args.keep) for target in args.targets or TARGETS]
    return 0 if all(clean) else 1


if __name__ == "__main__":
    sys.exit(main())
