#!/usr/bin/env bash
# One CPU-hour of libFuzzer on one target: `fuzz/hour.sh TARGET [CPU-SECONDS]`.
#
# Builds with the pinned toolchain (needs g++), mutates guided by coverage, ends after that much processor time
# (3600 s; time in which it is stopped by SIGSTOP does not count), and says what came of it. It fails when a law
# is broken, and when the last new edge of our own code is younger than 15 CPU-minutes. Edges of the readers that ours
# is compared with guide the search too and are told of apart: how far they are explored is not what is asked for.
# An edge of the standard library is its caller's where it is inlined, and counts as ours where that is not known.
#
# In $FUZZ_LOGS (fuzz/logs): TARGET.pid is the process to stop and continue; TARGET.log is what libFuzzer says, each
# line with the CPU seconds used so far; TARGET.corpus grows from run to run; TARGET.artifacts holds findings. Each run
# begins with fuzz/corpus/TARGET too; `fuzz/min.sh TARGET` puts there what this one has found, to be committed.
set -euo pipefail
cd "$(dirname "$0")"

target=${1:?usage: fuzz/hour.sh TARGET [CPU-SECONDS]}
budget=${2:-3600}
quiet=900
logs=${FUZZ_LOGS:-$PWD/logs}
log=$logs/$target.log
ticks=$(getconf CLK_TCK)
mkdir -p "$logs/$target.corpus" "$logs/$target.artifacts"
[ -d "corpus/$target" ] || { echo "no target $target: fuzz/corpus has no such folder" >&2; exit 2; }

./build.sh "$logs/$target.binary"
export FUZZ_TARGET=$target

# cpu_of PID: seconds of processor time; nothing once it is gone.
cpu_of() {
    local stat
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
    stat=${stat##*) }
    # shellcheck disable=SC2086
    set -- $stat
    echo $(((${12} + ${13}) / ticks))
}

used=0
: >"$log"
# A pause is measured by libFuzzer too, so a "timeout" is run again alone before it is believed.
while [ "$used" -lt "$budget" ]; do
    mkfifo "$logs/$target.fifo" 2>/dev/null || true
    dictionary=()
    [ -f "dictionaries/${target%%_*}.dict" ] && dictionary=("-dict=dictionaries/${target%%_*}.dict")
    RUST_BACKTRACE=0 nice -n 19 "$logs/$target.binary" "$logs/$target.corpus" "corpus/$target" \
        -artifact_prefix="$logs/$target.artifacts/" -max_len=4096 -timeout=600 -rss_limit_mb=1024 \
        -print_final_stats=1 -print_pcs=1 "${dictionary[@]}" >"$logs/$target.fifo" 2>&1 &
    pid=$!
    echo "$pid" >"$logs/$target.pid"
    {
        while [ -e "/proc/$pid" ]; do
            now=$(cpu_of "$pid")
            if [ -n "$now" ] && [ $((used + now)) -ge "$budget" ]; then
                kill -INT "$pid" 2>/dev/null || true
            fi
            sleep 2
        done
    } &
    watch=$!
    now=0
    base=
    while IFS= read -r line; do
        if [ -z "$base" ]; then
            # Where the program lies in memory, as addresses of edges are told from there.
            base=$(sed -n "s|-.* $logs/$target.binary\$||p" "/proc/$pid/maps" | head -n 1)
            printf '%s BASE: 0x%s\n' "$used" "$base"
        fi
        now=$(cpu_of "$pid")
        last=${now:-${last:-0}}
        printf '%s %s\n' $((used + last)) "$line"
    done <"$logs/$target.fifo" >>"$log"
    code=0
    wait "$pid" || code=$?
    wait "$watch"
    rm -f "$logs/$target.fifo" "$logs/$target.pid"
    used=$((used + last))
    last=0
    # 72: interrupted, by the watcher or by hand.
    [ "$code" = 72 ] && break
    for slow in "$logs/$target.artifacts"/timeout-*; do
        [ -e "$slow" ] || continue
        if nice -n 19 "$logs/$target.binary" -timeout=20 "$slow" >/dev/null 2>&1; then
            rm "$slow"
        fi
    done
    [ -z "$(find "$logs/$target.artifacts" -type f ! -name 'slow-unit-*' -print -quit)" ] || break
done

python3 hour.py "$target" "$log" "$used" "$quiet" "$budget" "$logs/$target.artifacts" "$logs/$target.binary"
