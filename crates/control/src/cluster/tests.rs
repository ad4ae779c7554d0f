//! The task that follows a cluster, after a panic.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::supervise;

/// Supervises a task that panics at its first `panics` starts and otherwise runs until `stop` changes, which it does once the task runs.
/// Returns the number of starts.
fn starts(panics: u32, pause: Duration, stop_after: u32) -> u32 {
    let (stop, stopped) = watch::channel(false);
    let stop = Arc::new(stop);
    let count = Arc::new(AtomicU32::new(0));
    let (counted, receiver) = (Arc::clone(&count), stopped.clone());
    let follow = move || {
        let start = counted.fetch_add(1, Ordering::Relaxed) + 1;
        let (stop, mut stopped) = (Arc::clone(&stop), receiver.clone());
        async move {
            if start >= stop_after {
                stop.send_replace(true);
            }
            assert!(start > panics, "a fault in a translation");
            stopped.wait_for(|is_stopped| *is_stopped).await.unwrap();
        }
    };
    let runtime = crate::nats::runtime().unwrap();
    runtime.block_on(supervise(follow, pause, stopped));
    count.load(Ordering::Relaxed)
}

#[test]
fn panic_does_not_end_the_following_of_a_cluster() {
    assert_eq!(starts(0, Duration::ZERO, 1), 1);
    assert_eq!(starts(1, Duration::ZERO, 2), 2);
    assert_eq!(starts(3, Duration::ZERO, 4), 4);
}

#[test]
fn stop_ends_the_pause_after_a_panic() {
    let pause = Duration::from_secs(3600);
    assert_eq!(starts(1, pause, 1), 1);
}
