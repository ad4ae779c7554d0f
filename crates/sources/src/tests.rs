//! The wait for logs that are not read yet, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use ringmain_push::Push;
use tokio::time::sleep;

use super::status::Status;
use super::{Expected, limits, stop_expecting};

#[test]
fn logs_are_expected_until_some_time_after_their_broker_was_reached() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let expected = Arc::new(Expected {
            inlet: Push::new().thread_publisher(),
            prefixes: [("prices".into(), vec!["".into()])]
                .into_iter()
                .collect::<std::collections::BTreeMap<_, _>>()
                .into(),
        });
        let status = Arc::new(Status::default());
        let wait = tokio::spawn(stop_expecting(
            Arc::clone(&expected),
            "prices".into(),
            Arc::clone(&status),
        ));
        // A broker that is down for an hour.
        sleep(Duration::from_secs(3600)).await;
        assert!(!wait.is_finished() && !expected.prefixes().is_empty());
        status.connected();
        status.disconnected();
        status.connected();
        sleep(limits::LOG_EXPECTED.saturating_sub(Duration::from_millis(1))).await;
        assert!(!wait.is_finished() && !expected.prefixes().is_empty());
        wait.await.unwrap();
        assert!(expected.prefixes().is_empty());
    });
}
