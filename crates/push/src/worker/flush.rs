//! Sends clients their queued pushes.

use std::rc::Rc;

use ringmain_hub::subscribers::ConnId;

use super::PushWorker;
use crate::client::Client;
use crate::limits;

impl PushWorker {
    /// Sends queued pushes to all clients that have some.
    ///
    /// The state of a client that is mostly idle is not in the processor's caches: the memory of a batch of clients is requested together,
    /// and has arrived by the time that each is served.
    pub(super) fn flush_clients(&self) {
        let mut batch: [Option<(ConnId, Rc<Client>)>; limits::FLUSH_BATCH] = [const { None }; _];
        loop {
            let count = self.collect_ready(&mut batch);
            if count == 0 {
                break;
            }
            for entry in &mut batch[..count] {
                // A congested client is not polled again here: its transport reports when it is drained.
                entry.take_if(|(_, client)| client.is_congested());
            }
            for (id, client) in batch[..count].iter_mut().filter_map(Option::take) {
                self.flush_client(id, &client);
            }
        }
    }

    /// Fills the batch with clients that have queued pushes. Returns the number of entries that were used.
    fn collect_ready(&self, batch: &mut [Option<(ConnId, Rc<Client>)>]) -> usize {
        let subscribers = &mut *self.0.subscribers.borrow_mut();
        let mut count = 0;
        while count < batch.len()
            && let Some(id) = subscribers.poll_ready()
        {
            batch[count] = self.find_client(id).map(|client| (id, client));
            count += 1;
        }
        count
    }

    /// Sends a connection its queued pushes until its transport is congested.
    pub(crate) fn flush_client(&self, id: ConnId, client: &Client) {
        while !client.is_congested() {
            let frame = self.0.subscribers.borrow_mut().pop_push(id);
            match frame {
                Some(encoded) => client.send_push(encoded),
                None => break,
            }
        }
    }
}
