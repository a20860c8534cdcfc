#!/usr/bin/env bash
# What every CUDA toolkit from 12.8 to the newest makes of the same kernels: fetches the toolkits, builds a bundle by the
# compilers of each, and compares neighbours and ends as compiled (registers, spills, instructions, SASS). Needs no GPU.
#
#   scripts/static-matrix.sh [--nvcc] [FOLDER]        default results/<date>-static
#
# FOLDER gets matrix.csv (a row a function, architecture and pair), matrix.md (a row a pair) and manifest.json of each
# bundle. --nvcc adds the nvcc bundles of 13.x. ARB_MATRIX_VERSIONS and ARB_ARCHITECTURES ("90;120") choose others.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$repository"

with_nvcc=0
if [ "${1:-}" = --nvcc ]; then
  with_nvcc=1
  shift
fi
case ${1:-} in
  -h | --help)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
    exit 0
    ;;
  -*) fail "there is no option $1; --nvcc comes first, then a folder" ;;
esac
folder=${1:-results/$(date -u +%Y-%m-%d)-static}
[ ! -e "$folder" ] || fail "$folder is there already; name another folder"

read -ra versions <<<"${ARB_MATRIX_VERSIONS:-$(sed -n 's/^\[\([0-9][0-9.]*\)\]$/\1/p' scripts/toolkits.lock | tr '\n' ' ')}"
install_packages "${build_packages[@]}"
bundles=()
for version in "${versions[@]}"; do
  step "fetching toolkit $version" python3 scripts/toolkits.py ensure "$version"
  bundles+=("$version-nvrtc")
  if [ "$with_nvcc" = 1 ] && [ "${version%%.*}" != 12 ]; then bundles+=("$version-nvcc"); fi
done
list=$(IFS=';'; printf '%s' "${bundles[*]}")
tree=build/tree/matrix
step 'configuring' cmake -G Ninja -S . -B "$tree" -DCMAKE_BUILD_TYPE=Release "-DARB_BUNDLE_LIST=$list" \
  "-DARB_ARCHITECTURES=${ARB_ARCHITECTURES:-90;120}"
step 'building bundles and arbench' cmake --build "$tree" -j "$jobs" --target bundles arbench

work=$folder.part
rm -rf "$work"
mkdir -p "$work"
header=0
printf '# %s kernels by toolkit, as compiled\n\n| A | B | summary |\n|---|---|---|\n' "$(ls kernels/*.cu | wc -l)" >"$work/matrix.md"

# pair <a> <b>
pair() {
  "$tree/arbench" compare --static "$1" "$2" --format csv >"$work/pair.csv"
  tail -n +$((1 + header)) "$work/pair.csv" >>"$work/matrix.csv"
  header=1
  printf '| %s | %s | %s |\n' "$1" "$2" "$("$tree/arbench" compare --static "$1" "$2" | sed -n '$s/^# //p')" >>"$work/matrix.md"
}

nvrtc=()
for bundle in "${bundles[@]}"; do
  [ -f "$tree/bundles/$bundle/manifest.json" ] || fail "bundle $bundle was not made; see build/logs"
  mkdir -p "$work/$bundle"
  cp "$tree/bundles/$bundle/manifest.json" "$work/$bundle/"
  if [[ $bundle == *-nvrtc ]]; then nvrtc+=("$bundle"); fi
done
for ((i = 1; i < ${#nvrtc[@]}; i++)); do pair "${nvrtc[i - 1]}" "${nvrtc[i]}"; done
# The upgrade that most people make: the oldest against the first of the next major version.
for ((i = 2; i < ${#nvrtc[@]}; i++)); do
  if [ "${nvrtc[i]%%.*}" != "${nvrtc[0]%%.*}" ]; then
    pair "${nvrtc[0]}" "${nvrtc[i]}"
    break
  fi
done
if [ ${#nvrtc[@]} -gt 2 ]; then pair "${nvrtc[0]}" "${nvrtc[${#nvrtc[@]} - 1]}"; fi
for bundle in "${bundles[@]}"; do
  if [[ $bundle == *-nvcc ]]; then pair "${bundle%-nvcc}-nvrtc" "$bundle"; fi
done
rm "$work/pair.csv"
mv -T "$work" "$folder"
say "matrix in $folder, after $SECONDS s"
cat "$folder/matrix.md"
