#!/usr/bin/env bash
# The documentation site in Chromium: every page at two widths, light and dark: nothing cut, no serious finding of axe.
#
#   cargo xtask book && tests/pages/site.sh [--only TEXT] [--shots FOLDER]
#
# `--only` checks the pages whose path contains the text. Needs Node and npm, and Chromium or Chrome; npm packages are installed into
# node_modules beside this file. Exit code: 0 success, 1 a check failed, 2 could not run.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
book=$here/../../target/book
[ -e "$book/index.html" ] || {
    echo "expected the documentation site in target/book: run \`cargo xtask book\` first" >&2
    exit 2
}
browser=$(command -v chromium || command -v google-chrome || true)
for program in node npm "${browser:-chromium}"; do
    command -v "$program" >/dev/null || {
        echo "expected $program (on Debian: nodejs, npm, chromium); install it and run this again" >&2
        exit 2
    }
done
if ! [ -d "$here/node_modules/axe-core" ]; then
    npm ci --silent --no-audit --no-fund --prefix "$here"
fi
exec node "$here/site.mjs" "$browser" "$book" "$@"
