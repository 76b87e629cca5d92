//! Results of the checks as a table.

use comfy_table::presets::NOTHING;
use comfy_table::{ColumnConstraint, ContentArrangement, Table};

use super::check::{Check, Found, Verdict};

/// Width of the table in columns, for terminals and files alike.
const WIDTH: u16 = 100;

/// Renders the results, with their number at the end.
pub(super) fn render(checks: &[Check]) -> String {
    let rows = checks.iter().map(|check| {
        let remedy = check.remedy.iter().map(|remedy| format!("\n-> {remedy}"));
        let found = check.found.clone() + &remedy.collect::<String>();
        [shout(check.verdict).into(), check.check.clone(), found]
    });
    format!("{}\n\n{}\n", table(rows), Found::of(checks))
}

/// Renders rows of a state, a name and an observation.
pub(super) fn table(rows: impl Iterator<Item = [String; 3]>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
    table.add_rows(rows);
    // Names are never wrapped; observations are.
    table.set_constraints([ColumnConstraint::ContentWidth, ColumnConstraint::ContentWidth]);
    table.trim_fmt()
}

/// Display form of a severity; problems are in capitals.
fn shout(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Ok => "ok",
        Verdict::Warning => "WARNING",
        Verdict::Problem => "PROBLEM",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_has_observation_and_remedy() {
        let check = |verdict, remedy: Option<&str>| Check {
            check: "mps".into(),
            verdict,
            found: "found\nmore".into(),
            remedy: remedy.map(Into::into),
        };
        assert_eq!(
            render(&[check(Verdict::Ok, None), check(Verdict::Problem, Some("do this"))]),
            " ok       mps  found\n\
             \x20              more\n\
             \x20PROBLEM  mps  found\n\
             \x20              more\n\
             \x20              -> do this\n\
             \n\
             1 problem, no warnings\n"
        );
    }

    #[test]
    fn long_findings_are_wrapped() {
        let long =
            Check { check: "kernel".into(), verdict: Verdict::Ok, found: "word ".repeat(60), remedy: None };
        assert!(render(&[long]).lines().all(|line| line.len() <= WIDTH.into()));
    }
}
