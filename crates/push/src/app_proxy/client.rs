//! What asks: of a session whom, and what waits for the answer; of a worker how much.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use ringmain_engine::backend::Time;
use ringmain_engine::{Cx, TaskId};
use ringmain_hub::protocol::{Command, ConnectRequest, Disconnect};
use ringmain_web::Request;

use super::{Application, Backend, Event, Proxy};
use crate::limits;
use crate::worker::Desk;

/// Of a session whose application is asked.
pub(crate) struct Asker {
    pub(super) application: Rc<dyn Application>,
    /// What its client has said in place of headers.
    pub(super) emulated: RefCell<Rc<BTreeMap<String, String>>>,
    /// The application's own, which it is told with each question.
    pub(super) meta: RefCell<Bytes>,
    /// Its client waits to be let in.
    pub(super) connecting: Cell<bool>,
    open: RefCell<Vec<Open>>,
    /// Commands about channels that an answer is waited for.
    held: RefCell<VecDeque<Command>>,
    /// Questions so far.
    numbers: Cell<u64>,
}

/// A question that waits for its answer.
struct Open {
    number: u64,
    task: TaskId,
    channel: Option<Arc<str>>,
}

impl Asker {
    /// For the session that comes of a request; `None`: there is nobody to ask.
    pub(crate) fn of(request: &Request<'_>) -> Option<Box<Asker>> {
        let backend = request.extension::<Backend>().ok()?;
        Some(Box::new(Asker {
            application: Rc::clone(&backend.0),
            emulated: RefCell::default(),
            meta: RefCell::default(),
            connecting: Cell::new(false),
            open: RefCell::default(),
            held: RefCell::default(),
            numbers: Cell::new(0),
        }))
    }

    /// Keeps of what a client says with its connection what the application is told.
    pub(crate) fn hear(&self, proxy: &Proxy, connect: &ConnectRequest) -> Result<(), Disconnect> {
        let is_kept = |name: &str| {
            let mut names = proxy.emulated.iter();
            names.any(|kept| kept.eq_ignore_ascii_case(name))
        };
        let said = connect.headers.iter().filter(|(name, _)| is_kept(name));
        let kept: BTreeMap<String, String> =
            said.map(|(name, value)| (name.clone(), value.clone())).collect();
        let bytes: usize = kept.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > limits::EMULATED_HEADER_BYTES {
            return Err(Disconnect::BAD_REQUEST);
        }
        *self.emulated.borrow_mut() = Rc::new(kept);
        Ok(())
    }

    pub(crate) fn is_connecting(&self) -> bool {
        self.connecting.get()
    }

    /// Whether a command about a channel has to wait for what comes of one before it.
    pub(super) fn holds(&self, channel: &str) -> bool {
        let open = self.open.borrow();
        let mut asked = open.iter().filter_map(|one| one.channel.as_deref());
        asked.any(|one| one == channel)
            || self
                .held
                .borrow()
                .iter()
                .any(|one| channel_of(one) == Some(channel))
    }

    pub(super) fn is_full(&self) -> bool {
        self.open.borrow().len() + self.held.borrow().len() >= limits::QUESTIONS_A_CLIENT
    }

    pub(super) fn hold(&self, command: Command) {
        self.held.borrow_mut().push_back(command);
    }

    /// What was held, to be carried out in its order; some of it may have to be held again.
    pub(super) fn take_held(&self) -> VecDeque<Command> {
        self.held.take()
    }

    pub(super) fn next(&self) -> u64 {
        self.numbers.set(self.numbers.get() + 1);
        self.numbers.get()
    }

    pub(super) fn asks(&self, number: u64, task: TaskId, channel: Option<Arc<str>>) {
        self.open.borrow_mut().push(Open {
            number,
            task,
            channel,
        });
    }

    pub(super) fn answered(&self, number: u64) {
        self.open.borrow_mut().retain(|open| open.number != number);
    }

    /// The client is gone: nothing is waited for.
    pub(crate) fn forget(&self, cx: &Cx) {
        self.held.borrow_mut().clear();
        for open in self.open.take() {
            cx.cancel(open.task);
        }
    }
}

/// The channel that a command is about.
pub(crate) fn channel_of(command: &Command) -> Option<&str> {
    let of = [
        command.subscribe.as_ref().map(|one| &one.channel),
        command.unsubscribe.as_ref().map(|one| &one.channel),
        command.publish.as_ref().map(|one| &one.channel),
        command.presence.as_ref().map(|one| &one.channel),
        command.presence_stats.as_ref().map(|one| &one.channel),
        command.history.as_ref().map(|one| &one.channel),
        command.sub_refresh.as_ref().map(|one| &one.channel),
    ];
    of.into_iter().flatten().next().map(String::as_str)
}

/// Questions of one worker.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    waiting: Cell<u32>,
    /// When it last warned.
    warned: Cell<Option<Time>>,
}

/// One of them waits.
pub(super) struct Waits(Desk);

impl Waits {
    /// `None`: as many as may do already.
    pub(super) fn new(desk: &Desk) -> Option<Waits> {
        let waiting = &desk.crowd.waiting;
        if waiting.get() >= limits::QUESTIONS_A_WORKER {
            return None;
        }
        waiting.set(waiting.get() + 1);
        Some(Waits(desk.clone()))
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        let waiting = &self.0.crowd.waiting;
        waiting.set(waiting.get() - 1);
    }
}

impl Desk {
    /// Tells the owner why an answer is none.
    pub(super) fn no_answer(&self, event: Event, why: &str) {
        let (now, warned) = (self.cx.now(), &self.crowd.warned);
        let level = match warned.get() {
            Some(last) if now.since(last) < limits::WARN_EVERY => log::Level::Debug,
            _ => {
                warned.set(Some(now));
                log::Level::Warn
            }
        };
        log::log!(
            level,
            "push: the application does not answer `{}`: {why}",
            event.name()
        );
    }
}

/// `None` if it takes longer.
pub(super) async fn within<T>(cx: &Cx, span: Duration, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let mut sleep = pin!(cx.sleep(span));
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => sleep.as_mut().poll(context).map(|()| None),
    })
    .await
}
