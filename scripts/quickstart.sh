#!/usr/bin/env bash
# From a bare Debian 12 or Ubuntu 24.04 to a first table: installs what is missing, fetches the CUDA toolkits that are
# compared, builds the portable folder build/release and runs `arbench run` with the arguments given here.
# Without a GPU the run is emulated. Everything is quick the second time. ARB_JOBS limits the compilers at work.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

set_up
build_preset release --target portable bundles
say "running build/release/arbench run${*:+ $*} (after $SECONDS s)"
exec "$repository/build/release/arbench" run "$@"
