#!/bin/bash
# Autobahn's test suite against one of our programs:
#
#   tests/autobahn/run.sh server target/release/examples/ws_echo [CASE…]
#   tests/autobahn/run.sh client target/release/examples/autobahn_client [CASE…]
#
# CASE is a pattern such as `7.*`; all cases unless named. The suite needs Python 2.7 (`PYTHON27` names one, else pyenv's or the
# path's is taken) and is fetched by pip into AUTOBAHN_HOME, /tmp/ringmain-autobahn unless set, once. Reports are left beside it.
#
# Exit code: 0 all cases are as they must be, 1 some are not, 2 could not be run.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
home=${AUTOBAHN_HOME:-/tmp/ringmain-autobahn}
version=25.10.1

python27() {
    local found
    for found in "${PYTHON27:-}" "$HOME"/.pyenv/versions/2.7*/bin/python2.7 "$(command -v python2.7 || true)"; do
        if [ -n "$found" ] && [ -x "$found" ]; then
            echo "$found"
            return
        fi
    done
    echo "autobahn: expected Python 2.7 (the suite runs on nothing newer), found none: \`pyenv install 2.7.18\`," \
        "or name one by PYTHON27" >&2
    exit 2
}

if [ $# -lt 2 ]; then
    sed -n '2,10p' "$0" >&2
    exit 2
fi
python=$(python27)
if [ ! -e "$home/$version/complete" ]; then
    mkdir -p "$home/$version"
    echo "autobahn: fetching the suite into $home/$version"
    if ! "$python" -m pip install --quiet --target "$home/$version" "autobahntestsuite==$version" > "$home/pip.log" 2>&1; then
        tail -5 "$home/pip.log" >&2
        echo "autobahn: pip could not install the suite, see $home/pip.log" >&2
        exit 2
    fi
    touch "$home/$version/complete"
fi
exec python3 "$here/drive.py" --python "$python" --packages "$home/$version" --reports "$home/reports" "$@"
