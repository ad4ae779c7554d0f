"""The rig itself: the binary starts, answers and stops."""

import rig
from run import case


@case("R0", "the binary starts from a two-line configuration, proxies and exits with 0 on SIGTERM")
def starts(r):
    port, origin = rig.free_port(), r.http_origin()
    server = r.gateway(f"listen: 127.0.0.1:{port}\nto: http://127.0.0.1:{origin}\n", port=port)
    rig.expect("status", 200, rig.get(port, "/").status)
    server.signal(15)
    rig.expect("exit code", 0, server.wait())
