//! Keeps a provider's keys up to date: one task for the whole process.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_wire::h1::{FieldBlock, Method};

use super::provider::{KeyProvider, retry_delay};
use crate::gateway::Worker;
use crate::limits;
use crate::model::{JwtKeys, RemoteKeys};
use crate::policy::http_client::{ServiceRequest, send_request};

/// Fetches keys periodically and on demand until the task is cancelled.
pub(crate) async fn keep_current(worker: Rc<Worker>, provider: Arc<KeyProvider>) {
    let JwtKeys::Remote(remote) = &provider.config.keys else {
        return;
    };
    let cx = &worker.cx;
    let mut last_success: Option<Time> = None;
    let mut failures = 0;
    loop {
        let demand = provider.demand.count();
        let started_at = cx.now();
        provider.start_attempt(started_at);
        let fetched = fetch_keys(&worker, &provider, remote).await;
        let outcome = fetched.and_then(|json| provider.store_keys(json));
        match &outcome {
            Ok(()) => {
                if failures > 0 {
                    log::info!("keys of `{}` are fetched again", provider.config.name);
                }
                failures = 0;
                last_success = Some(started_at);
            }
            Err(reason) => {
                failures += 1;
                log::warn!("keys of `{}` cannot be fetched: {reason}", provider.config.name);
                let since = *last_success.get_or_insert(started_at);
                if provider.has_keys() && cx.now().since(since) >= remote.stale {
                    log::warn!("keys of `{}` are too old to be used", provider.config.name);
                    provider.discard_keys();
                }
            }
        }
        provider.finish_attempt(outcome.is_err());
        let (least, most) = match (&outcome, provider.has_keys()) {
            (Ok(()), _) => (limits::KEYS_LEAST, remote.refresh),
            (Err(_), true) => (limits::KEYS_LEAST, limits::KEYS_LEAST),
            (Err(_), false) => (retry_delay(failures), retry_delay(failures)),
        };
        let fraction = 0.9 + 0.1 * (cx.random() >> 11) as f64 / (1_u64 << 53) as f64;
        cx.sleep(least.saturating_sub(cx.now().since(started_at))).await;
        wait_for_demand(
            &worker,
            &provider,
            demand,
            most.mul_f64(fraction).saturating_sub(least),
        )
        .await;
    }
}

/// Waits for `span`, or until a request needs a fetch.
async fn wait_for_demand(worker: &Worker, provider: &KeyProvider, demand: u64, span: Duration) {
    let mut sleep = pin!(worker.cx.sleep(span));
    poll_fn(|context| {
        provider.demand.register(worker.cx.worker(), context.waker());
        if provider.demand.count() != demand {
            return Poll::Ready(());
        }
        sleep.as_mut().poll(context)
    })
    .await;
}

async fn fetch_keys(
    worker: &Rc<Worker>,
    provider: &KeyProvider,
    remote: &RemoteKeys,
) -> Result<Vec<u8>, String> {
    let upstream = provider.upstream.as_ref().ok_or("the provider has no upstream")?;
    let mut fields = FieldBlock::new();
    for (name, value) in [
        ("User-Agent", "ringmain"),
        ("Accept", "application/json, */*;q=0.5"),
    ] {
        let pushed = fields.push(name, value.as_bytes());
        pushed.map_err(|misuse| misuse.to_string())?;
    }
    let demand = ServiceRequest {
        method: Method::Get,
        target: &remote.path,
        host: remote.host.as_ref().map(|host| host.as_str()),
        fields: &fields,
        body: b"",
        may_retry: true,
        response_limit: limits::KEY_SET_BYTES as u64,
        until: worker.cx.now().after(limits::KEYS_TIMEOUT),
        // Other requests to the same upstream must not prevent all authentication.
        ignore_health: true,
    };
    let result = send_request(worker, upstream, &demand).await;
    let result = result.map_err(|fault| fault.to_string())?;
    match result.status {
        200 => Ok(result.body),
        status => Err(format!("expected the status 200, found {status}")),
    }
}
