//! Every limit of the load generator, with its unit and what happens there.

use std::time::Duration;

/// Connections of a run; more are refused before it starts.
pub const CONNECTIONS: u32 = 1_000_000;

/// Rounds of a run.
pub const ROUNDS: u32 = 1_000;

/// Requests in flight on one connection: pipelined, or over HTTP/2 each on a stream of its own.
pub const PIPELINE: u32 = 1_024;

/// Bytes of answers over HTTP/2 that a server may send before it is told that they were read, on a stream and on a connection.
/// Nothing of them is held here, so no answer ever waits for this side.
pub const HTTP2_WINDOW: u32 = 1 << 30;

/// Requests without tokens of which a connection over HTTP/2 keeps how it has encoded them; others of the mix are encoded each time.
pub const HTTP2_HEADS: usize = 16;

/// Bytes of an echoed message, over TCP or WebSocket.
pub const ECHO_BYTES: u32 = 1 << 20;

/// Connection attempts in progress at once, a worker, handshakes included: a listen queue holds only so many.
pub const DIALS: usize = 256;

/// After a failed attempt to connect a worker dials nothing for so long: a server that refuses is not hammered.
pub const REDIAL: Duration = Duration::from_millis(10);

/// How long the other end may take to answer the Close of a WebSocket. Then the connection is reset; nothing is counted, for
/// no request is lost.
pub const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// How long one step of a push client's worker may take before a warning says so. Closing very many connections at the end takes
/// some hundred milliseconds, and the client's lateness while it counts is in the report.
pub const STALL: Duration = Duration::from_secs(10);

/// Bytes that inflating hands on at a time.
pub const INFLATED_PIECE: usize = 16 << 10;

/// Arrivals of an open loop that wait for a free connection, a worker. Beyond it they are dropped and counted.
pub const ARRIVALS_WAITING: usize = 1 << 20;

/// Arrivals that a worker takes in one turn of its loop. More wait for the next turn, so that a rate beyond what can be
/// counted keeps nobody from reading answers.
pub const ARRIVALS_PER_TURN: usize = 1 << 16;

/// Arrivals that were never sent count with waiting times spread evenly over their time, in at most this many steps: there may be
/// billions of them.
pub const DROPPED_STEPS: u64 = 1000;

/// A request that a server declares unprocessed is sent again at most this often; then it counts as broken.
pub const RESENDS: u8 = 8;

/// A request that leaves later than this after its scheduled time has missed the schedule.
pub const LATE: Duration = Duration::from_millis(1);

/// Bytes of a body that is kept for checks and captures; of a longer one the check fails and says so.
pub const CHECKED_BODY_BYTES: usize = 1 << 20;

/// The longest latency that a histogram tells apart; longer ones count as this long.
pub const LATENCY: Duration = Duration::from_hours(1);

/// Significant decimal digits of a recorded latency.
pub const LATENCY_DIGITS: u8 = 3;

/// Intervals of a series that are kept; of longer runs neighbours are merged into one of twice the length.
pub const SERIES: usize = 3_600;

/// The shortest interval of a series.
pub const INTERVAL: Duration = Duration::from_millis(10);

/// Intervals of a worker whose figures are on their way to be put together. With more, which takes short intervals and a host
/// without CPU time to spare, a worker keeps its figures and they count in a later interval.
pub const INTERVALS_UNDER_WAY: usize = 16;

/// Requests a second that an open loop may be asked for.
pub const RATE: f64 = 1e9;

/// How often is looked whether a server that was started takes connections, or has ended.
pub const SERVER_LOOK: Duration = Duration::from_millis(10);

/// How long a server that was started may take to end once it is asked to; then it is forced.
pub const SERVER_END: Duration = Duration::from_secs(5);

/// How long is waited for the end of what was forced to end, which the kernel may put off.
pub const SERVER_FORCED: Duration = Duration::from_secs(1);

/// How long one attempt to connect takes at most, while it is waited for a server.
pub const SERVER_CONNECT: Duration = Duration::from_secs(1);

/// How long the rest of a server's output is waited for once it has ended.
pub const SERVER_LAST_WORDS: Duration = Duration::from_millis(500);

/// Bytes of a server's output that are kept for the message of its failure: the last ones.
pub const SERVER_OUTPUT_BYTES: usize = 4096;

/// Lines of them that the message shows.
pub const SERVER_OUTPUT_LINES: usize = 5;

/// Bytes of a file of histograms; a longer one is refused.
pub const RECORD_BYTES: usize = 1 << 30;

/// Bytes of one histogram in a file after inflating: the largest that the format knows, with all its counters, is shorter.
pub const RECORD_INFLATED_BYTES: usize = 64 << 20;

/// Bytes of memory for the counters of all tags of files that are merged; beyond it reading stops with an error.
pub const RECORD_MEMORY: usize = 512 << 20;

/// Different tags in files that are merged.
pub const RECORD_TAGS: usize = 1_000;

/// Flows of a mix.
pub const FLOWS: usize = 256;

/// Steps of a flow.
pub const STEPS: usize = 256;

/// Tokens of one request, head and body together.
pub const TOKENS: usize = 1_024;

/// Values that a flow captures, by name.
pub const VALUES: usize = 64;

/// Bytes of a captured value; of a longer one the capture fails and says so.
pub const VALUE_BYTES: usize = 4_096;

/// Bytes of a request head as it is written down, before tokens are expanded.
pub const HEAD_BYTES: usize = 64 << 10;

/// Bytes of a request body as it is written down, or of the file that it comes from.
pub const REQUEST_BODY_BYTES: usize = 64 << 20;

/// Hexadecimal digits of one `{{random-hex:N}}`.
pub const RANDOM_HEX: usize = 1_024;

/// Bytes of a scenario file.
pub const SCENARIO_BYTES: usize = 1 << 20;

/// Worker threads of a run.
pub const THREADS: usize = 1_024;

/// Endpoints that the clients of a fan-out are spread over.
pub const NODES: usize = 32;

/// Blocks of 32 positions of which a thread retains the publications, to compare them across clients; further positions are counted as not
/// compared.
pub const AUDITED_BLOCKS: usize = 1 << 18;

/// Ranges of missing publications that a thread retains; further ones count as missing even if they arrive later.
pub const AUDITED_GAPS: usize = 1 << 20;

/// Channels of a fan-out, besides the common one.
pub const PUSH_CHANNELS: u32 = 1 << 20;

/// Channels that one client subscribes to, besides the common one.
pub const PUSH_SUBSCRIPTIONS: u32 = 10_000;

/// Publications of a fan-out, warm-up included, on one schedule; more are refused before it starts. Each of them takes 8 bytes
/// a thread.
pub const PUBLICATIONS: u32 = 1 << 22;

/// Bytes of a publication's data; with what is around it and what waits before it the engine's output holds it.
pub const PUBLICATION_BYTES: u32 = 512 << 10;

/// Bytes of what the names of channels begin with.
pub const PREFIX_BYTES: usize = 64;

/// Bytes of a message to a client; a longer one breaks its connection.
pub const HEARD_BYTES: usize = 16 << 20;

/// Publications without an answer on one connection; more wait for one.
pub const PUBLISHES_IN_FLIGHT: usize = 1024;

/// Publications that wait for room on one connection. More are not sent, and counted as such.
pub const PUBLICATIONS_WAITING: usize = 1 << 18;

/// Publications of one request at most.
pub const PUBLISHES_IN_REQUEST: usize = 512;

/// Records of a broker without an acknowledgement. More are not sent, and counted as such.
pub const RECORDS_IN_FLIGHT: u64 = 1 << 18;

/// Publications that are due within this time leave together, at its end, where several go in one request; how late that makes them
/// is in their latency.
pub const BATCH_TICK: Duration = Duration::from_millis(1);

/// Bytes of publications in a request after which no more are added to it.
pub const REQUEST_BYTES: usize = 64 << 10;

/// Bytes of an answer to publications that are kept: what is said of each is in it. Of a longer one it is only known that it is
/// none.
pub const ANSWER_BYTES: usize = 64 << 10;

const _: () = assert!(
    ANSWER_BYTES >= 128 * PUBLISHES_IN_REQUEST && PUBLISHES_IN_FLIGHT >= PUBLISHES_IN_REQUEST,
    "what is said of each publication of a request has room in its answer"
);

/// Characters of a server's reason that are kept.
pub const REASON_CHARACTERS: usize = 120;

/// Kinds of ends that are counted apart; the rest is counted together.
pub const PUSH_REASONS: usize = 64;

/// Subscriptions asked for in one message.
pub const SUBSCRIBES_A_MESSAGE: usize = 64;

/// The default time after which a client whose session or attempt has ended connects again.
pub const RECONNECT: Duration = Duration::from_secs(1);

/// Times at which all clients of a run are cut off.
pub const KILLS: usize = 1000;

/// Epochs of channels that a thread keeps; a subscription with one more than that stands nowhere, and is taken up anew without
/// asking for what was missed.
pub const EPOCHS: usize = 2 << 20;

/// Bytes of an epoch; a longer one is not kept either.
pub const EPOCH_BYTES: usize = 256;

/// How often slow clients get what they may read, and freshness is looked at.
pub const WATCH_EVERY: Duration = Duration::from_millis(20);

/// Slow clients save what they may read for so many times of [`WATCH_EVERY`].
pub const SLOW_SAVES: i32 = 50;

/// Bytes of a slow client's receive buffer (the kernel doubles it).
pub const SLOW_RECEIVE_BYTES: u32 = 8 << 10;

/// Bytes around a publication's data, about, for what a client needs.
pub const ENVELOPE_BYTES: u32 = 50;

/// Subscriptions that a thread looks at each time, to see how fresh their values are.
pub const FRESHNESS_LOOKS: usize = 400;

/// How often a server's memory is taken in a fan-out.
pub const PUSH_TICK: Duration = Duration::from_secs(1);

const _: () = assert!(
    PUBLICATION_BYTES as usize + 2 * ringmain_engine::limits::WRITE_MARK
        < ringmain_engine::limits::WRITE_LIMIT
);
