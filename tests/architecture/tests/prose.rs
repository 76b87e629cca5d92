//! The ratchet of the prose lint: each crate has as many findings as its line of the table allows.

use architecture::prose::{TABLE, allowed, measure, table};

#[test]
fn each_crate_has_the_findings_that_the_table_allows() {
    let (measures, allowed) = (measure(), allowed());
    let mut wrong = Vec::new();
    for (unit, measure) in &measures {
        let most = allowed.get(unit).copied().unwrap_or(0);
        let found = measure.findings.len();
        if found > most {
            wrong.push(format!(
                "{unit}: {found} findings, {most} allowed: cargo run -p architecture --example prose {unit}"
            ));
        } else if found < most {
            wrong.push(format!("{unit}: {found} findings, {most} allowed: lower its line in {TABLE}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn table_is_sorted_and_names_units_that_exist() {
    let (measures, allowed) = (measure(), allowed());
    let gone: Vec<_> = allowed.keys().filter(|unit| !measures.contains_key(*unit)).collect();
    assert!(gone.is_empty(), "{TABLE} names {gone:?}, where nothing is read");
    let text = architecture::text(std::path::Path::new(TABLE)).expect("the table is tracked");
    assert_eq!(text, table(&allowed), "{TABLE}: the form that `--lower` writes");
}
