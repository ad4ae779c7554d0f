//! Names of packages, words of a shell, and the commands that are printed.

use std::path::Path;

use super::{next_commands, package_name, shell_word};
use crate::args::init::InitKind;

#[test]
fn packages_have_names_that_cargo_accepts() {
    for (directory, expected) in [
        ("/home/a/shop", "shop"),
        ("/home/a/My Shop", "my-shop"),
        ("/home/a/2048", "app-2048"),
        ("/home/a/ringmain", "app-ringmain"),
        ("/home/a/café", "caf"),
        ("/", "app"),
    ] {
        assert_eq!(package_name(Path::new(directory)), expected, "{directory}");
    }
}

#[test]
fn paths_are_words_of_a_shell() {
    for (path, expected) in [
        ("a/b-1.yaml", "a/b-1.yaml"),
        ("a b", "'a b'"),
        ("it's", "'it'\\''s'"),
        ("-x", "'-x'"),
    ] {
        assert_eq!(shell_word(Path::new(path)), expected);
    }
}

#[test]
fn three_commands_follow() {
    for kind in [InitKind::Gateway, InitKind::Push, InitKind::App] {
        let commands = next_commands(kind, Path::new("."));
        assert_eq!(commands.len(), 3, "{commands:?}");
    }
    assert_eq!(
        next_commands(InitKind::Gateway, Path::new("."))[0],
        "ringmain check ringmain.yaml"
    );
    assert_eq!(
        next_commands(InitKind::Gateway, Path::new("a b"))[0],
        "ringmain check 'a b/ringmain.yaml'"
    );
}
