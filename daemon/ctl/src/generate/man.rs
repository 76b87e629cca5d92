//! Man pages of section 1, with examples, exit status and related pages.

use std::fs;
use std::io::Result;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::help::{Example, examples, relatives};

/// Commands whose exit status is that of a program.
const RUNNERS: [&str; 3] = ["tranche-run", "tranche-exec", "tranche-bash"];

/// Writes the page of each command that is not hidden.
pub(super) fn pages(command: Command, out: &Path) -> Result<()> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    page_and_below(&command, None, out)
}

fn page_and_below(command: &Command, parent: Option<&Command>, out: &Path) -> Result<()> {
    let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    for sub in shown {
        page_and_below(sub, Some(command), out)?;
    }
    fs::write(out.join(format!("{}.1", name(command))), page(command, parent)?)
}

/// Name of a command's page, such as `tranche-slice-list`.
fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn page(command: &Command, parent: Option<&Command>) -> Result<Vec<u8>> {
    let (man, mut text) = (Man::new(command.clone()), Vec::new());
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.get_subcommands().any(|sub| !sub.is_hide_set()) {
        man.render_subcommands_section(&mut text)?;
    }
    let mut roff = Roff::new();
    show_examples(&mut roff, &examples(name(command)));
    roff.control("SH", ["EXIT STATUS"]).text([roman(exit_status(name(command)))]);
    see_also(&mut roff, command, parent);
    roff.to_writer(&mut text)?;
    Ok(text)
}

fn show_examples(roff: &mut Roff, examples: &[Example]) {
    if !examples.is_empty() {
        roff.control("SH", ["EXAMPLES"]);
    }
    for (line, remark) in examples {
        roff.control("TP", []).text([bold(*line)]).text([roman(*remark)]);
    }
}

fn exit_status(page: &str) -> &'static str {
    if RUNNERS.contains(&page) {
        "That of the program, or 128 and the number of the signal that ended it; 127 if there is no such program, 126 if it \
         cannot be executed, 1 if it was not started for another reason, and 2 if the command line is wrong."
    } else {
        "0 if everything was done, 1 if something was refused or failed, and 2 if the command line is wrong."
    }
}

fn see_also(roff: &mut Roff, command: &Command, parent: Option<&Command>) {
    let siblings = parent.into_iter().flat_map(Command::get_subcommands);
    let is_top = parent.is_some_and(|parent| name(parent) == "tranche");
    let group = relatives(command.get_name());
    let siblings = siblings.filter(|sub| !is_top || group.contains(&sub.get_name()));
    let related = siblings.chain(command.get_subcommands()).filter(|sub| !sub.is_hide_set()).map(name);
    let above = parent.map(name).into_iter().chain(["tranche"]);
    let mut pages: Vec<&str> = above.chain(related).filter(|page| *page != name(command)).collect();
    pages.sort_unstable();
    pages.dedup();
    let mut line = Vec::new();
    for page in pages {
        line.extend([bold(page), roman("(1), ")]);
    }
    line.extend([bold("tranched.toml"), roman("(5)")]);
    roff.control("SH", ["SEE ALSO"]).text(line);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::help::command;

    #[test]
    fn pages_have_examples_exit_status_and_relatives() {
        let out = tempfile::tempdir().unwrap();
        pages(command(), out.path()).unwrap();
        let text = |page: &str| fs::read_to_string(out.path().join(page)).unwrap();
        for part in [
            ".SH EXAMPLES",
            "\\fBtranche run \\-g 0.5",
            ".SH \"EXIT STATUS\"",
            "127",
            ".SH \"SEE ALSO\"",
            "\\fBtranche\\-exec\\fR(1), ",
        ] {
            assert!(
                text("tranche-run.1").contains(part),
                "{part} is missing from\n{}",
                text("tranche-run.1")
            );
        }
        assert!(
            text("tranche-slice-list.1").contains("\\fBtranche\\-slice\\fR(1)"),
            "{}",
            text("tranche-slice-list.1")
        );
        assert!(text("tranche.1").contains("tranched.toml") && !text("tranche.1").contains("generate"));
    }
}
