//! A clock that the server pushes: `cargo run --release --example clock`, then open <http://127.0.0.1:8080/>.
//!
//! Server-sent events are a response without an end. In browsers, `EventSource` reads them, and reconnects when the
//! connection is lost or the server is replaced.

use std::time::Duration;

use ringmain::access_log::AccessLog;
use ringmain::{App, Event, Exit, Reply, Request, Result, http_date};

const PAGE: &str = r#"<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Clock</title>
<style>
  body { display: grid; place-content: center; height: 100vh; margin: 0; font: 4vw system-ui; text-align: center }
  small { color: gray }
</style>
<time>…</time>
<small>connecting</small>
<script>
  const [time, state] = [document.querySelector("time"), document.querySelector("small")];
  const clock = new EventSource("/ticks");
  clock.addEventListener("tick", (tick) => time.textContent = tick.data);
  clock.onopen = () => state.textContent = "live";
  clock.onerror = () => state.textContent = "reconnecting";
</script>
"#;

fn page(_: &Request, reply: &mut Reply) -> Result {
    reply.html(PAGE)
}

/// Runs until the client disconnects, which drops the future. At shutdown the stream ends after an event. Ten thousand streams
/// are ten thousand small tasks, without threads.
async fn ticks(req: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let cx = req.cx();
    let mut ticks = reply.events().await?;
    loop {
        let now = cx.wall();
        let date = http_date(now);
        let data = String::from_utf8_lossy(&date);
        let id = now.as_secs().to_string();
        ticks
            .send(&Event::new().event("tick").id(&id).data(&data))
            .await?;
        // Until the next full second.
        cx.sleep(Duration::from_secs(1) - Duration::from_nanos(now.subsec_nanos().into()))
            .await;
    }
}

fn main() -> Exit {
    let addr = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    let log = match AccessLog::to_stdout() {
        Ok(log) => log,
        Err(error) => return Exit::Failure(error.to_string()),
    };
    let app = App::new().access_log(log).request_ids();
    app.get("/", page).get_async("/ticks", ticks).run(&addr)
}
