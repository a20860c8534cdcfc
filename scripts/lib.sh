# Shared by quickstart.sh, test.sh and the checks of .ci/run: says what happens, installs what is missing, builds.
# To be sourced by bash from a script that has done `set -euo pipefail`.

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
logs="$repository/build/logs"
jobs=${ARB_JOBS:-$(nproc)}
program=$(basename "$0")

# What a build needs, by the names of Debian 12 and Ubuntu 24.04.
build_packages=(
  ca-certificates g++ cmake ninja-build patchelf python3 python3-venv
  libboost-context-dev libboost-math-dev libbenchmark-dev libgtest-dev libgmock-dev
  libcli11-dev libspdlog-dev libfmt-dev nlohmann-json3-dev libssl-dev
)

say() { printf '%s: %s\n' "$program" "$*"; }
fail() {
  printf '%s: %s\n' "$program" "$*" >&2
  exit 1
}

# step <words> <command>...: says the words, runs the command into a log, says the seconds; shows the log's end on failure.
step() {
  local what=$1 started=$SECONDS log status=0
  shift
  mkdir -p "$logs"
  log="$logs/$(printf '%s' "$what" | tr -cs 'a-zA-Z0-9.\n' '-').log"
  printf '%s: %s ... ' "$program" "$what"
  "$@" >"$log" 2>&1 || status=$?
  if [ "$status" -ne 0 ]; then
    printf 'failed after %d s\n' $((SECONDS - started))
    tail -n 60 "$log" >&2
    printf '%s: %s failed; all that it said is in %s\n' "$program" "$what" "${log#"$repository"/}" >&2
    return "$status"
  fi
  printf '%d s\n' $((SECONDS - started))
}

is_installed() { [ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null)" = 'ii ' ]; }

apt_install() {
  local as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo)
  "${as_root[@]}" apt-get update -q &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"
}

# install_packages <package>...: those that dpkg does not know; as root or through sudo.
install_packages() {
  local missing=() package
  if ! command -v dpkg-query >/dev/null; then
    say "this is neither Debian nor Ubuntu, so what these packages hold must be there already: $*"
    return
  fi
  for package in "$@"; do
    is_installed "$package" || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" -ne 0 ] && ! sudo -n true 2>/dev/null && ! { [ -t 0 ] && command -v sudo >/dev/null && sudo true; }; then
    fail "these packages are missing and neither root nor sudo is at hand; have them installed first: ${missing[*]}"
  fi
  say "packages that are missing: ${missing[*]}"
  step 'installing packages' apt_install "${missing[@]}"
}

# set_up: everything that a build needs: packages, and the toolkits of the default bundles.
set_up() {
  install_packages "${build_packages[@]}"
  local version needed
  for version in 12.8 13.0; do
    needed=(--with nvrtc --with headers)
    [ "${version%%.*}" = 12 ] || needed+=(--with nvcc)  # the packages of 12.x have none
    python3 "$repository/scripts/toolkits.py" find "$version" "${needed[@]}" >/dev/null 2>&1 ||
      step "fetching toolkit $version" python3 "$repository/scripts/toolkits.py" ensure "$version"
  done
}

# build_preset <preset> [--target <target>...]: configures when needed and builds all or the targets.
build_preset() {
  local preset=$1
  shift
  cd "$repository" || return
  step "configuring $preset" cmake --preset "$preset" || return
  step "building $preset" cmake --build --preset "$preset" -j "$jobs" "$@"
}
