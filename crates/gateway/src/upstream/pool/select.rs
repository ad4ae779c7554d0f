//! The selection of an endpoint by one worker.

use std::rc::Rc;

use super::{Chosen, End, Local, PoolSnapshot};
use crate::fault::Fault;
use crate::upstream::Prefer;
use crate::upstream::selection::{self, Wish};

impl Local {
    /// Selects an endpoint, not from `tried` if there are others; `key` is the hash of the request's key.
    ///
    /// # Errors
    /// There is no endpoint, or all are unhealthy.
    pub(crate) fn choose(
        &self,
        tried: &[Rc<End>],
        key: Option<u64>,
        prefer: Prefer,
    ) -> Result<Chosen, Fault> {
        self.choose_as(&self.wish(tried, key, prefer))
    }

    /// Does the same for a request that may retry at an endpoint of `tried`, in preference to one of `unreachable`.
    ///
    /// # Errors
    /// There is no endpoint, or all are unhealthy.
    pub(crate) fn choose_again(
        &self,
        (tried, unreachable): (&[Rc<End>], &[Rc<End>]),
        key: Option<u64>,
        prefer: Prefer,
    ) -> Result<Chosen, Fault> {
        self.choose_as(&Wish {
            unreachable,
            ..self.wish(tried, key, prefer)
        })
    }

    /// Selects an endpoint even if none is healthy, not from `tried` if there are others.
    ///
    /// # Errors
    /// There is no endpoint.
    pub(crate) fn choose_regardless(&self, tried: &[Rc<End>]) -> Result<Chosen, Fault> {
        self.choose_as(&Wish {
            regardless: true,
            ..self.wish(tried, None, Prefer::Any)
        })
    }

    /// Returns whether an endpoint that is not in `tried` can be selected.
    pub(crate) fn has_untried(&self, tried: &[Rc<End>]) -> bool {
        let seen = &mut *self.follow();
        let now = self.cx.now().0;
        selection::has_untried(
            &self.shared,
            &seen.current,
            &seen.ends,
            &mut seen.wellness,
            (tried, now),
        )
    }

    fn wish<'a>(&'a self, tried: &'a [Rc<End>], key: Option<u64>, prefer: Prefer) -> Wish<'a> {
        Wish {
            tried,
            unreachable: &[],
            key,
            prefer,
            regardless: false,
            now: self.cx.now().0,
            cx: &self.cx,
        }
    }

    fn choose_as(&self, wish: &Wish<'_>) -> Result<Chosen, Fault> {
        let PoolSnapshot {
            current,
            ends,
            wellness,
            turns,
            ..
        } = &mut *self.follow();
        let index = selection::choose(&self.shared, current, ends, wellness, turns, wish)?;
        let end = &ends[index];
        Ok(Chosen {
            end: Rc::clone(end),
            _active: end.endpoint.state.begin(),
        })
    }
}
