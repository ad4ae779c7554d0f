//! may_minihttp: a stackful coroutine per connection, one worker.

use bytes::BufMut;
use may_minihttp::{HttpServer, HttpService, Request, Response};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Stack of one coroutine, in machine words: enough for this handler.
const STACK_WORDS: usize = 0x1000;
const POOLED_STACKS: usize = 1000;

#[derive(serde::Serialize)]
struct Hello {
    message: &'static str,
}

#[derive(Clone)]
struct Service;

impl HttpService for Service {
    fn call(&mut self, request: Request, response: &mut Response) -> std::io::Result<()> {
        match request.path() {
            "/json" => {
                let hello = Hello {
                    message: "Hello, World!",
                };
                response.header("Content-Type: application/json");
                serde_json::to_writer(response.body_mut().writer(), &hello)?;
            }
            "/plaintext" => {
                response.header("Content-Type: text/plain").body("Hello, World!");
            }
            _ => {
                response.status_code(404, "Not Found");
            }
        }
        Ok(())
    }
}

fn main() {
    may::config()
        .set_pool_capacity(POOLED_STACKS)
        .set_stack_size(STACK_WORDS)
        .set_workers(1);
    let port = std::env::var("PORT").expect("PORT");
    let server = HttpServer(Service).start(format!("127.0.0.1:{port}")).expect("listen");
    server.join().expect("serve");
}
