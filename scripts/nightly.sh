#!/usr/bin/env bash
# One night: measures, compares with the baseline (a pinned night, else the last good one), appends to the history, looks
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

[ -x "$program" ] || fail 5 "there is no $program; scripts/quickstart.sh builds it, ARB_PROGRAM names another"
mkdir -p "$home/runs" "$home/pages" || fail 5 "cannot write to $home; --home takes another folder"
# Two nights at once would disturb each other.
exec 9>"$home/.lock"
flock -n 9 || fail 5 "another night is under way in $home"

# no_night <code> <sentence>: ends without a night. latest.md says so, for whoever is mailed it.
no_night() {
  local page
  page=$home/pages/no-night-$(date -u +%Y-%m-%dT%H%M%S).md
  printf '# No night, %s\n\nExit code %d: %s.\n\n```\n%s\n```\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$1" "$2" \
    "$(tail -n 20 "$log" 2>/dev/null || true)" >"$page"
  ln -sfn "$(basename "$page")" "$home/pages/latest.md"
  fail "$1" "$2"
}

history=$home/history.jsonl
log=$home/last-run.log
: >"$log"
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
[ "$code" -ne 1 ] || exit 1  # wrong options, said already
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

comparison=$home/last-comparison.md
: >"$comparison"
if [ "$code" -eq 0 ]; then
  baseline=$(nights baseline "$history" "$run") || exit $?
  if [ -n "$baseline" ]; then
    say "comparing with $baseline"
    "$program" compare "$baseline" "$run" --history "$history" --markdown >"$comparison" || code=$?
    "$program" compare "$baseline" "$run" --history "$history" --format smaller-is-better \
      >"$home/smaller-is-better.json" || true
  else
    say 'there is no earlier good night of this machine and plan to compare with'
  fi
fi

[ "$code" -eq 0 ] && word=good || word=bad
nights mark "$history" "$run" "$word"
[ "$pin" -eq 0 ] || nights pin "$history" "$run"

page=$home/pages/$(basename "$run").md
nights summary "$history" "$run" "$comparison" "$code" >"$page.part" && mv "$page.part" "$page"
ln -sfn "$(basename "$page")" "$home/pages/latest.md"
say "exit code $code; page in $page"
exit "$code"
