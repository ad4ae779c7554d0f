//! The command line as shells and `man` want it: completion scripts and the manual page, from its one definition.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::{Cli, Lines, sections};

/// Writes the completion script for a shell.
///
/// # Errors
/// Those of `out`.
pub(crate) fn completions(shell: Shell, out: &mut dyn Write) -> io::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ringmain", &mut script);
    out.write_all(&script)
}

/// Writes the manual page.
///
/// # Errors
/// Those of `out`.
pub(crate) fn manual(out: &mut dyn Write) -> io::Result<()> {
    let mut definition = Cli::command();
    definition.build();
    let commands: Vec<(String, String)> = definition
        .get_subcommands()
        .map(|command| {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let operands = command
                .get_positionals()
                .filter_map(|operand| operand.get_value_names());
            let operands: String = operands.flatten().map(|name| format!(" {name}")).collect();
            (format!("{}{operands}", command.get_name()), about)
        })
        .collect();
    // What the short help leaves out is not left out here; the derived synopsis names every option.
    let definition = definition
        .mut_args(|option| option.hide_short_help(false))
        .override_usage("ringmain [OPTIONS]\nringmain <COMMAND>");
    let page = Man::new(definition).date("").manual("Ringmain");
    page.render_title(out)?;
    page.render_name_section(out)?;
    page.render_synopsis_section(out)?;
    page.render_description_section(out)?;
    heading(out, "commands")?;
    for (name, about) in &commands {
        term(out, name, about)?;
    }
    page.render_options_section(out)?;
    for section in sections() {
        heading(out, section.title)?;
        match section.lines {
            Lines::Terms(lines) | Lines::Commands(lines) => {
                for (name, meaning) in lines {
                    term(out, name, meaning)?;
                }
            }
        }
    }
    Ok(())
}

fn heading(out: &mut dyn Write, title: &str) -> io::Result<()> {
    writeln!(out, ".SH \"{}\"", title.to_uppercase())
}

fn term(out: &mut dyn Write, name: &str, meaning: &str) -> io::Result<()> {
    writeln!(out, ".TP\n\\fB{}\\fR\n{}", escaped(name), escaped(meaning))
}

/// As `roff` prints it: a hyphen stays one that can be copied, no line begins with a control character.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) {
        format!("\\&{text}")
    } else {
        text
    }
}
