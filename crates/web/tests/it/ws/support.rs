//! An application that echoes and notes how its sockets end. Knows no single case.

use std::sync::{Arc, Mutex};

use ringmain_web::testing::TestClient;
use ringmain_web::ws::{CloseCause, CloseCode, Closed, Message};
use ringmain_web::{App, Error, Limits, Request, Result, Socket, Ws, WsOptions};

/// The ends of sockets, in order: code, reason, cause.
#[derive(Clone, Default)]
pub(crate) struct Ends(Arc<Mutex<Vec<End>>>);

type End = (u16, String, CloseCause);

/// Sends every message back. Some texts are orders.
pub(crate) struct Echo {
    ends: Ends,
    /// Says so when the client is slow no longer.
    tells: bool,
}

impl Echo {
    pub(crate) fn open(request: &Request<'_>) -> Result<Echo> {
        Ok(Echo {
            ends: request.state::<Ends>()?.clone(),
            tells: false,
        })
    }
}

impl Socket for Echo {
    fn message(&mut self, ws: &Ws, message: Message<'_>) -> Result {
        match message {
            Message::Text("close") => {
                let code = CloseCode::new(4000).expect("a code of applications");
                assert!(ws.close(code, "as was asked"));
                assert!(!ws.send_text("nothing follows"));
            }
            Message::Text("fail") => return Err(Error::bad_request("as was asked")),
            Message::Text("break") => return Err(Error::internal("as was asked")),
            Message::Text("panic") => panic!("planned"),
            Message::Text("tell me") => self.tells = true,
            // More than the engine is handed at once, and small ones behind it.
            Message::Text("burst") => {
                for length in [400_000, 3, 300_000, 0, 500_000, 5] {
                    assert!(ws.send_binary(vec![length as u8; length]));
                }
                ws.close(CloseCode::NORMAL, "");
            }
            // As much as fits.
            Message::Text("much") => while ws.send_binary([7; 10_000]) {},
            other => assert!(ws.send(other) || !ws.is_open()),
        }
        Ok(())
    }

    fn drained(&mut self, ws: &Ws) -> Result {
        if self.tells {
            ws.send_text("drained");
        }
        Ok(())
    }

    fn closed(&mut self, closed: &Closed<'_>) {
        let end = (closed.code, closed.reason.to_owned(), closed.cause);
        self.ends.0.lock().unwrap().push(end);
    }
}

/// A client of the echo with these limits, and what its sockets end with.
pub(crate) fn echo_with(limits: Limits, options: &WsOptions) -> (TestClient, Ends) {
    let ends = Ends::default();
    let app = App::new()
        .limits(limits)
        .state(ends.clone())
        .get("/", |_, reply| reply.text("alive"))
        .ws_with("/echo", options, Echo::open);
    (TestClient::new(app).unwrap(), ends)
}

pub(crate) fn echo() -> (TestClient, Ends) {
    echo_with(Limits::default(), &WsOptions::new())
}

impl Ends {
    /// The one end so far.
    #[track_caller]
    pub(crate) fn only(&self) -> End {
        let ends = self.0.lock().unwrap();
        assert_eq!(ends.len(), 1, "{ends:?}");
        ends[0].clone()
    }

    /// Returns the number of sockets that have ended.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}
