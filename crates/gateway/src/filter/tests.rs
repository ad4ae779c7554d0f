//! Tests of filter options, and of their errors.

use serde::Deserialize;

use super::{FilterError, Options};

fn text(text: &str) -> Options {
    Options::Text(text.into())
}

fn number(text: &str) -> Options {
    Options::Number(text.into())
}

fn map<const N: usize>(pairs: [(&str, Options); N]) -> Options {
    Options::Map(
        pairs
            .into_iter()
            .map(|(name, value)| (name.into(), value))
            .collect(),
    )
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Settings {
    #[serde(default)]
    name: String,
    #[serde(default)]
    size: u32,
    #[serde(default)]
    share: Option<f64>,
    #[serde(default)]
    all: Vec<Mode>,
    #[serde(default)]
    inner: Option<Box<Settings>>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Mode {
    Fast,
    Slow(u8),
}

fn read(options: &Options) -> Result<Settings, String> {
    options.read().map_err(|error: FilterError| error.to_string())
}

#[test]
fn options_are_read_as_they_are_written() {
    let settings = read(&map([
        // A version is a text, whatever it looks like.
        ("name", number("1.10")),
        ("size", text("7")),
        ("share", number("0.5")),
        (
            "all",
            Options::List(vec![text("fast"), map([("slow", number("3"))])]),
        ),
        ("inner", map([("size", number("8"))])),
    ]));
    let settings = settings.expect("valid options");
    assert_eq!(
        (&*settings.name, settings.size, settings.share),
        ("1.10", 7, Some(0.5))
    );
    assert_eq!(settings.all, [Mode::Fast, Mode::Slow(3)]);
    assert_eq!(settings.inner.map(|inner| inner.size), Some(8));
    assert_eq!(read(&Options::Nothing).map(|settings| settings.size), Ok(0));
    assert_eq!(text("x").read::<String>().expect("a text"), "x");
}

#[test]
fn errors_name_the_key() {
    for (options, words) in [
        (map([("size", text("many"))]), ["at `size`", "u32"]),
        (
            map([("inner", map([("share", Options::Bool(true))]))]),
            ["at `inner.share`", "f64"],
        ),
        (map([("sise", number("1"))]), ["`sise`", "`size`"]),
        (
            map([("all", Options::List(vec![text("fsat")]))]),
            ["at `all[0]`", "`fast`"],
        ),
        (text("x"), ["x", "Settings"]),
    ] {
        let why = read(&options).expect_err("invalid options");
        assert!(words.iter().all(|word| why.contains(word)), "{why}");
    }
}

#[test]
fn debug_omits_the_values() {
    let shown = format!("{:?}", map([("key", text("hunter2"))]));
    assert_eq!(shown, "Options of [\"key\"]");
}
