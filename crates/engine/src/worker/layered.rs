//! Connections with a layer between the wire and their owner: received bytes become the owner's, the owner's are encrypted.
//!
//! ```text
//! received ──► wire (only while a part is missing) ──► Layer::receive ──► handler, or unread
//! out-queue ◄── Layer::send ◄── pending (only before it is established) ◄── Conn::write
//! ```
//!
//! Knows no protocol; `deliver.rs` calls this with received bytes and `core.rs` with written ones.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Worker;
use super::core::{Core, Told, WriteError};
use super::cx::Conn;
use super::handler::Handler;
use super::record::{Connection, Phase, Reason, Record};
use super::shared::Counters;
use crate::backend::Slot;
use crate::layer::{Layer, LayerEvent};
use crate::limits;

/// The layer of a connection and what waits for it.
pub(crate) struct Layered {
    pub(crate) layer: Box<dyn Layer>,
    /// Received bytes that are part of something, or that wait for a costly step.
    pub(crate) wire: Vec<u8>,
    /// What the owner wrote before it was established.
    pub(crate) pending: Vec<u8>,
    pub(crate) established: bool,
    /// Bytes that came before the layer was put in place have not been looked at.
    pub(crate) fresh: bool,
    /// The peer has announced its end, as against a bare FIN.
    pub(crate) ended: bool,
    /// Our end is announced.
    pub(crate) said_end: bool,
    /// Nothing more is to be expected of it.
    pub(crate) failed: bool,
    /// In the queue for a costly step.
    pub(crate) waits: bool,
}

impl Connection {
    /// Bytes written and not handed to the kernel, those included that are not encrypted yet.
    pub(crate) fn unsent(&self) -> usize {
        self.output.len() + self.layer.as_ref().map_or(0, |layered| layered.pending.len())
    }

    /// Whether received bytes wait for a costly step of the layer.
    pub(crate) fn layer_waits(&self) -> bool {
        self.layer.as_ref().is_some_and(|layered| layered.waits)
    }

    /// Whether a layer was just put in place and has not seen what had come before.
    pub(crate) fn has_fresh_layer(&self) -> bool {
        self.layer.as_ref().is_some_and(|layered| layered.fresh)
    }
}

impl Core {
    /// Puts a layer in place. Nothing happens on a connection that has one, or that is ending.
    pub(crate) fn secure(&mut self, slot: Slot, mut layer: Box<dyn Layer>) {
        let Some(Record::Connection(connection)) = self.records.get_mut(slot) else {
            return;
        };
        if !connection.writable() || connection.layer.is_some() {
            return;
        }
        layer.begin(&mut self.wire_out);
        connection.layer = Some(Box::new(Layered {
            layer,
            wire: Vec::new(),
            pending: Vec::new(),
            established: false,
            fresh: true,
            ended: false,
            said_end: false,
            failed: false,
            waits: false,
        }));
        if !connection.unread.is_empty() {
            self.told.push_back(Told::Unread(slot));
        }
        self.put_on_wire(slot);
    }

    /// As [`Core::write`] on a connection with a layer.
    pub(crate) fn write_layered(&mut self, slot: Slot, bytes: &[u8]) -> Result<(), WriteError> {
        let Some(Record::Connection(connection)) = self.records.get_mut(slot) else {
            return Err(WriteError::Closed);
        };
        if connection.unsent() + bytes.len() > limits::WRITE_LIMIT {
            self.fail(slot, Reason::WriteLimit);
            return Err(WriteError::Full);
        }
        let layered = connection.layer.as_mut().expect("the caller has seen it");
        if !layered.established {
            layered.pending.extend_from_slice(bytes);
            return Ok(());
        }
        if layered.layer.send(bytes, &mut self.wire_out).is_err() {
            self.fail_layer(slot);
            return Err(WriteError::Closed);
        }
        self.put_on_wire(slot);
        Ok(())
    }

    /// Queues what a layer wants sent.
    fn put_on_wire(&mut self, slot: Slot) {
        if self.wire_out.is_empty() {
            return;
        }
        if let Some(Record::Connection(connection)) = self.records.get_mut(slot) {
            connection.output.write(&self.wire_out, &mut self.pool);
            self.wrote(slot);
        }
        self.wire_out.clear();
        self.wire_out.shrink_to(limits::WIRE_SCRATCH_BYTES);
    }

    /// Announces our end to the peer's layer, once.
    pub(crate) fn end_layer(&mut self, slot: Slot) {
        if let Some(Record::Connection(connection)) = self.records.get_mut(slot)
            && let Some(layered) = &mut connection.layer
            && layered.established
            && !layered.failed
            && !std::mem::replace(&mut layered.said_end, true)
        {
            layered.layer.end(&mut self.wire_out);
            self.put_on_wire(slot);
        }
    }

    /// Lets the last bytes go (an alert) and ends the connection.
    fn fail_layer(&mut self, slot: Slot) {
        self.put_on_wire(slot);
        if let Some(connection) = self.connection(slot)
            && let Some(layered) = &mut connection.layer
        {
            layered.failed = true;
        }
        self.close(slot, Reason::Layer);
    }

    /// Lets the last bytes go, announces the end, and drops the bytes that still arrive. A stream is read by its owner, and ends.
    fn refuse_layer(&mut self, slot: Slot) {
        self.put_on_wire(slot);
        let Some(connection) = self.connection(slot) else {
            return;
        };
        if connection.stream.is_some() {
            return self.fail_layer(slot);
        }
        if let Some(layered) = &mut connection.layer {
            layered.failed = true;
        }
        self.shutdown(slot);
        self.set_deadline(slot, Some(self.flush));
    }

    /// What was written before may go now.
    fn establish(&mut self, slot: Slot) {
        let Some(Record::Connection(connection)) = self.records.get_mut(slot) else {
            return;
        };
        let fin_wanted = connection.flags.fin_wanted;
        let Some(layered) = &mut connection.layer else {
            return;
        };
        layered.established = true;
        let pending = std::mem::take(&mut layered.pending);
        if !pending.is_empty() && layered.layer.send(&pending, &mut self.wire_out).is_err() {
            return self.fail_layer(slot);
        }
        if let Some(stream) = &mut connection.stream {
            let wakers = [stream.reader.take(), stream.writer.take()];
            wakers.into_iter().flatten().for_each(std::task::Waker::wake);
        }
        self.put_on_wire(slot);
        if fin_wanted {
            self.end_layer(slot);
            self.mark_dirty(slot);
        }
    }

    /// The peer's layer has announced its end.
    fn layer_ended(&mut self, slot: Slot) {
        let Some(connection) = self.connection(slot) else {
            return;
        };
        if let Some(layered) = &mut connection.layer {
            layered.ended = true;
        }
        if !std::mem::replace(&mut connection.flags.eof, true) {
            self.tell_eof_in_order(slot);
        }
        self.update_recv(slot);
    }

    /// One step of the layer on `bytes`; `None` when none may be done now or ever.
    fn layer_step(&mut self, slot: Slot, bytes: &mut [u8]) -> Option<(usize, LayerEvent)> {
        let Some(Record::Connection(connection)) = self.records.get_mut(slot) else {
            return None;
        };
        let open = connection.phase == Phase::Open;
        let layered = connection
            .layer
            .as_mut()
            .filter(|layered| open && !layered.failed)?;
        if layered.ended {
            // What follows the announced end belongs to nobody.
            return Some((bytes.len(), LayerEvent::NeedMore));
        }
        if layered.layer.is_costly() {
            if self.costly_left == 0 {
                if !std::mem::replace(&mut layered.waits, true) {
                    self.costly.push_back(slot);
                }
                return None;
            }
            self.costly_left -= 1;
        }
        let step = catch_unwind(AssertUnwindSafe(|| {
            layered.layer.receive(bytes, &mut self.wire_out)
        }));
        let Ok(step) = step else {
            // As a handler's: what it had at hand ends, and nothing else.
            layered.failed = true;
            Counters::add(&self.counters().panics, 1);
            log::error!("a layer panicked; its connection ends, the worker goes on");
            return Some((bytes.len(), LayerEvent::Failed));
        };
        self.put_on_wire(slot);
        Some((step.consumed.min(bytes.len()), step.event))
    }

    /// Keeps what a layer has not taken.
    fn keep_wire(&mut self, slot: Slot, rest: &[u8]) {
        let Some(Record::Connection(connection)) = self.records.get_mut(slot) else {
            return;
        };
        let open = connection.phase == Phase::Open;
        if let Some(layered) = connection
            .layer
            .as_mut()
            .filter(|layered| open && !layered.failed)
            && !rest.is_empty()
        {
            if layered.wire.capacity() == 0 {
                layered.wire = self.pool.take(rest.len());
            }
            layered.wire.extend_from_slice(rest);
        }
    }

    /// A layer that was put in place while the handler looked at bytes gets those that the handler left.
    pub(crate) fn tell_fresh_layer(&mut self, slot: Slot) {
        if self.connection(slot).is_some_and(|c| c.has_fresh_layer()) {
            self.told.push_back(Told::Unread(slot));
        }
    }

    /// Gives back what a layer's bytes lay in.
    pub(crate) fn clear_layer(&mut self, slot: Slot) {
        if let Some(Record::Connection(connection)) = self.records.get_mut(slot)
            && let Some(layered) = &mut connection.layer
        {
            self.pool.put(std::mem::take(&mut layered.wire));
            layered.pending = Vec::new();
        }
    }
}

impl<H: Handler> Worker<H> {
    /// Received bytes of a connection with a layer.
    pub(super) fn received_layered(&mut self, slot: Slot, bytes: &mut [u8]) {
        let mut core = self.cx.core();
        let Some(layered) = core.connection(slot).and_then(|c| c.layer.as_mut()) else {
            return;
        };
        if layered.waits {
            return core.keep_wire(slot, bytes);
        }
        if layered.wire.is_empty() && !layered.fresh {
            drop(core);
            let consumed = self.through_layer(slot, bytes);
            return self.cx.core().keep_wire(slot, &bytes[consumed..]);
        }
        core.keep_wire(slot, bytes);
        drop(core);
        self.look_at_wire(slot);
    }

    /// Shows the kept bytes to the layer, those first that had come before it was put in place.
    pub(super) fn look_at_wire(&mut self, slot: Slot) {
        let mut core = self.cx.core();
        let Some(connection) = core.connection(slot) else {
            return;
        };
        let Some(layered) = &mut connection.layer else {
            return;
        };
        if std::mem::take(&mut layered.fresh) && !connection.unread.is_empty() {
            let mut before = std::mem::take(&mut connection.unread);
            before.append(&mut layered.wire);
            let empty = std::mem::replace(&mut layered.wire, before);
            core.pool.put(empty);
        }
        let Some(layered) = core.connection(slot).and_then(|c| c.layer.as_mut()) else {
            return;
        };
        let mut wire = std::mem::take(&mut layered.wire);
        drop(core);
        let consumed = self.through_layer(slot, &mut wire);
        let mut core = self.cx.core();
        if consumed == wire.len() {
            core.pool.put(wire);
        } else {
            wire.drain(..consumed);
            match core.connection(slot).and_then(|c| c.layer.as_mut()) {
                Some(layered) => layered.wire = wire,
                None => core.pool.put(wire),
            }
        }
        core.update_recv(slot);
        core.close_if_quiet(slot);
    }

    /// Moves bytes through the layer to the owner; returns how many are done with.
    fn through_layer(&mut self, slot: Slot, bytes: &mut [u8]) -> usize {
        let mut at = 0;
        loop {
            let step = self.cx.core().layer_step(slot, &mut bytes[at..]);
            let Some((consumed, event)) = step else {
                // Nobody wants the bytes of a connection that has ended.
                let waits = self
                    .cx
                    .core()
                    .connection(slot)
                    .is_some_and(|c| c.phase == Phase::Open);
                return if waits { at } else { bytes.len() };
            };
            match event {
                LayerEvent::Plain(range) => {
                    let plain = &mut bytes[at + range.start..at + range.end];
                    self.decrypted(slot, plain);
                }
                LayerEvent::Established => {
                    self.cx.core().establish(slot);
                    self.with_state(slot, |handler, conn, state| handler.secured(conn, state));
                }
                LayerEvent::End => self.cx.core().layer_ended(slot),
                LayerEvent::Failed => {
                    self.with_state(slot, |handler, conn, state| handler.insecure(conn, state));
                    self.cx.core().fail_layer(slot);
                }
                LayerEvent::Refused => {
                    self.with_state(slot, |handler, conn, state| handler.insecure(conn, state));
                    self.cx.core().refuse_layer(slot);
                }
                LayerEvent::Nothing if consumed > 0 => {}
                LayerEvent::Nothing | LayerEvent::NeedMore => return at + consumed,
            }
            at += consumed;
        }
    }

    /// Plain bytes: to the owner, or kept until it asks.
    fn decrypted(&mut self, slot: Slot, plain: &mut [u8]) {
        let mut core = self.cx.core();
        let Some(connection) = core.connection(slot).filter(|c| c.phase == Phase::Open) else {
            return;
        };
        let flags = &connection.flags;
        if flags.streamed || flags.paused || flags.blocked || flags.yielded {
            let Some(receiver) = connection.receiver() else {
                return core.keep_unread(slot, plain);
            };
            drop(core);
            return self.show(slot, &*receiver, plain);
        }
        if !connection.unread.is_empty() {
            core.keep_unread(slot, plain);
            drop(core);
            return self.offer_kept(slot);
        }
        drop(core);
        let consumed = self.offer(slot, plain);
        if consumed < plain.len() {
            let mut core = self.cx.core();
            core.keep_unread(slot, &plain[consumed..]);
            core.end_if_stuck(slot);
        }
    }

    /// Costly steps that had to wait, first in, first out, as many as a turn may do.
    pub(super) fn costly_steps(&mut self) {
        let mut core = self.cx.core();
        core.costly_left = limits::HANDSHAKE_STEPS_PER_TURN;
        let waiting = core.costly.len().min(limits::HANDSHAKE_STEPS_PER_TURN);
        let now = core.now();
        core.ready_at = now;
        drop(core);
        for _ in 0..waiting {
            let mut core = self.cx.core();
            let Some(slot) = core.costly.pop_front() else {
                return;
            };
            if let Some(layered) = core.connection(slot).and_then(|c| c.layer.as_mut()) {
                layered.waits = false;
                drop(core);
                self.look_at_wire(slot);
                let mut core = self.cx.core();
                if core
                    .connection(slot)
                    .is_some_and(|c| c.flags.eof && !c.flags.eof_told)
                {
                    core.tell_eof_in_order(slot);
                }
                drop(core);
                self.deliver_told();
            }
        }
    }
}

impl Conn<'_> {
    /// Puts a layer between the wire and this connection's owner: what is written from now on is encrypted, what was
    /// received and not yet consumed, and all that follows, is decrypted first. What was written before leaves as it is.
    ///
    /// [`Handler::secured`] tells when it stands; what is written until then waits, counted against
    /// [`limits::WRITE_LIMIT`], and is dropped by [`Conn::close`]. No deadline is set for that: a handler sets its own.
    /// Nothing happens on a connection that has a layer already.
    pub fn secure(&self, layer: Box<dyn Layer>) {
        self.cx().core().secure(self.id().0, layer);
    }

    /// Whether a layer is in place.
    #[must_use]
    pub fn has_layer(&self) -> bool {
        self.cx()
            .core()
            .connection(self.id().0)
            .is_some_and(|c| c.layer.is_some())
    }

    /// Shows the layer to `look`, as the type that it is. `None` if there is none of that type. `look` must not call the engine.
    pub fn layer<T: Layer, R>(&self, look: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut core = self.cx().core();
        let layered = core.connection(self.id().0)?.layer.as_mut()?;
        let layer: &mut dyn std::any::Any = &mut *layered.layer;
        layer.downcast_mut().map(look)
    }

    /// Whether the peer's bytes ended without its layer saying so: they may have been cut by somebody else.
    #[must_use]
    pub fn was_cut(&self) -> bool {
        self.cx()
            .core()
            .connection(self.id().0)
            .is_some_and(|c| c.flags.eof && c.layer.as_ref().is_some_and(|layered| !layered.ended))
    }
}
