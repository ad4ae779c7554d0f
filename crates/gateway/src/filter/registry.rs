//! The filters of a program by name, and their uses in configurations.
//!
//! Erases the types of filters: the filter chain handles one object type.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use super::{
    ExchangeEnd, Filter, FilterError, Outcome, RequestBody, RequestHead, RequestInfo, ResponseBody,
    ResponseHead,
};
use crate::ext_proc::Processor;
use crate::model::{FilterUse, Name, Options, Policy, Rule};
use ringmain_engine::Cx;

/// Creates the filter of a use for each worker.
pub(crate) type Factory = dyn Fn(&Cx) -> Rc<dyn Instance> + Send + Sync;
/// Creates such a constructor from the options of a use.
type FilterKind = dyn Fn(&Options) -> Result<Arc<Factory>, FilterError> + Send + Sync;

/// The filters that configurations may name. Cheap to clone.
#[derive(Clone, Default)]
pub struct Filters {
    all: BTreeMap<Name, Arc<FilterKind>>,
}

impl Filters {
    /// Creates an empty registry.
    #[must_use]
    pub fn new() -> Filters {
        Filters::default()
    }

    /// Adds a filter that configurations call `name`; of two with one name the last applies.
    ///
    /// `configure` is called with the options of each use in a configuration, on the thread that loads the configuration: it may block. Its
    /// result creates the filter of each worker, on that worker.
    ///
    /// ```
    /// use ringmain_gateway::filter::{RequestInfo, Cx, Filter, Filters, Flow, Options, Outcome, RequestHead};
    ///
    /// #[derive(Clone, serde::Deserialize)]
    /// struct Stamp {
    ///     text: String,
    /// }
    ///
    /// impl Filter for Stamp {
    ///     type Exchange = ();
    ///
    ///     fn begin(&self, _: &RequestInfo<'_>) {}
    ///
    ///     fn request_head<'a>(&'a self, _: &'a mut (), head: &'a mut RequestHead<'_>) -> Outcome<'a> {
    ///         head.set("X-Stamp", &self.text)?;
    ///         Ok(Flow::Continue)
    ///     }
    /// }
    ///
    /// let filters = Filters::new().add("stamp", |options: &Options| {
    ///     let stamp: Stamp = options.read()?;
    ///     Ok(move |_: &Cx| stamp.clone())
    /// });
    /// # let _ = filters;
    /// ```
    #[must_use]
    pub fn add<F, C, W>(mut self, name: &str, configure: C) -> Filters
    where
        F: Filter,
        C: Fn(&Options) -> Result<W, FilterError> + Send + Sync + 'static,
        W: Fn(&Cx) -> F + Send + Sync + 'static,
    {
        let kind = move |options: &Options| -> Result<Arc<Factory>, FilterError> {
            let create = configure(options)?;
            let factory = move |cx: &Cx| -> Rc<dyn Instance> { Rc::new(SharedFilter(Rc::new(create(cx)))) };
            Ok(Arc::new(factory))
        };
        self.all.insert(name.into(), Arc::new(kind));
        self
    }

    /// Returns the names of the filters, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.all.keys().map(|name| &**name)
    }

    /// Checks that the filters of a rule exist and accept their options.
    ///
    /// # Errors
    /// A filter does not exist, rejects its options, or panics. The text is that of a message.
    pub fn check(&self, rule: &Rule) -> Result<(), String> {
        uses(rule).try_for_each(|filter| self.factory(filter).map(drop))
    }

    /// Returns the filters of a rule. `last_id` is the last number that was assigned.
    pub(crate) fn compile(&self, rule: &Rule, last_id: &mut u64) -> Result<Vec<Use>, String> {
        let all = uses(rule).map(|filter| {
            *last_id += 1;
            Ok(Use {
                name: filter.name.clone(),
                kind: UseKind::Custom {
                    id: *last_id,
                    factory: self.factory(filter)?,
                },
            })
        });
        all.collect()
    }

    fn factory(&self, filter: &FilterUse) -> Result<Arc<Factory>, String> {
        let name = &filter.name;
        let kind = self.all.get(name).ok_or_else(|| self.missing(name))?;
        match catch_unwind(AssertUnwindSafe(|| kind(&filter.options))) {
            Ok(Ok(factory)) => Ok(factory),
            Ok(Err(error)) => Err(format!("the filter `{name}` with invalid options: {error}")),
            Err(_) => Err(format!("the filter `{name}` panicked while reading its options")),
        }
    }

    fn missing(&self, name: &str) -> String {
        let names: Vec<_> = self.names().map(|name| format!("`{name}`")).collect();
        if names.is_empty() {
            format!(
                "the filter `{name}`, but no filters are registered: embed the gateway in a program that \
                 registers them (docs/how-to/custom-filters.md)"
            )
        } else {
            format!("the filter `{name}`; registered filters: {}", names.join(", "))
        }
    }
}

fn uses(rule: &Rule) -> impl Iterator<Item = &FilterUse> {
    rule.policies.iter().filter_map(|policy| match policy {
        Policy::Filter(filter) => Some(&**filter),
        _ => None,
    })
}

impl fmt::Debug for Filters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// A use of a filter in a configuration.
pub(crate) struct Use {
    pub(crate) name: Name,
    pub(crate) kind: UseKind,
}

/// The kind of a filter.
pub(crate) enum UseKind {
    /// A filter of the program.
    Custom {
        /// Unique, and never reused.
        id: u64,
        factory: Arc<Factory>,
    },
    /// An external processor.
    Processor(Processor),
}

impl Use {
    /// Returns the use of an external processor.
    pub(crate) fn processor(processor: Processor) -> Use {
        Use {
            name: "ext_proc".into(),
            kind: UseKind::Processor(processor),
        }
    }

    /// Returns the number of a filter of the program.
    pub(crate) fn custom_id(&self) -> Option<u64> {
        match self.kind {
            UseKind::Custom { id, .. } => Some(id),
            UseKind::Processor(_) => None,
        }
    }
}

/// Creates a worker's filter of the program. `None`: the constructor panicked.
pub(crate) fn create_instance(factory: &Factory, cx: &Cx) -> Option<Rc<dyn Instance>> {
    catch_unwind(AssertUnwindSafe(|| factory(cx))).ok()
}

impl fmt::Debug for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Use")
            .field("name", &self.name)
            .field("id", &self.custom_id())
            .finish_non_exhaustive()
    }
}

/// A filter of a worker.
pub(crate) trait Instance {
    /// Starts processing a request.
    fn begin(&self, about: &RequestInfo<'_>) -> Box<dyn RunningFilter>;
}

struct SharedFilter<F>(Rc<F>);

impl<F: Filter> Instance for SharedFilter<F> {
    fn begin(&self, about: &RequestInfo<'_>) -> Box<dyn RunningFilter> {
        Box::new(StartedFilter {
            exchange: self.0.begin(about),
            filter: Rc::clone(&self.0),
        })
    }
}

/// A call of a filter: the hook and its argument.
pub(crate) enum Hook<'a, 'h> {
    RequestHead(&'a mut RequestHead<'h>),
    RequestBody(&'a mut RequestBody<'h>),
    ResponseHead(&'a mut ResponseHead<'h>),
    ResponseBody(&'a mut ResponseBody<'h>),
}

/// A filter with its state for one request.
pub(crate) trait RunningFilter {
    fn call<'a>(&'a mut self, hook: Hook<'a, '_>) -> Outcome<'a>;
    fn finish(self: Box<Self>, end: &ExchangeEnd);
}

struct StartedFilter<F: Filter> {
    exchange: F::Exchange,
    // Declared after `exchange`, and so dropped after it.
    filter: Rc<F>,
}

impl<F: Filter> RunningFilter for StartedFilter<F> {
    fn call<'a>(&'a mut self, hook: Hook<'a, '_>) -> Outcome<'a> {
        let StartedFilter { exchange, filter } = self;
        match hook {
            Hook::RequestHead(head) => filter.request_head(exchange, head),
            Hook::RequestBody(body) => filter.request_body(exchange, body),
            Hook::ResponseHead(head) => filter.response_head(exchange, head),
            Hook::ResponseBody(body) => filter.response_body(exchange, body),
        }
    }

    fn finish(self: Box<Self>, end: &ExchangeEnd) {
        let StartedFilter { exchange, filter } = *self;
        filter.over(exchange, end);
    }
}
