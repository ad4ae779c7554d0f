//! What waits for clients goes to them.

use std::rc::Rc;

use ringmain_hub::subscribers::ConnId;

use crate::client::Seat;
use crate::limits;
use crate::worker::Desk;

impl Desk {
    /// Clients that little happens to are not in the processor's caches: what is needed of each is asked for together with what is
    /// needed of the next ones, and then has come when it is its turn.
    pub(crate) fn send_what_waits(&self) {
        let mut together: [Option<(ConnId, Rc<Seat>)>; limits::SENT_TOGETHER] = [const { None }; _];
        loop {
            let count = self.gather(&mut together);
            if count == 0 {
                break;
            }
            for place in &mut together[..count] {
                // Who is full is not looked at again here, but says when it is not.
                place.take_if(|(_, seat)| seat.is_full());
            }
            for (id, seat) in together[..count].iter_mut().filter_map(Option::take) {
                self.send(id, &seat);
            }
        }
    }

    /// Puts clients that something waits for into the places, and says how many places it has used.
    fn gather(&self, places: &mut [Option<(ConnId, Rc<Seat>)>]) -> usize {
        let local = &mut *self.local.borrow_mut();
        let mut count = 0;
        while count < places.len()
            && let Some(id) = local.poll_ready()
        {
            places[count] = self.find(id).map(|seat| (id, seat));
            count += 1;
        }
        count
    }

    /// Sends a connection what waits for it, as far as it takes that.
    pub(crate) fn send(&self, id: ConnId, seat: &Seat) {
        while !seat.is_full() {
            let frame = self.local.borrow_mut().pop_push(id);
            match frame {
                Some(written) => seat.push(written),
                None => break,
            }
        }
    }
}
