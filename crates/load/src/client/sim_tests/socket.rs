//! The server's side of a WebSocket, for the simulated server: bytes in, bytes out.

use ringmain_wire::h1::{
    FieldTable, HeadScanner, Limits as HeadLimits, Parsed, ResponseEncoder, parse_request,
};
use ringmain_wire::ws::{
    Decoder, Deflater, Deflation, Encoder, Event, Inflater, Kind, Limits, Mask, Message, Role, ServerWish,
    Step, Window, accept,
};

#[derive(Debug)]
pub(super) struct Socket {
    decoder: Decoder,
    encoder: Encoder,
    inflater: Inflater,
    deflater: Option<Deflater>,
    message: Vec<u8>,
}

/// What a client has said, and what a good server answers.
#[derive(Debug)]
pub(super) enum Said {
    Message(Vec<u8>),
    Close(Vec<u8>),
}

impl Socket {
    /// From a client's handshake; with the answer to it.
    pub(super) fn open(head: &[u8]) -> (Socket, Vec<u8>) {
        let mut table = FieldTable::new(&HeadLimits::INTERNET);
        let parsed = parse_request(head, &HeadLimits::INTERNET, &mut HeadScanner::new(), &mut table);
        let Ok(Parsed::Complete { head, .. }) = parsed else {
            panic!("{}", head.escape_ascii());
        };
        let wish = ServerWish {
            deflation: Some(Deflation::CONTEXT),
            ..ServerWish::default()
        };
        let acceptance = accept(&head, &wish).expect("a handshake");
        let mut out = Vec::new();
        let mut response = ResponseEncoder::new(&mut out, 101, head.exchange()).expect("a status");
        acceptance.write_fields(&mut response).expect("fields");
        response.switch(b"websocket").expect("a switch");
        let deflation = acceptance.deflation();
        let socket = Socket {
            decoder: Decoder::new(Role::Server, &Limits::INTERNET, deflation),
            encoder: Encoder::new(Role::Server, deflation, 1_000),
            inflater: Inflater::new(100),
            deflater: deflation.map(|_| Deflater::new(Window::MAX, 1)),
            message: Vec::new(),
        };
        (socket, out)
    }

    /// Takes what is whole of `kept`.
    pub(super) fn read(&mut self, kept: &mut Vec<u8>) -> Vec<Said> {
        let mut all = Vec::new();
        // Its clock is of no interest here.
        self.decoder.renew_budget();
        loop {
            let decoded = self.decoder.decode(kept, Some(&mut self.inflater));
            let Step { event, consumed } = decoded.expect("a client that keeps the rules");
            let over = matches!(event, Event::NeedMore);
            match event {
                Event::NeedMore | Event::Pong(_) => {}
                Event::Piece(piece) => {
                    self.message.extend_from_slice(piece.data);
                    if piece.last {
                        let data = std::mem::take(&mut self.message);
                        let message = match piece.kind {
                            Kind::Text => {
                                Message::Text(str::from_utf8(&data).expect("the decoder has looked"))
                            }
                            Kind::Binary => Message::Binary(&data),
                        };
                        let mut out = Vec::new();
                        match &mut self.deflater {
                            Some(deflater) => self.encoder.deflated(&mut out, message, deflater, Mask::None),
                            None => self.encoder.message(&mut out, message, Mask::None),
                        }
                        .expect("an open connection");
                        all.push(Said::Message(out));
                    }
                }
                Event::Close(_) => {
                    let mut out = Vec::new();
                    self.encoder.close_received();
                    self.encoder
                        .close(&mut out, None, Mask::None)
                        .expect("an open connection");
                    all.push(Said::Close(out));
                }
                other => panic!("{other:?}"),
            }
            kept.drain(..consumed);
            if over {
                return all;
            }
        }
    }
}
