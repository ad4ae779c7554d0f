//! State shared by all sockets of a worker: limits, and memory lent to incomplete messages.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use ringmain_engine::Cx;
use ringmain_wire::ws::{self, Decoder, Deflater, Inflater, Window};

use super::session::ActiveDecoder;
use crate::limits::{self, WsLimits};
use crate::stats::WorkerStats;

/// See the module.
pub(crate) struct WsWorkerState {
    pub(super) cx: Cx,
    pub(super) stats: Arc<WorkerStats>,
    pub(super) limits: WsLimits,
    /// The minimum rate in bytes per second at which a client must take sent bytes.
    pub(super) rate_bytes: u32,
    out: RefCell<Vec<u8>>,
    /// Deflaters for messages without context takeover, by the exponent of the window.
    deflaters: RefCell<[Option<Box<Deflater>>; 16]>,
    #[expect(clippy::vec_box, reason = "they move between here and sockets by pointer")]
    inflaters: RefCell<Vec<Box<Inflater>>>,
    buffers: RefCell<Vec<Vec<u8>>>,
    #[expect(clippy::vec_box, reason = "they move between here and sockets by pointer")]
    busy: RefCell<Vec<Box<ActiveDecoder>>>,
    /// Bytes of incomplete messages.
    assembling: Cell<usize>,
    /// Sockets with contexts of their own.
    contexts: Cell<u32>,
}

impl WsWorkerState {
    pub(crate) fn new(cx: Cx, stats: Arc<WorkerStats>, limits: WsLimits, rate_bytes: u32) -> WsWorkerState {
        WsWorkerState {
            cx,
            stats,
            limits,
            rate_bytes,
            out: RefCell::default(),
            deflaters: RefCell::default(),
            inflaters: RefCell::default(),
            buffers: RefCell::default(),
            busy: RefCell::default(),
            assembling: Cell::new(0),
            contexts: Cell::new(0),
        }
    }

    /// Takes the worker's buffer for encoded frames.
    pub(super) fn acquire_out(&self) -> Vec<u8> {
        std::mem::take(&mut *self.out.borrow_mut())
    }

    pub(super) fn release_out(&self, mut out: Vec<u8>) {
        out.clear();
        out.shrink_to(limits::SCRATCH_BYTES);
        *self.out.borrow_mut() = out;
    }

    /// Lends a deflater without context takeover.
    pub(super) fn with_deflater<T>(&self, window: Window, call: impl FnOnce(&mut Deflater) -> T) -> T {
        let mut deflaters = self.deflaters.borrow_mut();
        let pooled = &mut deflaters[usize::from(window.bits())];
        let deflater = pooled.get_or_insert_with(|| Box::new(Deflater::new(window, limits::DEFLATE_LEVEL)));
        call(deflater)
    }

    pub(super) fn acquire_inflater(&self) -> Box<Inflater> {
        let idle = self.inflaters.borrow_mut().pop();
        idle.unwrap_or_else(|| Box::new(Inflater::new(limits::INFLATED_CHUNK_BYTES)))
    }

    pub(super) fn release_inflater(&self, inflater: Box<Inflater>) {
        let mut idle = self.inflaters.borrow_mut();
        if idle.len() < limits::IDLE_INFLATERS {
            idle.push(inflater);
        }
    }

    pub(crate) fn acquire_buffer(&self) -> Vec<u8> {
        self.buffers.borrow_mut().pop().unwrap_or_default()
    }

    pub(crate) fn release_buffer(&self, mut buffer: Vec<u8>) {
        let mut idle = self.buffers.borrow_mut();
        if idle.len() < limits::IDLE_AGGREGATORS {
            buffer.clear();
            buffer.shrink_to(limits::SCRATCH_BYTES);
            idle.push(buffer);
        }
    }

    /// Returns the limits that the codec applies to a peer.
    pub(super) fn frame_limits(&self) -> ws::Limits {
        ws::Limits {
            frame_bytes: self.limits.frame_bytes,
            message_bytes: self.limits.message_bytes,
            control_frames: self.limits.control_frames,
        }
    }

    /// Takes the state that a socket needs while it is active.
    pub(super) fn acquire_decoder(&self, decoder: Decoder) -> Box<ActiveDecoder> {
        let Some(mut idle) = self.busy.borrow_mut().pop() else {
            return Box::new(ActiveDecoder::new(decoder));
        };
        *idle = ActiveDecoder::new(decoder);
        idle
    }

    pub(super) fn release_decoder(&self, busy: Box<ActiveDecoder>) {
        let mut idle = self.busy.borrow_mut();
        if idle.len() < limits::IDLE_AGGREGATORS {
            idle.push(busy);
        }
    }

    /// Reserves memory for an incomplete message; `false`: the limit is reached.
    pub(super) fn reserve(&self, bytes: usize) -> bool {
        let all = self.assembling.get() + bytes;
        let has_capacity = all <= self.limits.assembly_bytes;
        if has_capacity {
            self.assembling.set(all);
        }
        has_capacity
    }

    pub(super) fn release(&self, bytes: usize) {
        self.assembling.set(self.assembling.get() - bytes);
    }

    /// Returns true if one more socket may have contexts of its own.
    pub(super) fn has_free_context(&self) -> bool {
        self.contexts.get() < self.limits.contexts
    }

    pub(super) fn acquire_context(&self) {
        self.contexts.set(self.contexts.get() + 1);
    }

    pub(super) fn release_context(&self) {
        self.contexts.set(self.contexts.get() - 1);
    }
}
