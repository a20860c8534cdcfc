#!/usr/bin/env bash
# Builds the tests on any Debian 12 or Ubuntu 24.04, installing what is missing, and runs them. Arguments go to ctest:
# `scripts/test.sh -L unit` runs one label of unit, emulated, faults, layers, probe and gpu. ARB_PRESET chooses another tree
# than release (dev, asan); ARB_GATE_SEEDS sets how many seeds the emulated tests draw.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

preset=${ARB_PRESET:-release}
set_up
build_preset "$preset"
say "running the tests (after $SECONDS s)"
# Tests of faults wait more than they work.
exec ctest --test-dir "$repository/build/tree/$preset" --output-on-failure -j $((2 * jobs)) "$@"
