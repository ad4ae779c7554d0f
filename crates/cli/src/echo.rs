//! The classic echo: every byte comes back. Counts its messages, for the engine knows bytes only.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ringmain_engine::{Conn, Handler, Via};

/// Received messages of all workers; each worker writes its own count only.
#[derive(Clone, Default)]
pub(crate) struct Messages(Arc<Mutex<Vec<Arc<Count>>>>);

/// One worker's count, on a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Count(AtomicU64);

impl Messages {
    /// All so far. A message is what one receive brought.
    pub(crate) fn total_messages(&self) -> u64 {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|count| count.0.load(Ordering::Relaxed)).sum()
    }

    /// The count of one more worker; called once by each.
    fn register_worker(&self) -> Arc<Count> {
        let count = Arc::<Count>::default();
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.push(Arc::clone(&count));
        count
    }
}

/// The handler of one worker.
pub(crate) struct Echo {
    count: Arc<Count>,
}

impl Echo {
    /// Counts into `messages`.
    pub(crate) fn new(messages: &Messages) -> Echo {
        Echo {
            count: messages.register_worker(),
        }
    }
}

impl Handler for Echo {
    type Conn = ();
    type Mail = ();

    fn name(&self) -> &'static str {
        "echo"
    }

    fn open(&mut self, _conn: Conn<'_>, _via: Via) -> Option<()> {
        Some(())
    }

    fn data(&mut self, conn: Conn<'_>, _state: &mut (), bytes: &mut [u8]) -> usize {
        // A refused write means that the connection is closing: what it still sends is nobody's.
        if conn.write(bytes).is_err() {
            return 0;
        }
        // Only this worker writes it: no read-modify-write.
        let count = &self.count.0;
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        bytes.len()
    }

    /// Nothing in an echo says that it is over but the client's end: the client has the grace time for it.
    /// Closing now would lose what is on its way here.
    fn drain(&mut self, _conn: Conn<'_>, _state: &mut ()) {}
}
