//! The classic echo: every byte comes back. Counts its messages, for the engine knows bytes only.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ringmain_engine::{Conn, Handler, on_data};

/// Received messages of all workers; each worker writes its own count only.
#[derive(Clone, Default)]
pub(crate) struct Messages(Arc<std::sync::Mutex<Vec<Arc<Count>>>>);

/// One worker's count, on a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Count(AtomicU64);

impl Messages {
    /// All so far. A message is what one receive brought.
    pub(crate) fn total(&self) -> u64 {
        let counts = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        counts.iter().map(|count| count.0.load(Ordering::Relaxed)).sum()
    }

    /// The count of one more worker; called once by each.
    fn add(&self) -> Arc<Count> {
        let count = Arc::<Count>::default();
        let mut counts = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        counts.push(Arc::clone(&count));
        count
    }
}

/// The handler of one worker.
pub(crate) fn handler(messages: &Messages) -> impl Handler<Conn = (), Mail = ()> + use<> {
    let count = messages.add();
    on_data(move |conn: Conn<'_>, bytes: &mut [u8]| match conn.write(bytes) {
        Ok(()) => {
            // Only this worker writes it: no read-modify-write.
            let seen = count.0.load(Ordering::Relaxed);
            count.0.store(seen + 1, Ordering::Relaxed);
            bytes.len()
        }
        // The connection is closing; what it still sends is nobody's.
        Err(_) => 0,
    })
}
