//! Tables of figures, as JSON, Markdown and tab-separated lines.

use std::fmt::Write as _;

use super::{Bound, LAWS, MODELS, Row, Verdict};

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Short => "short",
            Self::Fails => "fails",
        }
    }
}

fn bound(bound: Bound) -> String {
    match bound {
        Bound::AtMost(value) => format!("<= {value:.3}"),
        Bound::AtLeast(value) => format!(">= {value:.3}"),
    }
}

/// All figures as JSON.
pub fn json(rows: &[Row]) -> String {
    let number = |value: Option<f64>| match value {
        Some(value) if value.is_finite() => format!("{value:.4}"),
        _ => "null".to_owned(),
    };
    let object = |row: &Row| {
        let figure = &row.figure;
        let kind = if matches!(figure.promised, Bound::AtMost(_)) { "at_most" } else { "at_least" };
        format!(
            "  {{\"model\": {:?}, \"law\": {:?}, \"figure\": {:?}, \"unit\": {:?}, \"promised\": {{\"{kind}\": {}}}, \
             \"today\": {}, \"measured\": {}, \"ideal\": {}, \"unscheduled\": {}, \"verdict\": {:?}}}",
            row.model,
            row.law,
            figure.name,
            figure.unit,
            number(Some(figure.promised.value())),
            number(row.listed().map(|short| short.today)),
            number(Some(figure.measured)),
            number(figure.ideal),
            number(figure.unscheduled),
            row.verdict().word(),
        )
    };
    format!("[\n{}\n]\n", rows.iter().map(object).collect::<Vec<_>>().join(",\n"))
}

/// All figures as Markdown: models and laws first, then one table for each law.
pub fn markdown(rows: &[Row]) -> String {
    let mut text =
        String::from("# The hardware zoo (simulated, virtual time)\n\n| model | why |\n|---|---|\n");
    for model in MODELS {
        _ = writeln!(text, "| {} | {} |", model.name, model.why);
    }
    let count = |wanted| rows.iter().filter(|row| row.verdict() == wanted).count();
    let (holds, short, fails) = (count(Verdict::Holds), count(Verdict::Short), count(Verdict::Fails));
    _ = writeln!(text, "\n{holds} figures hold, {short} are short of what is promised, {fails} fail.");
    for law in LAWS {
        _ = writeln!(text, "\n## {}\n\n{}.\n", law.name, law.what);
        text += "| model | figure | promised | measured | ideal | unscheduled | |\n|---|---|---|---|---|---|---|\n";
        rows.iter().filter(|row| row.law == law.name).for_each(|row| text += &line(row));
    }
    text
}

fn line(row: &Row) -> String {
    let (figure, verdict) = (&row.figure, row.verdict());
    let value = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.3}"));
    let note = match (verdict, row.listed()) {
        (Verdict::Holds, None) => String::new(),
        (Verdict::Holds, Some(_)) => "holds, and is listed as short".to_owned(),
        (_, Some(short)) => format!("**{}**, today {:.3}", verdict.word(), short.today),
        (_, None) => format!("**{}**", verdict.word()),
    };
    format!(
        "| {} | {}, {} | {} | {:.3} | {} | {} | {note} |\n",
        row.model,
        figure.name,
        figure.unit,
        bound(figure.promised),
        figure.measured,
        value(figure.ideal),
        value(figure.unscheduled),
    )
}

/// Figures beyond their promise, as lines of `short.tsv`. Each bound has to spare a tenth of the distance to
/// the promise and two percent of the value, a fifth of the value at most.
pub fn short_rows(rows: &[Row]) -> String {
    let beyond = rows.iter().filter(|row| !row.figure.promised.admits(row.figure.measured));
    let line = |row: &Row| {
        let (promised, measured) = (row.figure.promised.value(), row.figure.measured);
        let spare = ((measured - promised).abs() * 0.1 + measured.abs() * 0.02).min(measured.abs() * 0.2);
        let today = match row.figure.promised {
            Bound::AtMost(_) => ((measured + spare) * 1000.0).ceil() / 1000.0,
            Bound::AtLeast(_) => ((measured - spare) * 1000.0).floor() / 1000.0,
        };
        format!("{}\t{}\t{}\t{promised:.3}\t{today:.3}\n", row.model, row.law, row.figure.name)
    };
    beyond.map(line).collect()
}
