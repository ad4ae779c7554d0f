//! Filters that change nothing and do all that filters may on the way to that: they wait, hold pieces back and give them on
//! together, want bodies whole. Whoever asks and whoever answers must not feel them.

use std::sync::Arc;
use std::time::Duration;

use ringmain_gateway::Gateway;
use ringmain_gateway::filter::{
    BodyAccess, Cx, Filter, FilterUse, Filters, Flow, Options, Outcome, RequestBody, RequestHead,
    RequestInfo, ResponseBody, ResponseHead,
};
use ringmain_gateway::model::{Config, Policy};

/// A gateway that has them.
pub(crate) fn gateway(config: Config) -> Gateway {
    let shaky = |_: &Options| Ok(|cx: &Cx| Shaky { cx: cx.clone() });
    let filters = Filters::new().add("first", shaky).add("second", shaky);
    Gateway::with_filters(Arc::new(config), filters, Duration::ZERO)
}

/// A rule that names them.
pub(crate) fn policies() -> impl Iterator<Item = Policy> {
    ["first", "second"].into_iter().map(|name| {
        Policy::Filter(Arc::new(FilterUse {
            name: name.into(),
            options: Options::Nothing,
        }))
    })
}

struct Shaky {
    cx: Cx,
}

impl Shaky {
    fn below(&self, bound: u64) -> u64 {
        self.cx.random() % bound
    }

    fn want(&self) -> BodyAccess {
        [
            BodyAccess::Nothing,
            BodyAccess::Read,
            BodyAccess::Modify,
            BodyAccess::Buffer,
        ][self.below(4) as usize]
    }

    /// Goes on, now or after a while.
    fn go_on(&self) -> Outcome<'_> {
        if self.below(3) > 0 {
            return Ok(Flow::Continue);
        }
        let span = Duration::from_micros(self.below(20_000));
        Flow::wait(async move {
            self.cx.sleep(span).await;
            Ok(Flow::Continue)
        })
    }

    /// The same with a piece of a body, which may be held.
    fn pass(&self, changes: bool) -> Outcome<'_> {
        if changes && self.below(3) == 0 {
            return Ok(Flow::Hold);
        }
        self.go_on()
    }
}

impl Filter for Shaky {
    /// The expected bodies of the request and of the response.
    type Exchange = (BodyAccess, BodyAccess);

    fn begin(&self, _: &RequestInfo<'_>) -> (BodyAccess, BodyAccess) {
        (self.want(), self.want())
    }

    fn request_head<'a>(
        &'a self,
        wants: &'a mut (BodyAccess, BodyAccess),
        head: &'a mut RequestHead<'_>,
    ) -> Outcome<'a> {
        head.want_body(wants.0);
        self.go_on()
    }

    fn request_body<'a>(
        &'a self,
        wants: &'a mut (BodyAccess, BodyAccess),
        _: &'a mut RequestBody<'_>,
    ) -> Outcome<'a> {
        self.pass(wants.0 == BodyAccess::Modify)
    }

    fn response_head<'a>(
        &'a self,
        wants: &'a mut (BodyAccess, BodyAccess),
        head: &'a mut ResponseHead<'_>,
    ) -> Outcome<'a> {
        head.want_body(wants.1);
        self.go_on()
    }

    fn response_body<'a>(
        &'a self,
        wants: &'a mut (BodyAccess, BodyAccess),
        _: &'a mut ResponseBody<'_>,
    ) -> Outcome<'a> {
        self.pass(wants.1 == BodyAccess::Modify)
    }
}
