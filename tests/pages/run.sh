#!/usr/bin/env bash
# The pages that people see, in Chromium: the welcome page, the ticker, the dashboard of a gateway with push, flame graphs.
#
#   tests/pages/run.sh target/release/ringmain [--write] [--shots FOLDER] [--only flame|welcome|dashboard|trouble]
#
# `--write` replaces the pictures of the documentation in docs/images; `--shots` stores all screenshots in a folder. Needs Node and npm,
# Chromium and openssl; npm packages are installed into node_modules beside this file. Exit code: 0 success, 1 a check failed, 2 could not run.
set -euo pipefail

ringmain=$(realpath "${1:?usage: tests/pages/run.sh RINGMAIN [--write] [--shots FOLDER] [--only flame|welcome|dashboard|trouble]}")
shift
here=$(cd "$(dirname "$0")" && pwd)
for program in node npm openssl chromium; do
    command -v "$program" >/dev/null || {
        echo "expected $program (on Debian: nodejs, npm, openssl, chromium); install it and run this again" >&2
        exit 2
    }
done
if ! [ -d "$here/node_modules/axe-core" ]; then
    npm ci --silent --no-audit --no-fund --prefix "$here"
fi
exec node "$here/run.mjs" "$ringmain" "$(command -v chromium)" "$@"
