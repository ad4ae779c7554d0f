//! An application for tests, with given responses.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringmain_engine::Cx;
use ringmain_push::{
    Application, Backend, Namespace, Options, Proxy, ProxyError, ProxyEvent, ProxyRequest, ResponseFuture,
};
use ringmain_web::testing::TestClient;
use ringmain_web::{App, Flow};
use serde_json::Value;

use crate::support::options;

/// The response to a request.
pub(crate) enum Response {
    /// After so many milliseconds.
    After(u64, Value),
    Bytes(Vec<u8>),
    Fails,
    Never,
}

pub(crate) type Answers = dyn Fn(ProxyEvent, &Value) -> Response + Send + Sync;

/// A request as received.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReceivedRequest {
    pub(crate) event: ProxyEvent,
    pub(crate) body: Value,
    pub(crate) emulated: BTreeMap<String, String>,
}

/// The received requests, and the number of cancelled ones.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<(Vec<ReceivedRequest>, usize)>>);

impl Log {
    /// Returns the requests since the last call.
    pub(crate) fn take(&self) -> Vec<ReceivedRequest> {
        std::mem::take(&mut self.0.lock().expect("the lock is not poisoned").0)
    }

    /// Returns the only request since the last call.
    #[track_caller]
    pub(crate) fn take_one(&self) -> ReceivedRequest {
        let mut asked = self.take();
        assert_eq!(asked.len(), 1, "{asked:?}");
        asked.remove(0)
    }

    pub(crate) fn cancelled(&self) -> usize {
        self.0.lock().expect("the lock is not poisoned").1
    }
}

struct TestBackend {
    cx: Cx,
    log: Log,
    answers: Arc<Answers>,
}

/// A response that is waited for.
struct PendingResponse(Option<Log>);

impl PendingResponse {
    fn finish(&mut self) {
        self.0 = None;
    }
}

impl Drop for PendingResponse {
    fn drop(&mut self) {
        if let Some(log) = self.0.take() {
            log.0.lock().expect("the lock is not poisoned").1 += 1;
        }
    }
}

impl Application for TestBackend {
    fn send(&self, question: ProxyRequest) -> ResponseFuture {
        let body: Value = serde_json::from_slice(&question.body).expect("JSON");
        let answer = (self.answers)(question.event, &body);
        self.log
            .0
            .lock()
            .expect("the lock is not poisoned")
            .0
            .push(ReceivedRequest {
                event: question.event,
                body,
                emulated: BTreeMap::clone(&question.emulated),
            });
        let (cx, mut waited) = (self.cx.clone(), PendingResponse(Some(self.log.clone())));
        Box::pin(async move {
            let said = match answer {
                Response::After(0, said) => Ok(said.to_string().into()),
                Response::After(after, said) => {
                    cx.sleep(Duration::from_millis(after)).await;
                    Ok(said.to_string().into())
                }
                Response::Bytes(bytes) => Ok(bytes),
                Response::Fails => Err(ProxyError("it is not there".to_owned())),
                Response::Never => std::future::pending().await,
            };
            waited.finish();
            said
        })
    }
}

/// Returns options with all events, and with the namespaces `proxied` and `kept`, of which the latter has retention.
pub(crate) fn proxied_options() -> Options {
    let mut options = options();
    let (listens, kept) = (Namespace::default(), options.namespaces["kept"]);
    let all = |namespace| Namespace {
        subscribe_proxy: true,
        publish_proxy: true,
        sub_refresh_proxy: true,
        ..namespace
    };
    options.namespaces.insert("proxied".to_owned(), all(listens));
    options.namespaces.insert("kept".to_owned(), all(kept));
    options.anonymous = false;
    options.proxy = Proxy {
        events: ProxyEvent::ALL
            .map(|event| (event, Duration::from_secs(1)))
            .into(),
        ..Proxy::default()
    };
    options
}

/// Serves clients with this application.
pub(crate) fn serve_proxied(
    options: Options,
    answers: impl Fn(ProxyEvent, &Value) -> Response + Send + Sync + 'static,
) -> (TestClient, Log) {
    let (log, answers): (_, Arc<Answers>) = (Log::default(), Arc::new(answers));
    let told = log.clone();
    let app = App::new()
        .get("/now", |request, reply| {
            reply.text(request.cx().wall().as_secs().to_string())
        })
        .before(move |request, _| {
            request.extend(Backend(Rc::new(TestBackend {
                cx: request.cx().clone(),
                log: told.clone(),
                answers: Arc::clone(&answers),
            })));
            Ok(Flow::Continue)
        });
    let client = TestClient::new(ringmain_push::serve(app, options)).expect("an application");
    (client, log)
}
