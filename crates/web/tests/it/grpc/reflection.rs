//! Reflection from what protoc has written: `descriptors/set.bin`, of the two files beside it.

use ringmain_web::App;
use ringmain_web::grpc::ReflectionService;
use ringmain_web::grpc::prost::{Message, Oneof};
use ringmain_web::testing::TestClient;
use ringmain_wire::grpc::Slot;

use crate::grpc::support::{Answer, GRPC};

const SET: &[u8] = include_bytes!("descriptors/set.bin");

#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(string, tag = "1")]
    host: String,
    #[prost(oneof = "Question", tags = "3, 4, 5, 6, 7")]
    question: Option<Question>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Question {
    #[prost(string, tag = "3")]
    File(String),
    #[prost(string, tag = "4")]
    Symbol(String),
    #[prost(message, tag = "5")]
    Extension(Extension),
    #[prost(string, tag = "6")]
    Extensions(String),
    #[prost(string, tag = "7")]
    Services(String),
}

#[derive(Clone, PartialEq, Message)]
struct Extension {
    #[prost(string, tag = "1")]
    of: String,
    #[prost(int32, tag = "2")]
    number: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Response {
    #[prost(string, tag = "1")]
    host: String,
    #[prost(message, optional, tag = "2")]
    request: Option<Request>,
    #[prost(message, optional, tag = "4")]
    files: Option<Files>,
    #[prost(message, optional, tag = "5")]
    extensions: Option<Extensions>,
    #[prost(message, optional, tag = "6")]
    services: Option<Services>,
    #[prost(message, optional, tag = "7")]
    error: Option<Failure>,
}

#[derive(Clone, PartialEq, Message)]
struct Files {
    #[prost(bytes = "vec", repeated, tag = "1")]
    file: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct Extensions {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, repeated, tag = "2")]
    number: Vec<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct Services {
    #[prost(message, repeated, tag = "1")]
    service: Vec<Named>,
}

/// Also what of a file's descriptor is looked at here.
#[derive(Clone, PartialEq, Message)]
struct Named {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct Failure {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

fn ask(questions: &[Question]) -> Vec<Response> {
    let app = App::new().grpc(ReflectionService::new(SET).unwrap().service());
    let mut client = TestClient::new(app).unwrap();
    let mut body = Vec::new();
    for question in questions {
        let slot = Slot::open(&mut body);
        let request = Request {
            host: "a".into(),
            question: Some(question.clone()),
        };
        request.encode(&mut body).unwrap();
        slot.close(&mut body, false).unwrap();
    }
    let reply = client
        .post("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
        .header("Content-Type", GRPC)
        .header("TE", "trailers")
        .body(body)
        .send();
    client.finish().unwrap();
    let answer = Answer::read(GRPC, &reply);
    let payloads = answer.payloads.iter().map(|(payload, _)| payload.as_slice());
    let responses: Vec<_> = payloads
        .map(|payload| Response::decode(payload).unwrap())
        .collect();
    assert_eq!(responses.len(), questions.len());
    for (response, question) in responses.iter().zip(questions) {
        let request = response.request.as_ref().unwrap();
        assert_eq!(
            (response.host.as_str(), request.question.as_ref()),
            ("a", Some(question))
        );
    }
    responses
}

/// The names of the files in a response.
fn files(response: &Response) -> Vec<String> {
    let files = response
        .files
        .as_ref()
        .unwrap_or_else(|| panic!("files, not {response:?}"));
    let names = files
        .file
        .iter()
        .map(|file| Named::decode(file.as_slice()).unwrap().name);
    names.collect()
}

#[test]
fn services_and_extensions_are_listed() {
    let of = "test.base.Open".to_owned();
    let responses = ask(&[
        Question::Services(String::new()),
        Question::Extensions(of.clone()),
        Question::Extensions("test.Text".into()),
        Question::Extensions("test.Other".into()),
    ]);
    let services = &responses[0].services.as_ref().unwrap().service;
    assert_eq!(
        services.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(),
        ["test.Service"]
    );
    let extensions = responses[1].extensions.as_ref().unwrap();
    assert_eq!((&extensions.name, &extensions.number[..]), (&of, &[101, 150][..]));
    assert!(responses[2].extensions.as_ref().unwrap().number.is_empty());
    assert_eq!(responses[3].error.as_ref().unwrap().code, 5);
}

#[test]
fn files_are_found_by_name_symbol_and_extension_with_their_imports() {
    let both = ["service.proto", "base.proto"];
    let extension = |number| {
        Question::Extension(Extension {
            of: "test.base.Open".into(),
            number,
        })
    };
    let symbols = [
        "test.Service",
        "test.Service.Talk",
        "test.Text",
        "test.Text.number",
        "test.Text.choice",
        "test.Text.Inner",
        "test.Text.Inner.kind",
        "test.Text.Inner.Kind",
        "test.Text.Inner.SOME",
        "test.Colour",
        "test.RED",
        "test.more",
    ];
    let symbols = symbols.map(|symbol| Question::Symbol(symbol.into()));
    let others = [Question::File("service.proto".into()), extension(101)];
    for question in symbols.into_iter().chain(others) {
        assert_eq!(
            files(&ask(std::slice::from_ref(&question))[0]),
            both,
            "{question:?}"
        );
    }
    let missing = [
        Question::File("other.proto".into()),
        Question::Symbol("test".into()),
        Question::Symbol(".test.Text".into()),
        Question::Symbol(String::new()),
        extension(102),
    ];
    for response in ask(&missing) {
        let failure = response
            .error
            .as_ref()
            .unwrap_or_else(|| panic!("an error, not {response:?}"));
        assert!(
            failure.code == 5 && failure.message.starts_with("unknown "),
            "{failure:?}"
        );
    }
    // On one stream only requested files are sent twice.
    let responses = ask(&[
        Question::Symbol("test.base.Open.name".into()),
        Question::Symbol("test.Text".into()),
        Question::File("service.proto".into()),
    ]);
    let found: Vec<_> = responses.iter().map(files).collect();
    assert_eq!(found, [["base.proto"], ["service.proto"], ["service.proto"]]);
}

#[test]
fn an_invalid_descriptor_set_is_rejected() {
    let error = ReflectionService::new(&SET[..SET.len() - 1])
        .map(drop)
        .unwrap_err();
    assert!(
        error.to_string().starts_with("expected a FileDescriptorSet"),
        "{error}"
    );
    assert!(ReflectionService::new(b"").is_ok(), "a set of no files");
}
