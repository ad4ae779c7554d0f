//! The effects of an application's hooks and groups on calls.

use ringmain_web::grpc::Code;
use ringmain_web::testing::TestClient;
use ringmain_web::{App, Error, Flow, Reply, Request, Result};

use crate::grpc::support::{Answer, DIALECTS, GRPC, body, call, request, service, text};

fn door(req: &Request<'_>, _: &mut Reply<'_>) -> Result<Flow> {
    match req.header("X-Pass") {
        None => Err(Error::unauthorized("expected a field `X-Pass`").with_header("WWW-Authenticate", "Pass")),
        Some("busy") => Err(Error::new(503, "ask again later").with_header("Retry-After", "7")),
        Some("panic") => panic!("planned"),
        Some(_) => Ok(Flow::Continue),
    }
}

#[test]
fn errors_of_hooks_become_a_status() {
    let app = App::new()
        .after(|_, reply| reply.header("X-After", "ran").map(drop))
        .group("", |group| group.before(door).grpc(service()));
    let mut client = TestClient::new(app).unwrap();
    for dialect in DIALECTS {
        for (pass, code, words, field) in [
            (
                None,
                Code::Unauthenticated,
                "expected a field `X-Pass`",
                "WWW-Authenticate: Pass",
            ),
            (
                Some("busy"),
                Code::Unavailable,
                "ask again later",
                "Retry-After: 7",
            ),
            (Some("panic"), Code::Internal, "", "X-After: ran"),
            (Some("let me in"), Code::Ok, "", "X-After: ran"),
        ] {
            let mut request = request(&mut client, dialect, "Echo");
            if let Some(pass) = pass {
                request = request.header("X-Pass", pass);
            }
            let answer = Answer::read(dialect, &request.body(body(dialect, &[text("", 0)])).send());
            assert_eq!((answer.code, answer.message.as_str()), (code, words));
            for line in [field, "X-After: ran"] {
                assert!(answer.head.contains(&line.to_owned()), "{line} in {answer:?}");
            }
        }
        // A client that does not speak gRPC receives problem details as usual.
        let reply = client.post("/test.Service/Echo").body("{}").send();
        assert_eq!(
            (reply.status(), reply.header("content-type")),
            (401, Some("application/problem+json"))
        );
    }
    client.finish().unwrap();
}

/// Cross-origin requests, as described in the guide.
fn cross_origin(req: &Request<'_>, reply: &mut Reply<'_>) -> Result<Flow> {
    let Some(origin) = req.header("Origin") else {
        return Ok(Flow::Continue);
    };
    reply.header("Access-Control-Allow-Origin", origin)?;
    reply.header("Vary", "Origin")?;
    if req.method().as_str() == "OPTIONS" {
        reply.header("Access-Control-Allow-Methods", "POST")?;
        reply.header(
            "Access-Control-Allow-Headers",
            "content-type, x-grpc-web, grpc-timeout",
        )?;
        reply.no_content()?;
        return Ok(Flow::Stop);
    }
    Ok(Flow::Continue)
}

#[test]
fn a_hook_lets_pages_of_other_origins_call() {
    let app = App::new().before(cross_origin).grpc(service());
    let mut client = TestClient::new(app).unwrap();
    let reply = client
        .request("OPTIONS", "/test.Service/Echo")
        .header("Origin", "https://example.com")
        .header("Access-Control-Request-Method", "POST")
        .send();
    assert_eq!(reply.status(), 204);
    assert_eq!(
        reply.header("access-control-allow-origin"),
        Some("https://example.com")
    );
    let reply = request(&mut client, DIALECTS[1], "Echo")
        .header("Origin", "https://example.com")
        .body(body(DIALECTS[1], &[text("a", 0)]))
        .send();
    assert_eq!(
        reply.header("access-control-allow-origin"),
        Some("https://example.com")
    );
    Answer::read(DIALECTS[1], &reply).gives(&[text("a", 0)]);
    client.finish().unwrap();
}

#[test]
fn state_is_found_as_by_any_handler_and_other_routes_stay() {
    use crate::grpc::support::Text;
    use ringmain_web::grpc::{self, Call, Service};
    async fn name(call: &Call<'_>, _: Text) -> grpc::Result<Text> {
        Ok(text(call.request().state::<String>()?.clone(), 0))
    }
    async fn missing(call: &Call<'_>, _: Text) -> grpc::Result<Text> {
        Ok(text("", *call.request().state::<u32>()?))
    }
    let methods = Service::new("test.Service")
        .unary("Name", name)
        .unary("Missing", missing);
    let app = App::new()
        .state("the state".to_owned())
        .grpc(methods)
        .get("/", |_, reply| reply.text("a page"));
    let mut client = TestClient::new(app).unwrap();
    call(&mut client, GRPC, "Name", &[text("", 0)]).gives(&[text("the state", 0)]);
    call(&mut client, GRPC, "Missing", &[text("", 0)]).fails(Code::Internal, "");
    assert_eq!(client.get("/").send().text(), "a page");
    client.finish().unwrap();
}

#[test]
fn two_methods_of_one_name_are_refused() {
    use crate::grpc::support::Text;
    use ringmain_web::grpc::{self, Call};
    async fn other(_: &Call<'_>, message: Text) -> grpc::Result<Text> {
        Ok(message)
    }
    let error = App::new()
        .grpc(service().unary("Echo", other))
        .build()
        .map(drop)
        .unwrap_err();
    assert!(error.to_string().contains("/test.Service/Echo"), "{error}");
}
