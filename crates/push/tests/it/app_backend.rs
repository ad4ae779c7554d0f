//! An application that is asked about clients, as a test has it answer.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringmain_engine::Cx;
use ringmain_push::{
    Application, Backend, Event, Namespace, Options, Proxy, ProxyError, ProxyRequest, ResponseFuture,
};
use ringmain_web::testing::TestClient;
use ringmain_web::{App, Flow};
use serde_json::Value;

use crate::support::options;

/// What it does when it is asked.
pub(crate) enum Answer {
    /// So many milliseconds later.
    In(u64, Value),
    Bytes(Vec<u8>),
    Fails,
    Never,
}

pub(crate) type Answers = dyn Fn(Event, &Value) -> Answer + Send + Sync;

/// One question.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    pub(crate) event: Event,
    pub(crate) body: Value,
    pub(crate) emulated: BTreeMap<String, String>,
}

/// What it was asked, and how many of its answers were not waited for.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<(Vec<Asked>, usize)>>);

impl Log {
    /// Those since the last call.
    pub(crate) fn take(&self) -> Vec<Asked> {
        std::mem::take(&mut self.0.lock().expect("nobody has it").0)
    }

    /// The only one since the last call.
    #[track_caller]
    pub(crate) fn only(&self) -> Asked {
        let mut asked = self.take();
        assert_eq!(asked.len(), 1, "{asked:?}");
        asked.remove(0)
    }

    pub(crate) fn forgotten(&self) -> usize {
        self.0.lock().expect("nobody has it").1
    }
}

struct Tested {
    cx: Cx,
    log: Log,
    answers: Arc<Answers>,
}

/// An answer that is waited for.
struct Waited(Option<Log>);

impl Waited {
    fn over(&mut self) {
        self.0 = None;
    }
}

impl Drop for Waited {
    fn drop(&mut self) {
        if let Some(log) = self.0.take() {
            log.0.lock().expect("nobody has it").1 += 1;
        }
    }
}

impl Application for Tested {
    fn send(&self, question: ProxyRequest) -> ResponseFuture {
        let body: Value = serde_json::from_slice(&question.body).expect("JSON");
        let answer = (self.answers)(question.event, &body);
        self.log.0.lock().expect("nobody has it").0.push(Asked {
            event: question.event,
            body,
            emulated: BTreeMap::clone(&question.emulated),
        });
        let (cx, mut waited) = (self.cx.clone(), Waited(Some(self.log.clone())));
        Box::pin(async move {
            let said = match answer {
                Answer::In(0, said) => Ok(said.to_string().into()),
                Answer::In(after, said) => {
                    cx.sleep(Duration::from_millis(after)).await;
                    Ok(said.to_string().into())
                }
                Answer::Bytes(bytes) => Ok(bytes),
                Answer::Fails => Err(ProxyError("it is not there".to_owned())),
                Answer::Never => std::future::pending().await,
            };
            waited.over();
            said
        })
    }
}

/// Asked about everything, and by the namespaces `asked` and `kept`, of which the latter keeps something.
pub(crate) fn asking() -> Options {
    let mut options = options();
    let (listens, kept) = (Namespace::default(), options.namespaces["kept"]);
    let all = |namespace| Namespace {
        subscribe_proxy: true,
        publish_proxy: true,
        sub_refresh_proxy: true,
        ..namespace
    };
    options.namespaces.insert("asked".to_owned(), all(listens));
    options.namespaces.insert("kept".to_owned(), all(kept));
    options.anonymous = false;
    options.proxy = Proxy {
        events: Event::ALL.map(|event| (event, Duration::from_secs(1))).into(),
        ..Proxy::default()
    };
    options
}

/// Serves clients whom the application answers so.
pub(crate) fn serve_asked(
    options: Options,
    answers: impl Fn(Event, &Value) -> Answer + Send + Sync + 'static,
) -> (TestClient, Log) {
    let (log, answers): (_, Arc<Answers>) = (Log::default(), Arc::new(answers));
    let told = log.clone();
    let app = App::new()
        .get("/now", |request, reply| {
            reply.text(request.cx().wall().as_secs().to_string())
        })
        .before(move |request, _| {
            request.extend(Backend(Rc::new(Tested {
                cx: request.cx().clone(),
                log: told.clone(),
                answers: Arc::clone(&answers),
            })));
            Ok(Flow::Continue)
        });
    let client = TestClient::new(ringmain_push::serve(app, options)).expect("an application");
    (client, log)
}
