#!/bin/sh
# RUSTC_WORKSPACE_WRAPPER of the coverage build: only our crates are instrumented, the dependencies of the test build are used as they are.
exec "$@" -C instrument-coverage
