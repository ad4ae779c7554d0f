//! actix-web with one worker; its own deadlines off, as its entry in public benchmarks has it.

use std::time::Duration;

use actix_web::http::KeepAlive;
use actix_web::http::header::{CONTENT_TYPE, HeaderValue, SERVER};
use actix_web::{App, HttpResponse, HttpServer, web};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(serde::Serialize)]
struct Hello {
    message: &'static str,
}

const NAME: HeaderValue = HeaderValue::from_static("actix");

async fn json() -> HttpResponse {
    let hello = Hello {
        message: "Hello, World!",
    };
    let mut response = HttpResponse::Ok().json(hello);
    response.headers_mut().insert(SERVER, NAME);
    response
}

async fn plaintext() -> HttpResponse {
    let mut response = HttpResponse::Ok().body("Hello, World!");
    response.headers_mut().insert(SERVER, NAME);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

#[actix_web::main]
async fn main() -> std::io::Result<()> {
    let port: u16 = std::env::var("PORT").ok().and_then(|p| p.parse().ok()).expect("PORT");
    let app = || {
        App::new()
            .route("/json", web::get().to(json))
            .route("/plaintext", web::get().to(plaintext))
    };
    HttpServer::new(app)
        .workers(1)
        .backlog(4096)
        .keep_alive(KeepAlive::Os)
        .client_request_timeout(Duration::ZERO)
        .bind(("127.0.0.1", port))?
        .run()
        .await
}
