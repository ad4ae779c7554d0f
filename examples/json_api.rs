//! A small JSON API: books in memory, shared by the workers. Reading is public, writing requires a token.
//!
//! ```text
//! cargo run --release --example json_api
//! curl '127.0.0.1:8080/books?limit=2'
//! curl 127.0.0.1:8080/books -H 'Authorization: Bearer secret' --json '{"title": "Emma", "year": 1815}'
//! curl 127.0.0.1:8080/books -H 'Authorization: Bearer secret' --json '{"title": "Emma", "year": "1815"}'
//! ```

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ringmain::{App, Error, Exit, Flow, Reply, Request, Result};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewBook {
    title: String,
    year: u16,
}

#[derive(Clone, Serialize)]
struct Book {
    id: u32,
    title: String,
    year: u16,
    added_by: String,
}

/// One page; the next one is at `?after=` its last id.
#[derive(Serialize)]
struct Page {
    books: Vec<Book>,
    more: bool,
}

#[derive(Default)]
struct Books {
    by_id: BTreeMap<u32, Book>,
    last_id: u32,
}

/// State is looked up by its type. The lock is held briefly, and by no handler that waits, so that no worker blocks on it.
#[derive(Default)]
struct Shelf(Mutex<Books>);

impl Shelf {
    fn books(&self) -> MutexGuard<'_, Books> {
        // A handler that panicked responded with 500; the others continue.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The authenticated user, set by the hook for the handler.
struct User(String);

fn authenticate(req: &Request, _: &mut Reply) -> Result<Flow> {
    let token = req
        .header("Authorization")
        .and_then(|value| value.strip_prefix("Bearer "));
    // Real tokens are random, and looked up by their hash.
    if token != Some("secret") {
        return Err(
            Error::unauthorized("expected a valid bearer token").with_header("WWW-Authenticate", "Bearer")
        );
    }
    req.extend(User("ann".into()));
    Ok(Flow::Continue)
}

fn list(req: &Request, reply: &mut Reply) -> Result {
    let query = req.query()?;
    let after = query.parse("after")?.unwrap_or(0_u32);
    let limit = query.parse("limit")?.unwrap_or(20_usize);
    if !(1..=100).contains(&limit) {
        return Err(Error::bad_request("limit: expected 1 to 100"));
    }
    let shelf = req.state::<Shelf>()?.books();
    let mut rest = shelf.by_id.values().filter(|book| book.id > after);
    let books = rest.by_ref().take(limit).cloned().collect();
    reply.json(&Page {
        books,
        more: rest.next().is_some(),
    })
}

fn show(req: &Request, reply: &mut Reply) -> Result {
    let id = req.param_as("id")?;
    let shelf = req.state::<Shelf>()?.books();
    reply.json(shelf.by_id.get(&id).ok_or_else(|| unknown(id))?)
}

fn add(req: &Request, reply: &mut Reply) -> Result {
    let NewBook { title, year } = req.json()?;
    let user = req.extension::<User>()?;
    let mut shelf = req.state::<Shelf>()?.books();
    if shelf.by_id.values().any(|book| book.title == title) {
        return Err(Error::conflict(format!("`{title}` already exists")));
    }
    shelf.last_id += 1;
    let book = Book {
        id: shelf.last_id,
        title,
        year,
        added_by: user.0.clone(),
    };
    reply
        .status(201)
        .header("Location", format!("/books/{}", book.id))?
        .json(&book)?;
    shelf.by_id.insert(book.id, book);
    Ok(())
}

fn remove(req: &Request, reply: &mut Reply) -> Result {
    let id = req.param_as("id")?;
    let mut shelf = req.state::<Shelf>()?.books();
    shelf.by_id.remove(&id).ok_or_else(|| unknown(id))?;
    reply.no_content()
}

fn unknown(id: u32) -> Error {
    Error::not_found(format!("no book {id}"))
}

fn main() -> Exit {
    let addr = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    App::new()
        .state(Shelf::default())
        .health()
        .group("/books", |books| {
            books.get("", list).get("/{id}", show).group("", |writing| {
                writing.before(authenticate).post("", add).delete("/{id}", remove)
            })
        })
        .run(&addr)
}
