//! The encoder of pushes: each is encoded once for every variant that has subscribers, in pooled memory.

use std::sync::Arc;

use bytes::Bytes;

use crate::limits::{POOLED_MAX_BYTES, SCRATCH_BYTES};
use crate::mail::{DeliveryMode, EncodedPush, PushSource};
use crate::pool::{ArcPool, BufferPool};
use crate::protocol::{PushMessage, Reply, Variant};

/// The encoder of one shard.
#[derive(Debug, Default)]
pub(super) struct PushWriter {
    encoded: ArcPool<EncodedPush>,
    buffers: BufferPool,
    /// Buffers for encoding, before the length is known.
    scratch: Scratch,
    /// The number of encoded pushes, counting each variant.
    pub(super) encoded_pushes: u64,
}

#[derive(Debug, Default)]
struct Scratch {
    channel: String,
    message: Vec<u8>,
    frame: Vec<u8>,
}

impl PushWriter {
    /// Encodes a push of a channel for the variants that have subscribers. A conflated push gets memory of its own: workers retain the last
    /// one, and pooled memory must not be retained. `source` is part of the result.
    pub(super) fn write(
        &mut self,
        channel: &str,
        subscribers_by_variant: &[u32; Variant::ALL.len()],
        push: PushMessage,
        source: Option<PushSource>,
        mode: DeliveryMode,
    ) -> Arc<EncodedPush> {
        let PushWriter {
            encoded,
            buffers,
            scratch,
            encoded_pushes,
        } = self;
        let data_bytes = push.pub_.as_ref().map_or(0, |publication| publication.data.len());
        let is_pooled = data_bytes <= POOLED_MAX_BYTES && !matches!(mode, DeliveryMode::Conflated(_));
        scratch.channel.clear();
        scratch.channel.push_str(channel);
        let push = Some(PushMessage {
            channel: std::mem::take(&mut scratch.channel),
            ..push
        });
        let mut reply = Reply {
            push,
            ..Reply::default()
        };
        let mut fill = |encoded: &mut EncodedPush| {
            // Cleared first, since the previous frames may own the buffers that are acquired now.
            *encoded = EncodedPush::default();
            encoded.set_source(source.clone());
            let has_subscribers = |variant: &Variant| subscribers_by_variant[variant.number()] > 0;
            for variant in Variant::ALL.into_iter().filter(has_subscribers) {
                *encoded_pushes += 1;
                // Data that is not JSON has no JSON frame. Its subscribers are disconnected at their worker.
                if let Ok(bytes) = variant.write_in(&reply, &mut scratch.message, &mut scratch.frame) {
                    let copied = if is_pooled {
                        buffers.copy(bytes)
                    } else {
                        Bytes::copy_from_slice(bytes)
                    };
                    encoded.set(variant, copied);
                }
            }
        };
        let push = if is_pooled {
            encoded.acquire(fill)
        } else {
            let mut own = EncodedPush::default();
            fill(&mut own);
            Arc::new(own)
        };
        scratch.channel = reply.push.take().unwrap_or_default().channel;
        scratch.message.shrink_to(SCRATCH_BYTES);
        scratch.frame.shrink_to(SCRATCH_BYTES);
        push
    }

    /// Releases pooled memory that was not used since the last call. Called periodically.
    pub(super) fn shrink(&mut self) {
        // The frames hold buffers and must be released first.
        self.encoded.shrink();
        self.buffers.shrink();
    }
}
