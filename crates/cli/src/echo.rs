//! The TCP echo server. Counts its messages, since the engine counts bytes only.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ringmain_engine::{Conn, Handler, Via};

/// Number of received messages per worker; each worker writes only its own count.
#[derive(Clone, Default)]
pub(crate) struct Messages(Arc<Mutex<Vec<Arc<Count>>>>);

/// The count of one worker, on its own cache line.
#[derive(Default)]
#[repr(align(128))]
struct Count(AtomicU64);

impl Messages {
    /// Returns the sum over the workers. A message is the data of one receive.
    pub(crate) fn total_messages(&self) -> u64 {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|count| count.0.load(Ordering::Relaxed)).sum()
    }

    /// Returns the count of a new worker; each worker calls it once.
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
    /// Returns the handler of a worker, which counts into `messages`.
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
        // A refused write means that the connection is closing: its remaining data is discarded.
        if conn.write(bytes).is_err() {
            return 0;
        }
        // This worker is the only writer: no read-modify-write.
        let count = &self.count.0;
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        bytes.len()
    }

    /// Leaves the connection open until the client closes it, or the grace time expires: closing it now would lose data in flight.
    fn drain(&mut self, _conn: Conn<'_>, _state: &mut ()) {}
}
