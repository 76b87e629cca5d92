//! Prints the measure of the prose lint: findings of each crate by rule, and per 1,000 words.
//!
//! With the paths of crates or files it lists the findings there; with `--lower` it lowers the figures of the
//! ratchet's table to those found.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::process::ExitCode;

use architecture::prose::{Measure, Rule, TABLE, allowed, measure, table};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let measures = measure();
    if arguments.iter().any(|argument| argument == "--lower") {
        return lower(&measures);
    }
    if arguments.is_empty() {
        print_figures(&measures);
    }
    for finding in measures.values().flat_map(|measure| &measure.findings) {
        if arguments.iter().any(|prefix| finding.path.starts_with(prefix.trim_end_matches('/'))) {
            println!("{finding}");
        }
    }
    ExitCode::SUCCESS
}

fn print_figures(measures: &BTreeMap<String, Measure>) {
    let heads: String = Rule::ALL.iter().map(|rule| format!("{rule:>9}")).collect();
    println!("{:<24}{:>8}{heads}{:>7}{:>8}", "", "words", "all", "/1000");
    let print = |unit: &str, words: usize, counts: [usize; 7], rate: f64| {
        let cells: String = counts.iter().map(|count| format!("{count:>9}")).collect();
        println!("{unit:<24}{words:>8}{cells}{:>7}{rate:>8.1}", counts.iter().sum::<usize>());
    };
    let mut whole = Measure::default();
    let mut sums = [0; 7];
    for (unit, measure) in measures {
        let counts = Rule::ALL.map(|rule| measure.count(rule));
        print(unit, measure.words, counts, measure.rate());
        whole.words += measure.words;
        sums = std::array::from_fn(|at| sums[at] + counts[at]);
    }
    let all = sums.iter().sum::<usize>();
    let share = |number: usize| u32::try_from(number).map_or(f64::INFINITY, f64::from);
    print("all", whole.words, sums, share(all) * 1000.0 / share(whole.words.max(1)));
}

/// Writes the table with lower figures. A higher one fails, because new findings are mended, not allowed.
fn lower(measures: &BTreeMap<String, Measure>) -> ExitCode {
    let allowed = allowed();
    let mut figures = BTreeMap::new();
    let mut risen = false;
    for (unit, measure) in measures {
        let (found, most) = (measure.findings.len(), allowed.get(unit).copied().unwrap_or(0));
        if found > most {
            eprintln!("{unit}: {found} findings, {most} allowed");
            risen = true;
        }
        figures.insert(unit.clone(), found.min(most));
    }
    if let Err(error) = std::fs::write(architecture::root().join(TABLE), table(&figures)) {
        eprintln!("{TABLE} cannot be written: {error}");
        return ExitCode::FAILURE;
    }
    if risen { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
