//! The list of suites: name, purpose, commands. Knows nothing of how they run.

use super::Suite;
use crate::steps::Line;

pub(super) const SUITES: &[Suite] = &[
    Suite {
        name: "sim",
        about: "10,000 seeds in the simulated world, of the contract alone, of the real workers, of HTTP applications, the load generator and the gateway on them, of nodes that read the same logs, and of sources that repeat records",
        lines: &[
            Line::new("cargo test --release -p ringmain-sim --lib").with(SEEDS),
            Line::new("cargo test --release -p ringmain-engine --test sim -- --nocapture").with(SEEDS),
            Line::new("cargo test --release -p ringmain-web --test sim").with(SEEDS),
            Line::new("cargo test --release -p ringmain-load --lib client::sim_tests").with(SEEDS),
            Line::new("cargo test --release -p ringmain-gateway --test sim").with(SEEDS),
            Line::new("cargo test --release -p ringmain-hub --test it logs::simulation").with(SEEDS),
            Line::new("cargo test --release -p ringmain-hub --test it hub::idempotency").with(SEEDS),
            Line::new("cargo test --release -p ringmain-kube --test it following").with(SEEDS),
        ],
    },
    Suite {
        name: "hold",
        about: "80,000 echo connections held by one process under a limit of 20,000 descriptors, each answered",
        lines: &[Line::new("bench/build.sh client"), DIST, HOLD],
    },
    Suite {
        name: "bench",
        about: "CPU per echoed message against the bare server and the peers, interleaved pairs",
        lines: &[
            Line::new("bench/build.sh"),
            DIST,
            Line::new("python3 bench/echo.py"),
        ],
    },
    Suite {
        name: "http",
        about: "CPU per HTTP request against bare servers, frameworks and servers, interleaved pairs: forty minutes",
        lines: &[
            Line::new("bench/build.sh http"),
            PEERS,
            DIST,
            Line::new("python3 bench/http.py"),
        ],
    },
    Suite {
        name: "client",
        about: "`ringmain bench` against wrk and the lean client: throughput, CPU per request, stalls; ten minutes, needs wrk",
        lines: &[
            Line::new("bench/build.sh client floor go"),
            DIST,
            Line::new("python3 bench/client.py"),
        ],
    },
    Suite {
        name: "hold-http",
        about: "80,000 HTTP connections held by one process, each answered twice; memory of an idle one",
        lines: &[Line::new("bench/build.sh client"), DIST, HOLD_HTTP],
    },
    Suite {
        name: "tools",
        about: "curl, wrk, h2load and slowhttptest in each mode against the server with its default limits; one minute",
        lines: &[RELEASE, TOOLS],
    },
    Suite {
        name: "https",
        about: "CPU per HTTPS request and per handshake against hyper + rustls and nginx; with `--before BINARY` plain HTTP too; fifteen minutes",
        lines: &[
            Line::new("bench/install.sh https"),
            Line::new("bench/build.sh https"),
            PEERS,
            DIST,
            Line::new("python3 -m unittest discover -s bench -p test_tls.py"),
            Line::new("python3 bench/tls.py"),
        ],
    },
    Suite {
        name: "h2",
        about: "CPU per HTTP/2 request against h2o, nginx and hyper, by prior knowledge and over TLS, and per call of gRPC against tonic and grpc-go; ten minutes, needs h2load",
        lines: &[
            Line::new("bench/build.sh h2"),
            PEERS,
            DIST,
            Line::new("cargo build --profile dist -p ringmain-web --example grpc_unary"),
            Line::new("python3 bench/h2.py"),
        ],
    },
    Suite {
        name: "ws",
        about: "CPU per echoed WebSocket message against our raw echo and fastwebsockets; three minutes",
        lines: &[
            Line::new("bench/build.sh https"),
            DIST,
            Line::new("python3 -m unittest discover -s bench -p test_ws.py"),
            Line::new("python3 bench/ws.py"),
        ],
    },
    Suite {
        name: "tls",
        about: "testssl.sh, openssl s_client and curl against the server, and handshakes that never end; two minutes",
        lines: &[Line::new("bench/install.sh tls"), RELEASE, TLS_TOOLS],
    },
    Suite {
        name: "browser",
        about: "WebSocket, HTTPS and the page of the gateway's administration as Chromium sees them, other origins refused; a minute",
        lines: &[Line::new("bench/install.sh browser"), RELEASE, BROWSER],
    },
    Suite {
        name: "pages",
        about: "the welcome page, the ticker, the dashboard of a gateway with push and a flame graph in Chromium, at two widths, light and dark: layout, accessibility (axe), keyboard, without a script; `--write` replaces the pictures in docs/images; two minutes, needs Node and npm, Chromium, openssl and the package registry",
        lines: &[RELEASE, Line::new("tests/pages/run.sh target/release/ringmain")],
    },
    Suite {
        name: "site",
        about: "the documentation site in Chromium: every page at two widths, light and dark: layout, accessibility (axe); ten minutes, needs mdbook, Node and npm, Chromium or Chrome, and the package registry",
        lines: &[Line::new("cargo xtask book"), Line::new("tests/pages/site.sh")],
    },
    Suite {
        name: "workflows",
        about: "actionlint on .github/workflows, with shellcheck for their scripts where it is installed; a minute, needs Go and its module proxy",
        lines: &[Line::new(
            "go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12",
        )],
    },
    Suite {
        name: "shop",
        about: "examples/shop.yaml in front of nginx, a Go and a Node server: a script of requests for each feature; two minutes",
        lines: &[
            Line::new("bench/install.sh shop"),
            RELEASE,
            Line::new("python3 -m unittest discover -s bench -p test_shop.py"),
            Line::new("python3 bench/shop.py"),
        ],
    },
    Suite {
        name: "reload",
        about: "1,000 changes of configuration and 100 of certificates under load, with WebSockets and uploads open; three minutes",
        lines: &[
            Line::new("bench/install.sh shop"),
            RELEASE,
            Line::new("python3 bench/reload.py"),
        ],
    },
    Suite {
        name: "routes",
        about: "5,000 and 50,000 routes: loading, one change live on every worker, memory; one minute",
        lines: &[
            DIST,
            Line::new("cargo run --profile dist -p ringmain-gateway --example table_time"),
            Line::new("python3 bench/routes.py"),
        ],
    },
    Suite {
        name: "proxy",
        about: "CPU per proxied request against the bare relay, nginx, HAProxy and other proxies, and added latency; an hour",
        lines: &[
            Line::new("bench/install.sh proxy"),
            Line::new("bench/build.sh proxy"),
            PEERS,
            DIST,
            Line::new("python3 -m unittest discover -s bench -p test_proxy.py"),
            Line::new("python3 bench/proxy.py"),
        ],
    },
    Suite {
        name: "h2proxy",
        about: "CPU per HTTP/2 request through proxies, before HTTP/1.1 and HTTP/2, against HAProxy and others; fifteen minutes, needs h2load",
        lines: &[
            Line::new("bench/install.sh proxy"),
            Line::new("bench/build.sh floor"),
            PEERS,
            DIST,
            Line::new("python3 bench/h2proxy.py"),
        ],
    },
    Suite {
        name: "policies",
        about: "what each policy of the gateway costs a request, in instructions, allocations and CPU; fifteen minutes",
        lines: &[
            Line::new("bench/build.sh client floor"),
            DIST,
            Line::new("cargo build --profile dist -p ringmain-gateway --example policy_cost"),
            Line::new("python3 bench/policies.py"),
        ],
    },
    Suite {
        name: "push",
        about: "fan-out against the bare floor and a server on the Go library centrifuge: time to the last client, CPU of a delivery, memory; ten minutes, needs Go and its module proxy",
        lines: &[
            Line::new("bench/build.sh push"),
            Line::new("cargo build --profile dist -p ringmain-push --example bench_server"),
            Line::new("python3 bench/push.py"),
        ],
    },
    Suite {
        name: "overload",
        about: "goodput at three times the load that an application carries, and recovery from it",
        lines: &[Line::new("bench/build.sh client"), REPORT, OVERLOAD],
    },
    Suite {
        name: "autobahn",
        about: "Autobahn's WebSocket cases, all of them, against our server and our client; ten minutes, needs Python 2.7",
        lines: &[
            Line::new("cargo build --release --example ws_echo"),
            Line::new("cargo build --release -p ringmain-web --example autobahn_client"),
            Line::new("tests/autobahn/run.sh server target/release/examples/ws_echo"),
            Line::new("tests/autobahn/run.sh client target/release/examples/autobahn_client"),
        ],
    },
    Suite {
        name: "h2spec",
        about: "h2spec's cases of HTTP/2, all of them, in the clear and over TLS; half a minute, needs Go and its module proxy",
        lines: &[
            Line::new("cargo build --release -p ringmain-web --example h2_server"),
            Line::new("tests/h2spec/run.sh target/release/examples/h2_server"),
        ],
    },
    Suite {
        name: "field",
        about: "every entry of docs/field-faults.md replayed against the release binary by its own reproduction; five minutes",
        lines: &[RELEASE, Line::new("python3 tests/field/run.py")],
    },
    Suite {
        name: "guides",
        about: "the guides of the gateway (docs/how-to), each page run by its own text against the release binary, its output compared; ten minutes, needs root, curl, openssl, node 20 or later, redis-server and systemd-analyze",
        lines: &[RELEASE, Line::new("python3 tests/guides/run.py")],
    },
    Suite {
        name: "sources",
        about: "each source of push with 100,000 records of a real broker that is killed, suspended and restored, behind links that fail, with full queues and nodes that take over, and the how-to guides of push; half an hour, needs Java and Maven, Go, Node and npm, Python with venv, redis-server, PostgreSQL, kcat, root, and the package registries",
        lines: &[
            Line::new("cargo build --release -p ringmain-cli --features brokers"),
            Line::new("python3 tests/sources/run.py"),
        ],
    },
    Suite {
        name: "cluster",
        about: "push nodes as processes that share channels: the server API at any node, presence after a kill, links that are cut, suspended and slow, mutual TLS, planned ends, rolling restarts, and nodes that are added and removed under 20,000 clients; and with Redis, JetStream and Kafka as the log behind the channels, owners and brokers that are killed and rolled back; half an hour, needs Python, openssl, redis-server, Go or nats-server, Java and Maven",
        lines: &[
            Line::new("cargo build --release -p ringmain-cli --features brokers"),
            Line::new("cargo build --release -p ringmain-testkit --bin crowd"),
            Line::new("python3 -m unittest discover -s tests/cluster"),
            Line::new("python3 tests/cluster/run.py --log redis target/release/ringmain"),
            Line::new("python3 tests/cluster/run.py --log jetstream target/release/ringmain"),
            Line::new("python3 tests/cluster/run.py --log kafka target/release/ringmain"),
            Line::new("python3 tests/cluster/run.py target/release/ringmain"),
        ],
    },
    Suite {
        name: "cluster-cost",
        about: "CPU of both nodes for a publication that crosses from one push node to another against centrifuge with Redis, and the cost of a hop; ten minutes, needs Go and its module proxy, and redis-server",
        lines: &[
            Line::new("bench/build.sh goredis"),
            DIST,
            Line::new("python3 bench/cluster.py"),
        ],
    },
    Suite {
        name: "kube",
        about: "a real API server that is killed, slow or behind a link that is cut, replicas, rights, Secrets and certificates that change, followed by the release binary, and the conformance suite of the Gateway API in three runs, the leader killed in one; eleven minutes, needs the folder of a rig with up.sh, in.sh, down.sh and conformance.sh in RINGMAIN_KUBE_RIG, root, and openssl",
        lines: &[
            Line::new("cargo build --release -p ringmain-cli --features kubernetes"),
            Line::new("python3 tests/kube/faults.py target/release/ringmain"),
            Line::new("tests/kube/conformance.sh target/release/ringmain"),
        ],
    },
    Suite {
        name: "chart",
        about: "the Helm chart: output, values and rights, each object at a real API server, then installed in a cluster whose Pods are the release binary; five minutes, needs the folder of a rig with up.sh, in.sh and down.sh in RINGMAIN_KUBE_RIG, root, openssl, curl, PyYAML, Go and its module proxy",
        lines: &[
            Line::new("cargo build --release -p ringmain-cli --features brokers,kubernetes"),
            Line::new("python3 tests/kube/chart.py target/release/ringmain"),
            Line::new("python3 tests/kube/chart_rig.py target/release/ringmain"),
        ],
    },
    Suite {
        name: "kube-rollout",
        about: "200,000 requests to the chart's Service under 1,000 changes of routes and rolling restarts of backends and of Ringmain's own Pods, as a Deployment with io_uring and with epoll and as a DaemonSet, also behind a load balancer that notices the state of nodes late: none may fail; a quarter of an hour, needs the folder of a rig with up.sh, in.sh and down.sh in RINGMAIN_KUBE_RIG, root, ip, nft, openssl, curl, PyYAML, Go and its module proxy",
        lines: &[
            Line::new("cargo build --release -p ringmain-cli --features kubernetes"),
            Line::new("python3 tests/kube/rollout.py target/release/ringmain"),
        ],
    },
    Suite {
        name: "kube-push",
        about: "two releases of the chart as a push cluster with Redis as its log, push servers and push gateways in a cluster whose Pods are the release binary, scaled out and in, upgraded and drained under 1,200 clients: no publication may be lost or doubled, and clients that are sent away reconnect evenly over the time of the drain; six minutes, needs the folder of a rig with up.sh, in.sh and down.sh in RINGMAIN_KUBE_RIG, root, ip, nft, openssl, redis-server, PyYAML, Go and its module proxy",
        lines: &[
            Line::new("cargo build --release -p ringmain-cli --features brokers,kubernetes"),
            Line::new("python3 -m unittest discover -s tests/kube"),
            Line::new("python3 tests/kube/push.py target/release/ringmain"),
        ],
    },
    Suite {
        name: "tutorials",
        about: "the five tutorials of docs/tutorials, each from its own text to its result: a row in a database, a point in Prometheus, a price in Chromium, a report, a changed test; fifteen minutes, needs git and the package registries",
        lines: &[
            Line::new("bench/install.sh tutorials"),
            RELEASE,
            Line::new("python3 -m unittest discover -s tests/tutorials"),
            Line::new("python3 tests/tutorials/run.py"),
        ],
    },
    Suite {
        name: "hpack",
        about: "header compression of HTTP/2 against Go's, both ways; a minute, needs Go and its module proxy",
        lines: &[Line::new("tests/hpack/run.sh")],
    },
    Suite {
        name: "centrifugo",
        about: "the same frames and calls sent to Centrifugo 6.9.1 and to the release binary, every difference explained; two minutes, needs Go and its module proxy",
        lines: &[RELEASE, Line::new("tests/centrifugo/run.sh")],
    },
    Suite {
        name: "sdk",
        about: "Centrifuge's Go and npm SDKs, npm's grpc-web and grpcurl against our server, our deltas and tag filters in Centrifugo's library; two minutes, needs Go, Node and the package registries",
        lines: &[
            Line::new("cargo build --release -p ringmain-push --example sdk_server"),
            Line::new("cargo build --release -p ringmain-hub --example feature_cases"),
            Line::new(
                "tests/sdk/run.sh target/release/examples/sdk_server target/release/examples/feature_cases",
            ),
        ],
    },
    Suite {
        name: "sdk-cluster",
        about: "the own tests of Centrifuge's JavaScript and Go SDKs against push nodes with Redis as their log behind a gateway, and nodes killed under 380 of their clients: none may lose or double a publication; ten minutes, needs Go, Node, git, redis-server, the package registries and the repository centrifuge-js",
        lines: &[
            Line::new("cargo build --release -p ringmain-cli --features brokers"),
            Line::new("python3 -m unittest discover -s tests/sdk_cluster"),
            Line::new("python3 tests/sdk_cluster/run.py target/release/ringmain"),
        ],
    },
    Suite {
        name: "grpc",
        about: "grpc-go's interoperability client, connectrpc.com/conformance, all cases of gRPC and gRPC-Web, and npm's grpc-web against our services, also behind the gateway; three minutes, needs Go, Node and the package registries",
        lines: &[
            RELEASE,
            Line::new("cargo build --release -p ringmain-web --example grpc_conformance"),
            Line::new("cargo build --release -p ringmain-web --example grpc_interop"),
            Line::new("cargo build --release --example grpc"),
            Line::new("tests/grpc/interop.sh target/release/examples/grpc_interop target/release/ringmain"),
            Line::new(
                "tests/grpc/run.sh target/release/examples/grpc_conformance target/release/examples/grpc target/release/ringmain",
            ),
        ],
    },
    Suite {
        name: "extensions",
        about: "Envoy and the gateway in front of the same authorization service, rate limit service and external processor (grpcio) and origin: 750, 600 and 600 generated requests, the same queries, decisions, requests and responses; and the guides with services over gRPC, run by their own text; six minutes, needs root, Python and its package registry",
        lines: &[
            RELEASE,
            Line::new("tests/extensions/run.sh target/release/ringmain"),
        ],
    },
    Suite {
        name: "http2-browsers",
        about: "HTTP/2, WebSockets on its streams, server-sent events and gRPC-Web through the gateway as Chromium and Firefox see them; a minute, needs both, Node and the package registry",
        lines: &[
            RELEASE,
            Line::new("cargo build --release --example grpc"),
            Line::new("tests/browsers/run.sh target/release/ringmain target/release/examples/grpc"),
        ],
    },
    Suite {
        name: "exports",
        about: "what `ringmain tune export` prints, read by systemd, procps, Kubernetes' types and those of container runtimes; needs Go and its module proxy",
        lines: &[RELEASE, Line::new("tests/exports/run.sh target/release/ringmain")],
    },
    Suite {
        name: "systemd",
        about: "units of Type=notify under systemd's user manager: start, reload, upgrade, watchdog, socket activation; needs root and systemd",
        lines: &[RELEASE, Line::new("tests/systemd/run.sh target/release/ringmain")],
    },
    Suite {
        name: "packages",
        about: "the packages of `cargo xtask dist`: the static program in an empty root, the one with glibc in Debian 12 and 13, the .deb and .rpm installed, the container image pushed and started, the unit's exposure, the list of libraries by its schema; three builds first, an hour; needs root, Go, Python with venv, debootstrap, and the package registries",
        lines: &[
            Line::new("cargo xtask dist"),
            Line::new("python3 tests/packages/run.py target/package"),
        ],
    },
    Suite {
        name: "publish",
        about: "each crate packed as for the registry and compiled from its package alone, with names, descriptions and included files; ten minutes, needs the package registry",
        lines: &[Line::new("cargo publish --workspace --dry-run")],
    },
    Suite {
        name: "deny",
        about: "licences, bans, sources and advisories of the dependencies, whether or not they changed; needs cargo-deny and the network",
        lines: &[Line::new("cargo xtask deny")],
    },
    Suite {
        name: "profiles",
        about: "what cargo profiles cost: build time, size, CPU per request; an hour or more",
        lines: &[Line::new("python3 bench/profiles.py")],
    },
    Suite {
        name: "fuzz",
        about: "ten minutes of mutations on each fuzz target",
        lines: &[FUZZ],
    },
    Suite {
        name: "hours",
        about: "one CPU-hour of libFuzzer on each codec's target (needs g++), until a quarter of an hour adds no coverage",
        lines: &[
            Line::new("fuzz/hour.sh h1_request"),
            Line::new("fuzz/hour.sh h1_response"),
            Line::new("fuzz/hour.sh h1_encode"),
            Line::new("fuzz/hour.sh tls_server"),
            Line::new("fuzz/hour.sh ws_frames"),
        ],
    },
];

/// All tests of the simulation read it; `SIM_SEED=n` runs one seed.
const SEEDS: &[(&str, &str)] = &[("SIM_SEEDS", "10000")];

/// For checks of behaviour.
const RELEASE: Line = Line::new("cargo build --release");

/// For figures: as it is published.
const DIST: Line = Line::new("cargo build --profile dist");

/// nginx and HAProxy in the versions that figures are compared with.
const PEERS: Line = Line::new("bench/peers.sh");

const HOLD: Line = Line::new(
    "python3 bench/hold.py --connections 80000 -- target/dist/ringmain run --echo --listen 127.0.0.1:$PORT",
);

const HOLD_HTTP: Line = Line::new(
    "python3 bench/hold.py --http /json --connections 80000 -- target/dist/ringmain run --listen 127.0.0.1:$PORT --max-connections 80000 --patience 1h",
);

const REPORT: Line = Line::new("cargo build --profile dist --example report");

const OVERLOAD: Line = Line::new(
    "python3 bench/overload.py --share 1 --path /report?measurements=40000 -- target/dist/examples/report 127.0.0.1:$PORT",
);

const TOOLS: Line =
    Line::new("python3 bench/tools.py -- target/release/ringmain run --listen 127.0.0.1:$PORT");

const TLS_TOOLS: Line = Line::new(
    "python3 bench/tls_tools.py -- target/release/ringmain run --listen 127.0.0.1:$PORT --cert $CERT --key $KEY --workers 4",
);

const BROWSER: Line =
    Line::new("python3 bench/browser.py -- target/release/ringmain run --listen 127.0.0.1:$PORT");

const FUZZ: Line = Line::new("cargo run --profile fuzz -p ringmain-fuzz -- --seconds 600");
