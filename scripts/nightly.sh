#!/usr/bin/env bash
# One night: measures, compares with the baseline (a pinned night, else the middle of the last good ones), appends to the history, looks
# for change points, writes a page, and returns arbench's exit code. docs/nightly.md says how to run it every night.
#
#   scripts/nightly.sh [--home DIR] [--launches N] [--pin] [option of `arbench run`]...
#
# DIR (default ./nightly) gets runs/, history.jsonl, and pages/<night>.md with latest.md. --pin makes this night the
# baseline of all that follow. ARB_PROGRAM names another arbench than build/release/arbench,
# ARB_NIGHTLY_PYTHON a Python that has Apache Otava (default: .venv-history, made at the first night).
# Exit codes: 0 good, 1 usage, 2 wrong data or a hang, 3 regression, 5 the environment cannot do it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=${ARB_PROGRAM:-$here/../build/release/arbench}

home=nightly
launches=5
pin=0
say() { printf 'nightly: %s\n' "$*"; }
fail() {
  printf 'nightly: %s\n' "$2" >&2
  exit "$1"
}
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help)
      sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    --home) [ -n "${2:-}" ] || fail 1 '--home needs a folder'; home=$2; shift 2 ;;
    --launches) [ -n "${2:-}" ] || fail 1 '--launches needs a number'; launches=$2; shift 2 ;;
    --pin) pin=1; shift ;;
    *) break ;;
  esac
done

case $launches in
  '' | *[!0-9]* | 0* | 1 | 2) fail 1 "--launches $launches: comparing nights needs 3 launches or more" ;;
esac
mkdir -p "$home/runs" "$home/pages" 2>/dev/null || fail 5 "cannot write to $home; --home takes another folder"
history=$home/history.jsonl
log=$home/last-run.log

# no_night <code> <sentence>: ends without a night. latest.md says so, for whoever is mailed it.
no_night() {
  local page
  page=$home/pages/no-night-$(date -u +%Y-%m-%dT%H%M%S).md
  printf '# No night, %s\n\nExit code %d: %s.\n\n```\n%s\n```\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$1" "$2" \
    "$(tail -n 20 "$log" 2>/dev/null || true)" >"$page"
  ln -sfn "$(basename "$page")" "$home/pages/latest.md"
  fail "$1" "$2"
}

# Two nights at once would disturb each other.
exec 9>"$home/.lock"
flock -n 9 || fail 5 "another night is under way in $home"
: >"$log"
# Of this night or not there: a stale one would be uploaded as tonight's.
rm -f "$home/smaller-is-better.json" "$home/last-comparison.md"
[ -x "$program" ] || no_night 5 "there is no $program; scripts/quickstart.sh builds it, ARB_PROGRAM names another"

# Change points are worth a download once, and a night without them is still a night.
python=${ARB_NIGHTLY_PYTHON:-$here/../.venv-history/bin/python}
if ! "$python" -c 'import otava' 2>/dev/null; then
  python=python3
  if [ -z "${ARB_NIGHTLY_PYTHON:-}" ] && python3 -m venv "$here/../.venv-history" >/dev/null 2>&1 &&
    "$here/../.venv-history/bin/pip" install --quiet --disable-pip-version-check apache-otava >/dev/null 2>&1; then
    python=$here/../.venv-history/bin/python
  else
    say 'Apache Otava could not be installed, so there are no change points tonight'
  fi
fi
nights() { "$python" "$here/history.py" "$@"; }

# Without GPUs a run would be emulated, which is no night. A program that cannot say what is here is asked to run.
gpus=$("$program" list --json 2>/dev/null | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["gpus"]))' 2>/dev/null) ||
  gpus=unknown
case $gpus in
  0 | 1) no_night 5 "arbench sees fewer than 2 GPUs here ($gpus), so nothing can be measured; arbench probe says more" ;;
esac

# The history is read before anything is measured: a bad line costs no night.
if [ -e "$history" ]; then
  check_code=0
  bad=$(nights check "$history" 2>&1) || check_code=$?
  [ "$check_code" -eq 0 ] || no_night "$check_code" "${bad#history.py: }"
fi

code=0
"$program" run --launches "$launches" --results "$home/runs" "$@" >"$home/last-run.txt" 2>"$log" || code=$?
cat "$log" >&2
run=$(sed -n 's/^arbench: .*results in //p' "$log" | tail -n 1)
[ "$code" -ne 1 ] || no_night 1 'the options after those of nightly.sh are not for arbench run'
if [ -z "$run" ]; then
  [ "$code" -ne 0 ] || code=5
  no_night "$code" 'the run left no results'
fi
case $run in
  *-interrupted) no_night 5 "the run was interrupted ($run)" ;;
esac

append_code=0
appended=$(nights append "$history" "$run" 2>>"$log") || append_code=$?
[ "$append_code" -eq 0 ] || no_night "$append_code" "$(tail -n 1 "$log" | sed 's/^history.py: //')"
[ -z "$appended" ] || say "$appended"
nights smaller "$run" >"$home/smaller-is-better.json"

# What the page says beside the comparison.
notes=("$appended")
if [ "$code" -ne 0 ]; then
  while read -r line; do notes+=("$line"); done < <(sed -n 's/^arbench: //p' "$log" | grep -E ' is WRONG: | did not run: |lost|hung' |
                                                      head -n 20 || true)
fi
comparison=$home/last-comparison.md
word=good
case $code in
  2) word=bad notes+=('no comparison: data was wrong, or something hung') ;;
  0 | 5)  # 5: some cells did not run; the others are compared
    baseline=$(nights baseline "$history" "$run") || no_night $? "the baseline cannot be found; see the lines above"
    if [ -n "$baseline" ]; then
      say "comparing with $baseline"
      notes+=("A is $(basename "$baseline"), B is $(basename "$run")")
      compared=0
      "$program" compare "$baseline" "$run" --history "$history" --markdown >"$comparison" 2>"$log.compare" || compared=$?
      cat "$log.compare" >&2
      [ -s "$comparison" ] || rm -f "$comparison"
      # A comparison that could not be made says nothing of the night.
      if [ "$compared" -ne 0 ] && [ ! -e "$comparison" ]; then
        notes+=("no comparison: $(tail -n 1 "$log.compare" | sed 's/^arbench: //')")
        compared=5
      elif [ "$compared" -ne 0 ]; then
        word=bad
      fi
      rm -f "$log.compare"
      if [ "$compared" -ne 0 ] && [ "$code" -eq 0 ] || [ "$compared" -eq 3 ]; then code=$compared; fi
    else
      say 'there is no earlier good night of this machine and plan to compare with'
      notes+=('no comparison: there is no earlier good night of this baseline that can be read')
    fi
    ;;
esac

nights mark "$history" "$run" "$word"
[ "$pin" -eq 0 ] || nights pin "$history" "$run"

page=$home/pages/$(basename "$run").md
nights summary "$history" "$run" "$comparison" "$code" "${notes[@]}" >"$page.part" && mv "$page.part" "$page"
ln -sfn "$(basename "$page")" "$home/pages/latest.md"
say "exit code $code; page in $page"
exit "$code"
