//! ntex's web framework, one worker.

use ntex::http::header::{CONTENT_TYPE, HeaderValue, SERVER};
use ntex::http::{HttpService, StatusCode, body::Body};
use ntex::{util::Bytes, web};

mod settings;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(serde::Serialize)]
struct Hello {
    message: &'static str,
}

fn response(content_type: &'static str, body: Bytes) -> web::HttpResponse {
    let mut response = web::HttpResponse::with_body(StatusCode::OK, Body::Bytes(body));
    response.headers_mut().insert(SERVER, HeaderValue::from_static("ntex"));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

#[web::get("/json")]
async fn json() -> web::HttpResponse {
    let hello = Hello {
        message: "Hello, World!",
    };
    let body = serde_json::to_vec(&hello).expect("a constant serialises");
    response("application/json", Bytes::from(body))
}

#[web::get("/plaintext")]
async fn plaintext() -> web::HttpResponse {
    response("text/plain", Bytes::from_static(b"Hello, World!"))
}

#[ntex::main]
async fn main() -> std::io::Result<()> {
    let app = async |_| HttpService::h1(web::App::new().service(json).service(plaintext).finish());
    let server = ntex::server::build()
        .workers(1)
        .backlog(4096)
        .bind("bench", settings::address(), app)?;
    server.config("bench", settings::settings()).run().await
}
