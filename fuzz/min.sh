#!/usr/bin/env bash
# Keeps what long runs have found: `fuzz/min.sh TARGET [BYTES]`.
#
# Takes $FUZZ_LOGS/TARGET.corpus (fuzz/logs; `hour.sh` leaves it), lets libFuzzer pick few and small inputs that
# together reach all that is reached (-set_cover_merge=1), and adds those to fuzz/corpus/TARGET that reach something
# new, smallest first, up to BYTES altogether (2,000,000). What is there already stays: inputs with names are told of in
# tests. An added one is named by its SHA-256, so that sessions build on each other and none is added twice.
set -euo pipefail
cd "$(dirname "$0")"

target=${1:?usage: fuzz/min.sh TARGET [BYTES]}
limit=${2:-2000000}
logs=${FUZZ_LOGS:-$PWD/logs}
[ -d "corpus/$target" ] || { echo "no target $target: fuzz/corpus has no such folder" >&2; exit 2; }
[ -d "$logs/$target.corpus" ] || { echo "nothing grown: no $logs/$target.corpus; run fuzz/hour.sh $target first" >&2; exit 2; }

./build.sh "$logs/$target.binary"
export FUZZ_TARGET=$target
merged=$(mktemp -d "$logs/$target.merged.XXXXXX")
trap 'rm -rf "$merged"' EXIT
cp "corpus/$target"/* "$merged"/
# What the corpus reaches counts as reached, so that only what adds to it is copied.
nice -n 19 "$logs/$target.binary" -set_cover_merge=1 -max_len=4096 -timeout=600 -rss_limit_mb=1024 "$merged" "$logs/$target.corpus" \
    >"$logs/$target.merge.log" 2>&1 || { tail -n 20 "$logs/$target.merge.log" >&2; exit 1; }

python3 - "$merged" "corpus/$target" "$limit" <<'PY'
import hashlib, pathlib, sys

merged, corpus, limit = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
held = {path.read_bytes() for path in corpus.iterdir()}
size = sum(map(len, held))
found = sorted({path.read_bytes() for path in merged.iterdir()} - held, key=lambda data: (len(data), data))
added = 0
for data in found:
    if size + len(data) > limit:
        break
    (corpus / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    size += len(data)
    added += 1
print(f"{corpus}: {added} of {len(found)} new inputs added; {len(held) + added} inputs, {size} bytes of at most {limit}")
PY
