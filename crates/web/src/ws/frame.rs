//! A message prepared once, to be sent to many.

use bytes::Bytes;
use ringmain_wire::ws::{Deflater, Deflation, Message, Window, encode_shared};

/// A message encoded once for any number of sockets, which share its bytes: plain, and perhaps deflated for those that
/// agreed on that without a context of their own. A clone costs a count.
#[derive(Clone, Debug)]
pub struct WsFrame {
    plain: Bytes,
    deflated: Option<(Bytes, Window)>,
}

impl WsFrame {
    /// Encodes it plain.
    #[must_use]
    pub fn new(message: Message<'_>) -> WsFrame {
        let mut out = Vec::new();
        encode_shared(&mut out, message, None);
        WsFrame {
            plain: out.into(),
            deflated: None,
        }
    }

    /// Encodes it plain and deflated, by a deflater that may serve again for the next one. A message that does not become
    /// smaller is kept plain alone.
    #[must_use]
    pub fn deflated(message: Message<'_>, deflater: &mut Deflater) -> WsFrame {
        let mut frame = WsFrame::new(message);
        let mut out = Vec::new();
        encode_shared(&mut out, message, Some(deflater));
        if out.len() < frame.plain.len() {
            frame.deflated = Some((out.into(), deflater.window()));
        }
        frame
    }

    /// Of bytes that are one frame of a server already, by [`encode_shared`](ringmain_wire::ws::encode_shared) for instance: they are
    /// sent as they are.
    #[must_use]
    pub const fn encoded(plain: Bytes) -> WsFrame {
        WsFrame {
            plain,
            deflated: None,
        }
    }

    /// Bytes on the wire, plain.
    #[must_use]
    pub fn plain_bytes(&self) -> usize {
        self.plain.len()
    }

    /// The variant for a socket that agreed on this.
    pub(super) fn variant(&self, deflation: Option<&Deflation>) -> &Bytes {
        match (&self.deflated, deflation) {
            (Some((bytes, window)), Some(deflation))
                if !deflation.own_context && *window <= deflation.own_window =>
            {
                bytes
            }
            _ => &self.plain,
        }
    }
}
