# To be sourced: how scripts learn which port a server was given.

# port_of FILE PID: the port of 127.0.0.1 that the server PID says in FILE that it listens at. Waits for half a minute; fails, and shows the
# file, when that is over or the server is.
port_of() {
    local port
    for _ in $(seq 300); do
        port=$(sed -n 's/.*listening on 127\.0\.0\.1:\([0-9]*\).*/\1/p' "$1" | head -n 1)
        if [ -n "$port" ]; then
            echo "$port"
            return
        fi
        kill -0 "$2" 2>/dev/null || break
        sleep 0.1
    done
    { echo "did not say where it listens:"; cat "$1"; } >&2
    return 2
}
