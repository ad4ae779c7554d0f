//! Configuration files: whatever is read can be compiled, explained and asked for routes.

use std::io;
use std::path::Path;
use std::sync::Arc;

use ringmain_control::config::{ConfigEnvironment, load};
use ringmain_gateway::table::{Headers, RequestFacts, Table};

/// Longer inputs only repeat what shorter ones do, and take longer.
const LONGEST: usize = 16 * 1024;

/// A file.
///
/// Laws: no panic; every error has a place in the file and is told on one line; what is left is compiled, and what the table
/// finds for a request is what it explains.
pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(&input[..input.len().min(LONGEST)]) else {
        return;
    };
    let environment = ConfigEnvironment {
        variable: &|name| (!name.is_empty()).then(|| name.to_owned()),
        file: &|path| match path.len() % 2 {
            0 => Ok(b"-----BEGIN CERTIFICATE-----\n".to_vec()),
            _ => Err(io::Error::from(io::ErrorKind::NotFound)),
        },
        is_public: &|_| false,
        folder: Path::new("/etc"),
    };
    let loaded = load("f", text, &environment);
    let lines = text.lines().count().max(1) as u64 + 1;
    for error in &loaded.errors {
        assert!((1..=lines).contains(&error.position.line), "{error}");
        assert!(!error.to_string().contains('\n'), "{error:?}");
    }
    let Some(config) = loaded.config.clone() else {
        assert!(!loaded.errors.is_empty(), "why there is nothing is told");
        return;
    };
    let table: Table<()> = Table::compile(Arc::new(config), None, &mut |_, _| Ok(()));
    let _ = loaded.locate_problems(table.problems());
    let hosts = ["", "shop.example", "a.b.shop.example", "staff.shop.example"];
    for (address, _, _) in table.addresses().iter() {
        for host in hosts {
            let facts = RequestFacts {
                host,
                path: "/cart/a",
                method: "GET",
                query: "bulk=%31&a",
                headers: Headers::List(&[("x-a", b"1")]),
            };
            let explained = table.explain(address, &facts);
            let Some(listener) = table.addresses().select_listener(address, host) else {
                assert_eq!(explained.listener, None);
                continue;
            };
            let _ = table.find_stream(listener, Some(host));
            let found = table.find(listener, &facts).map(|matched| matched.rule_number());
            if !explained.to_https {
                assert_eq!(explained.selected.map(|taken| taken.rule), found);
            }
        }
    }
}
