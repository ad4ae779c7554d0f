//! Pushes as clients get them: each written once for every variant that somebody listens by, in memory that goes round.

use std::sync::Arc;

use bytes::Bytes;

use crate::limits::{POOLED_BYTES, SCRATCH_BYTES};
use crate::mail::{Course, Frames};
use crate::pool::{Buffers, Shelf};
use crate::protocol::{Push, Reply, Variant};

/// See the module; one home's.
#[derive(Debug, Default)]
pub(super) struct Writer {
    frames: Shelf<Frames>,
    buffers: Buffers,
    /// What is written, before its length is known.
    scratch: Scratch,
    /// Pushes so far, each variant counted.
    pub(super) written: u64,
}

#[derive(Debug, Default)]
struct Scratch {
    channel: String,
    message: Vec<u8>,
    frame: Vec<u8>,
}

impl Writer {
    /// A push of a channel, for so many subscribers by each variant. A state has memory of its own: workers keep the last, and
    /// what goes round is not to be kept.
    pub(super) fn write(
        &mut self,
        channel: &str,
        heard: &[u32; Variant::ALL.len()],
        push: Push,
        course: Course,
    ) -> Arc<Frames> {
        let Writer {
            frames,
            buffers,
            scratch,
            written,
        } = self;
        let data_bytes = push.pub_.as_ref().map_or(0, |publication| publication.data.len());
        let goes_round = data_bytes <= POOLED_BYTES && !matches!(course, Course::Every(_));
        scratch.channel.clear();
        scratch.channel.push_str(channel);
        let push = Some(Push {
            channel: std::mem::take(&mut scratch.channel),
            ..push
        });
        let mut reply = Reply {
            push,
            ..Reply::default()
        };
        let mut fill = |frames: &mut Frames| {
            // First: what was there may be in the places that are used now.
            *frames = Frames::default();
            let is_heard = |variant: &Variant| heard[variant.number()] > 0;
            for variant in Variant::ALL.into_iter().filter(is_heard) {
                *written += 1;
                // What is not JSON has no frame in JSON: who listens by it is told there.
                if let Ok(bytes) = variant.write_in(&reply, &mut scratch.message, &mut scratch.frame) {
                    let copied = match goes_round {
                        true => buffers.copy(bytes),
                        false => Bytes::copy_from_slice(bytes),
                    };
                    frames.put(variant, copied);
                }
            }
        };
        let made = if goes_round {
            frames.make(fill)
        } else {
            let mut own = Frames::default();
            fill(&mut own);
            Arc::new(own)
        };
        scratch.channel = reply.push.take().unwrap_or_default().channel;
        scratch.message.shrink_to(SCRATCH_BYTES);
        scratch.frame.shrink_to(SCRATCH_BYTES);
        made
    }

    /// To be called now and then: what was not used since the last time is let go of.
    pub(super) fn tidy(&mut self) {
        // They hold what is in the buffers.
        self.frames.tidy();
        self.buffers.tidy();
    }
}
