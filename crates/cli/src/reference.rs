//! Completion scripts and the manual pages, generated from the definition of the command line.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap::{Arg, ArgAction, Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::{Cli, Lines, Section, bench_sections, run_sections, tune_sections};

/// Writes the completion script for a shell.
///
/// # Errors
/// Returns the errors of `out`.
pub(crate) fn write_completions(shell: Shell, out: &mut dyn Write) -> io::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ringmain", &mut script);
    out.write_all(&script)
}

/// Writes the manual page.
///
/// # Errors
/// Returns the errors of `out`.
pub(crate) fn write_manual(out: &mut dyn Write) -> io::Result<()> {
    let mut definition = Cli::command();
    definition.build();
    let commands: Vec<(String, String)> = definition
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .map(|command| {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let operands = command
                .get_positionals()
                .filter_map(|operand| operand.get_value_names());
            let operands: String = operands.flatten().map(|name| format!(" {name}")).collect();
            (format!("{}{operands}", command.get_name()), about)
        })
        .collect();
    // The page has the options that the short help hides; the derived synopsis would list every option.
    let definition = definition
        .mut_args(|option| option.hide_short_help(false))
        .override_usage("ringmain [OPTIONS]\nringmain <COMMAND>");
    let page = Man::new(definition).date("").manual("Ringmain");
    page.render_title(out)?;
    page.render_name_section(out)?;
    page.render_synopsis_section(out)?;
    page.render_description_section(out)?;
    write_heading(out, "commands")?;
    for (name, about) in &commands {
        write_term(out, name, about)?;
    }
    page.render_options_section(out)?;
    for section in run_sections() {
        write_heading(out, section.title)?;
        write_lines(out, section)?;
    }
    write_with_commands(out, "bench", bench_sections())?;
    let feed = command_definition("feed");
    write_heading(out, "ringmain feed")?;
    write_options(out, &feed)?;
    let profile = command_definition("profile");
    write_heading(out, "ringmain profile")?;
    write_options(out, &profile)?;
    for command in profile.get_subcommands() {
        write_heading(out, &format!("ringmain profile {}", command.get_name()))?;
        write_options(out, command)?;
    }
    write_with_commands(out, "tune", tune_sections())
}

/// Writes the manual page and one page for each command into a folder: `ringmain.1`, `ringmain-tune-apply.1`.
///
/// # Errors
/// Returns the errors of the file system.
pub(crate) fn write_manual_pages(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let mut page = Vec::new();
    write_manual(&mut page)?;
    fs::write(dir.join("ringmain.1"), page)?;
    let mut definition = Cli::command();
    definition.build();
    for command in definition.get_subcommands().filter(|c| !c.is_hide_set()) {
        let sections = match command.get_name() {
            "run" => run_sections(),
            "bench" => bench_sections(),
            "tune" => tune_sections(),
            _ => &[],
        };
        write_command_page(dir, "ringmain", command, sections)?;
    }
    Ok(())
}

/// Writes the page of a command, and those of its commands.
fn write_command_page(dir: &Path, parent: &str, command: &Command, sections: &[Section]) -> io::Result<()> {
    let name = format!("{parent}-{}", command.get_name());
    let mut page = Vec::new();
    let out = &mut page;
    let usage = command.clone().render_usage().to_string();
    let synopsis = usage.trim_start_matches("Usage:").trim().to_owned();
    let man = Man::new(command.clone().display_name(&name).override_usage(synopsis));
    let source = concat!("ringmain ", env!("CARGO_PKG_VERSION"));
    let man = man.date("").source(source).manual("Ringmain").title(&name);
    man.render_title(out)?;
    man.render_name_section(out)?;
    man.render_synopsis_section(out)?;
    write_heading(out, "description")?;
    write_options(out, command)?;
    for section in sections {
        write_heading(out, section.title)?;
        write_lines(out, section)?;
    }
    let commands: Vec<&Command> = command.get_subcommands().filter(|c| !c.is_hide_set()).collect();
    if !commands.is_empty() {
        write_heading(out, "commands")?;
    }
    for child in &commands {
        let about = child.get_about().map(ToString::to_string).unwrap_or_default();
        write_term(out, &format!("{name}-{}(1)", child.get_name()), &about)?;
    }
    write_heading(out, "see also")?;
    writeln!(out, "\\fB{}\\fR(1)", escape_roff(parent))?;
    fs::write(dir.join(format!("{name}.1")), page)?;
    commands
        .iter()
        .try_for_each(|child| write_command_page(dir, &name, child, &[]))
}

/// Returns the definition of a command.
fn command_definition(name: &str) -> Command {
    let mut definition = Cli::command();
    definition.build();
    let command = definition.find_subcommand(name);
    command.expect("it is among the commands").clone()
}

/// Writes the options and sections of a command, and those of its subcommands.
fn write_with_commands(out: &mut dyn Write, name: &str, sections: &[Section]) -> io::Result<()> {
    let definition = command_definition(name);
    write_heading(out, &format!("ringmain {name}"))?;
    write_options(out, &definition)?;
    for section in sections {
        write_subheading(out, section.title)?;
        write_lines(out, section)?;
    }
    for command in definition.get_subcommands() {
        write_heading(out, &format!("ringmain {name} {}", command.get_name()))?;
        write_options(out, command)?;
    }
    Ok(())
}

/// Writes the description of a command, its operands, and its options under their headings.
fn write_options(out: &mut dyn Write, command: &Command) -> io::Result<()> {
    let about = command.get_long_about().or(command.get_about());
    writeln!(
        out,
        "{}",
        escape_roff(&about.map(ToString::to_string).unwrap_or_default())
    )?;
    let own = |option: &&Arg| {
        !option.is_hide_set() && !matches!(option.get_action(), ArgAction::Help | ArgAction::Version)
    };
    let mut headings: Vec<&str> = Vec::new();
    for option in command.get_arguments().filter(own) {
        let heading = option.get_help_heading().unwrap_or("Operands and options");
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    for heading in headings {
        write_subheading(out, heading)?;
        let is_in_section =
            |option: &&Arg| option.get_help_heading().unwrap_or("Operands and options") == heading;
        for option in command.get_arguments().filter(own).filter(is_in_section) {
            writeln!(out, ".TP\n{}", option_forms(option))?;
            let help = option.get_long_help().or(option.get_help());
            let help = help.map(ToString::to_string).unwrap_or_default();
            writeln!(
                out,
                "{}{}",
                escape_roff(&help.replace("\n\n", ". ")),
                escape_roff(&default_text(option))
            )?;
        }
    }
    Ok(())
}

/// Returns the forms of an option, short and long.
fn option_forms(option: &Arg) -> String {
    let mut forms = Vec::new();
    forms.extend(option.get_short().map(|short| format!("\\fB\\-{short}\\fR")));
    forms.extend(
        option
            .get_long()
            .map(|long| format!("\\fB{}\\fR", escape_roff(&format!("--{long}")))),
    );
    let takes = option.get_action().takes_values();
    let names = option.get_value_names().filter(|_| takes).unwrap_or_default();
    let values: String = names
        .iter()
        .map(|name| format!(" \\fI{}\\fR", escape_roff(name)))
        .collect();
    format!("{}{values}", forms.join(", ")).trim_start().to_owned()
}

fn default_text(option: &Arg) -> String {
    let values: Vec<String> = option
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy().into_owned())
        .collect();
    if values.is_empty() || !option.get_action().takes_values() {
        return String::new();
    }
    format!(" [default: {}]", values.join(", "))
}

fn write_lines(out: &mut dyn Write, section: &Section) -> io::Result<()> {
    let (Lines::Terms(lines) | Lines::Commands(lines)) = section.lines;
    for (name, meaning) in lines {
        write_term(out, name, meaning)?;
    }
    Ok(())
}

fn write_subheading(out: &mut dyn Write, title: &str) -> io::Result<()> {
    writeln!(out, ".SS \"{}\"", escape_roff(title))
}

fn write_heading(out: &mut dyn Write, title: &str) -> io::Result<()> {
    writeln!(out, ".SH \"{}\"", title.to_uppercase())
}

fn write_term(out: &mut dyn Write, name: &str, meaning: &str) -> io::Result<()> {
    writeln!(
        out,
        ".TP\n\\fB{}\\fR\n{}",
        escape_roff(name),
        escape_roff(meaning)
    )
}

/// Escapes text for `roff`: hyphens remain ASCII hyphens, and no line begins with a control character.
fn escape_roff(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) {
        format!("\\&{text}")
    } else {
        text
    }
}
