//! Limits of the client and of following a cluster.

use std::time::Duration;

/// Objects of a page of a list.
pub const PAGE: u32 = 500;

/// Bytes of a line of a watch, which is one object. A longer one ends the watch, and the kind is listed again; etcd refuses objects of
/// more than 1.5 MiB.
pub const LINE_BYTES: usize = 8 << 20;

/// The duration of a request other than a watch. Longer: it has failed.
pub const REQUEST_WITHIN: Duration = Duration::from_secs(15);

/// The time until a watch has begun. Longer: it has failed.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// Seconds after which the API server ends a watch; the next one continues where it ended.
pub const WATCH_SECONDS: u32 = 290;

/// The time for which a watch may be silent. The API server sends a bookmark about once a minute; longer, and the connection counts as lost.
pub const WATCH_SILENCE: Duration = Duration::from_secs(150);

/// The first pause after a failed list or watch; each further one is twice as long, with a random part.
pub const BACKOFF_LEAST: Duration = Duration::from_millis(100);

/// The longest such pause.
pub const BACKOFF_MOST: Duration = Duration::from_secs(10);

/// The pause before a kind that the API server does not have is listed again: its definition may be installed later.
pub const MISSING_AGAIN: Duration = Duration::from_secs(30);

/// Changes that may wait to be applied. A watch whose change finds no room pauses.
pub const CHANGES: usize = 1024;

/// The longest time from a change to its translation. A change is translated at once unless the last translation has ended less than its own
/// duration ago: so translations take at most about half of the time of a CPU, and a burst of changes is translated together.
pub const BURST: Duration = Duration::from_millis(20);

/// The time for which a translation waits for the first list of a Secret or ConfigMap that an object has begun to refer to; longer, and it
/// counts as missing. While the API server does not respond, the translation waits for it without a limit.
pub const REFERENCED_WITHIN: Duration = Duration::from_millis(500);

/// Secrets and ConfigMaps that are watched by name. Further ones count as missing, which is logged and reported by
/// Events; those that are watched already stay.
pub const REFERENCED: usize = 500;

/// Statuses written a second.
pub const WRITES_PER_SECOND: u32 = 50;

/// Statuses written at once after a pause.
pub const WRITES_AT_ONCE: u32 = 200;

/// The time for which a Lease that is not renewed is still held.
pub const LEASE_SECONDS: u64 = 15;

/// A holder that could not renew its Lease for this long stops writing: before others may take it.
pub const LEASE_RENEW_WITHIN: Duration = Duration::from_secs(10);

/// The interval at which a Lease is renewed by its holder, and read by others.
pub const LEASE_EVERY: Duration = Duration::from_secs(2);

/// Gateways that are provided with an address each. Further ones are not programmed.
pub const GATEWAYS: usize = 4096;

/// Events that are remembered, one for each object and reason. A further one replaces the one that was found least recently.
pub const EVENTS: usize = 1000;

/// Findings that may wait to be recorded as Events. Further ones are dropped; they are logged.
pub const EVENTS_QUEUED: usize = 1000;

/// Events written a second.
pub const EVENTS_PER_SECOND: u32 = 5;

/// Events written at once after a pause.
pub const EVENTS_AT_ONCE: u32 = 25;

/// The interval at which the series of an Event is updated while its finding is repeated.
pub const EVENT_SERIES_EVERY: Duration = Duration::from_secs(60);

/// Addresses of a push cluster's nodes: two for each of 100 nodes, of both families. Further ones, in the order of addresses, are left
/// out, which is logged.
pub const PUSH_NODES: usize = 200;

const _: () = assert!(LEASE_RENEW_WITHIN.as_secs() < LEASE_SECONDS);
const _: () = assert!(LEASE_EVERY.as_secs() < LEASE_RENEW_WITHIN.as_secs());
const _: () = assert!(WATCH_SILENCE.as_secs() < WATCH_SECONDS as u64);
