//! The compressors of one worker, which calls use in turn: no use waits.

use prost::Message;
use ringmain_wire::grpc::{Deflater, Encoding, Inflater, PeerFault, Slot};

use super::status::Status;
use crate::limits;

/// See the module.
#[derive(Debug)]
pub(crate) struct Compressor {
    inflater: Inflater,
    deflater: Deflater,
    scratch: Vec<u8>,
}

impl Compressor {
    pub(crate) const fn new() -> Compressor {
        Compressor {
            inflater: Inflater::new(),
            deflater: Deflater::new(limits::DEFLATE_LEVEL),
            scratch: Vec::new(),
        }
    }

    /// Appends a message with its prefix, compressed with `encoding` if it is long enough to shrink.
    pub(super) fn encode(
        &mut self,
        message: &impl Message,
        encoding: Encoding,
        out: &mut Vec<u8>,
    ) -> Result<(), Status> {
        let compressed = encoding != Encoding::Identity && message.encoded_len() >= limits::MIN_DEFLATE_BYTES;
        let slot = Slot::open(out);
        if compressed {
            self.scratch.clear();
            write(message, &mut self.scratch);
            self.deflater.deflate(encoding, &self.scratch, out);
            self.scratch.shrink_to(limits::SCRATCH_BYTES);
        } else {
            write(message, out);
        }
        slot.close(out, compressed).map_err(Status::from)
    }

    /// Inflates a compressed message and passes it to the callback.
    pub(super) fn inflate<T>(
        &mut self,
        encoding: Encoding,
        message: &[u8],
        limit: usize,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, PeerFault> {
        self.scratch.clear();
        self.inflater
            .inflate(encoding, message, limit, &mut self.scratch)?;
        let result = read(&self.scratch);
        self.scratch.shrink_to(limits::SCRATCH_BYTES);
        Ok(result)
    }
}

fn write(message: &impl Message, out: &mut Vec<u8>) {
    message.encode(out).expect("a vector has room for what there is");
}
