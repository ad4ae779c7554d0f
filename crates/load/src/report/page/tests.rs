//! What every page promises.

use super::*;
use crate::plan::Pace;
use crate::report::fixture;

fn open() -> Run {
    fixture::run("http://127.0.0.1:8080/plaintext", Pace::Constant(4_000.0), 3, 1.0)
}

#[test]
fn write_it() {
    std::fs::write("/tmp/wt/p1.html", super::run(&open(), &fixture::remarks())).unwrap();
    let runs = [
        open(),
        fixture::run("net/http", Pace::Constant(4_000.0), 3, 1.6),
        fixture::run("ringmain, epoll", Pace::Constant(4_000.0), 3, 1.2),
    ];
    std::fs::write(
        "/tmp/wt/p2.html",
        comparison(&fixture::comparison(), &runs, &fixture::remarks()[2..]),
    )
    .unwrap();
    std::fs::write(
        "/tmp/wt/p3.html",
        super::run(&fixture::run("local", Pace::Closed, 1, 1.0), &[]),
    )
    .unwrap();
}
