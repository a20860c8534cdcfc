#!/usr/bin/env bash
# For somebody who owns a box worth knowing (8x SM120, say): one command that looks at the machine, measures, compares
# CUDA 12.8 with 13.x and names causes, checks the data, and leaves one folder of a few MB to commit or to send.
#
#   scripts/box-report.sh [FOLDER]        default ./box-report-<date>; must not be there yet
#
# Without GPUs everything that can be emulated is. A part that this arbench lacks, or that fails, is one line in
# summary.md and the next part goes on. ARB_PROGRAM names another arbench than build/release/arbench; ARB_BOX_LONG=1
# takes 24 blocks instead of 12 at most. Host and user names are left out of what is packed; look before you send.
# Exit codes: the worst of the parts: 2 wrong data, 3 a regression, 5 something could not be done, else 0.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=${ARB_PROGRAM:-$here/../build/release/arbench}
case ${1:-} in
  -h | --help)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
    exit 0
    ;;
  -*)
    printf 'box-report: there is no option %s; the one argument is a folder\n' "$1" >&2
    exit 1
    ;;
esac
folder=${1:-box-report-$(date -u +%Y-%m-%dT%H%M%S)}
while [ "${folder%/}" != "$folder" ]; do folder=${folder%/}; done

say() { printf 'box-report: %s\n' "$*"; }
if [ ! -x "$program" ]; then
  printf 'box-report: there is no %s; scripts/quickstart.sh builds it, ARB_PROGRAM names another\n' "$program" >&2
  exit 5
fi
if [ -e "$folder" ]; then
  printf 'box-report: %s is there already; name another folder\n' "$folder" >&2
  exit 1
fi
work=$folder.part
rm -rf "$work"
if ! mkdir -p "$work/results" 2>/dev/null; then
  printf 'box-report: cannot write to %s; name another folder\n' "$work" >&2
  exit 5
fi
trap 'rm -rf "$work"' EXIT
# Ctrl-C ends the part that runs, and no other is begun; what is there is packed.
interrupted=0
trap 'interrupted=1' INT
lines=()
worst=0
started=$SECONDS

# A verb that the program does not have is not in its help.
help=$("$program" --help 2>&1 || true)
has() { grep -qE "^  $1( |$)" <<<"$help"; }

# Wrong data outweighs a regression, and that outweighs what could not be done.
weigh() {
  case "$1:$worst" in
    0:*) ;;
    2:*) worst=2 ;;
    3:[0145]) worst=3 ;;
    3:*) ;;
    *:0) worst=5 ;;
  esac
}

# part <title> <file> <argument of arbench>...
part() {
  local title=$1 file=$2 begin=$SECONDS code=0
  shift 2
  if [ "$interrupted" = 1 ]; then
    lines+=("- $title: not begun, because of Ctrl-C")
    return
  fi
  if ! has "$1"; then
    lines+=("- $title: skipped, because this arbench has no verb \`$1\`")
    say "$title: skipped, this arbench has no verb $1"
    return
  fi
  say "$title ..."
  "$program" "$@" >"$work/$file" 2>"$work/$file.log" || code=$?
  [ -s "$work/$file" ] || rm -f "$work/$file"
  local last
  last=$(tail -n 1 "$work/$file.log" | sed 's/^arbench: //')
  last=${last//"$work/"/}
  [ "$code" -eq 0 ] && last=
  lines+=("- $title: exit code $code after $((SECONDS - begin)) s${last:+ ($last)}")
  weigh "$code"
}

part 'what is here' list.json list --json
gpus=$(python3 -c 'import json,sys; print(len(json.load(open(sys.argv[1])).get("gpus", [])))' "$work/list.json" \
  2>/dev/null || echo 0)
part 'stack' probe.json probe --json
if [ "$gpus" -ge 2 ]; then
  part 'limits of the machine' limits.txt limits --results "$work/results"
  part 'sweep' run.txt run -b 1K -e 256M --results "$work/results"
  # What is fastest here, and then as serving engines run: a process a rank, with that tuning, beside torch where it is.
  part 'tuning' tune.txt tune -e 256M -o "$work/tuning.json" --results "$work/results"
  processes=(--world processes --mode pipelined -b 1K -e 256M)
  [ ! -s "$work/tuning.json" ] || processes+=(--tuning "$work/tuning.json")
  ! python3 -c 'import torch.distributed._symmetric_memory' 2>/dev/null || processes+=(--peer torch)
  part 'sweep, one process a rank' processes.txt run "${processes[@]}" --results "$work/results"
  # Causes: the compilers of the oldest and the newest bundle.
  mapfile -t bundles < <(python3 - "$work/list.json" <<'PYTHON'
import json, sys
names = [bundle["name"] for bundle in json.load(open(sys.argv[1])).get("bundles", [])]
nvrtc = [name for name in names if name.endswith("-nvrtc")]
print("\n".join([nvrtc[0], nvrtc[-1]] if len(nvrtc) > 1 else []))
PYTHON
  )
  extend=()
  [ "${ARB_BOX_LONG:-0}" = 1 ] && extend=(--extend)
  if [ "${#bundles[@]}" -eq 2 ]; then
    part "${bundles[0]} against ${bundles[1]}" compare.txt compare --a "toolkit=${bundles[0]}" \
      --b "toolkit=${bundles[1]}" --attribute "${extend[@]}" --results "$work/results"
    part "${bundles[0]} against ${bundles[1]} as compiled" static.txt compare --static "${bundles[@]}"
  else
    lines+=('- comparison of toolkits: skipped, because fewer than two NVRTC bundles are here')
  fi
  part 'data checks' verify.txt verify --for 2m --results "$work/results"
else
  lines+=('- fewer than 2 GPUs here, so the sweep is emulated: data and traffic, no times')
  part 'sweep, emulated' run.txt run --emulate -b 1K -e 64K --results "$work/results"
  lines+=('- comparison of toolkits by time: skipped, because emulated rows have no time')
  part '12.8-nvrtc against 13.0-nvrtc as compiled' static.txt compare --static 12.8-nvrtc 13.0-nvrtc
  if [ "$gpus" -eq 1 ]; then
    part 'data checks on virtual ranks' verify.txt verify --for 1m --results "$work/results"
  else
    part 'data checks, emulated' verify.txt verify --emulate --for 30s --results "$work/results"
  fi
fi

# Nothing that names the owner: the home path and the host anywhere, the user as a part of a path or an address. Whole
# words only, because a host may be called as a contender is.
python3 - "$work" "$(hostname 2>/dev/null || true)" "${HOME:-}" "${USER:-}" <<'PYTHON'
import pathlib, re, sys
work, host, home, user = sys.argv[1:]
patterns = []
if len(home) > 1 and home != "/root":
    patterns.append(re.escape(home.rstrip("/")) + r"(?![\w.-])")
if len(host) > 3 and host != "localhost":
    patterns.append(r"(?<![\w.-])" + re.escape(host) + r"(?![\w-])")
if user and user != "root":
    patterns.append(r"(?<=[/@])" + re.escape(user) + r"(?=[/@\s\"':]|$)")
for path in pathlib.Path(work).rglob("*") if patterns else []:
    if path.is_file():
        text = path.read_text(errors="replace")
        cleaned = re.sub("|".join(patterns), "[left out]", text, flags=re.M)
        if cleaned != text:
            path.write_text(cleaned)
PYTHON
find "$work" -name '*.log' -size +256k -exec truncate -s 256k {} +
find "$work" -name '*.log' -empty -delete

{
  printf '# Box report, %s\n\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
  printf 'arbench on %s GPUs; %d s; exit code %d%s.\n\n' "$gpus" $((SECONDS - started)) "$worst" \
    "$([ "$interrupted" = 0 ] || printf '; interrupted, so not whole')"
  printf '%s\n' "${lines[@]}"
  if [ -s "$work/compare.txt" ]; then
    printf '\n```\n'
    cat "$work/compare.txt"
    printf '```\n'
  fi
} >"$work/summary.md"
mv -T "$work" "$folder"
trap - EXIT
[ "$interrupted" = 0 ] || say 'interrupted: what was done by then is kept'
say "all in $folder ($(du -sh "$folder" | cut -f1)); read summary.md first"
exit "$worst"
