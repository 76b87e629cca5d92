//! Laws on the models of the zoo: a subset, or with `ZOO=all` each law on each model.

use arena::zoo::{Bound, Figure, LAWS, MODELS, Quick, Row, Verdict, play};

fn judge(row: &Row) -> Option<String> {
    let Row { model, law, figure } = row;
    let Figure { name, unit, promised, measured, ideal, unscheduled } = figure;
    let failed = format!(
        "{model}, {law}: {name} {measured:.3} {unit}, promised {promised:?}, listed {:?}, ideal {ideal:?}, \
         unscheduled {unscheduled:?}",
        row.listed()
    );
    (row.verdict() == Verdict::Fails).then_some(failed)
}

#[test]
fn laws_hold_on_models_as_far_as_listed() {
    let all = std::env::var("ZOO").is_ok_and(|which| which == "all");
    let mut failed = Vec::new();
    for (model, law) in MODELS.iter().flat_map(|model| LAWS.iter().map(move |law| (model, law))) {
        if all || law.is_quick_on(model) {
            failed.extend(play(model, law).iter().filter_map(judge));
        }
    }
    assert!(failed.is_empty(), "{} figures beyond their bounds:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn subset_names_models_and_holds_every_law() {
    for law in LAWS {
        let quick = MODELS.iter().filter(|model| law.is_quick_on(model)).count();
        let named = match law.quick {
            Quick::All => MODELS.len(),
            Quick::On(names) => names.len(),
        };
        assert!(quick == named && quick > 0, "{} names a model that does not exist, or none", law.name);
    }
}

#[test]
fn figure_beyond_promise_and_list_fails() {
    let figure = |promised, measured| Figure {
        name: "no such figure",
        unit: "pp",
        promised,
        measured,
        ideal: None,
        unscheduled: None,
    };
    let row =
        |promised, measured| Row { model: "plain", law: "shares-1ms", figure: figure(promised, measured) };
    assert_eq!(row(Bound::AtMost(1.0), 0.9).verdict(), Verdict::Holds);
    assert_eq!(row(Bound::AtMost(1.0), 1.1).verdict(), Verdict::Fails);
    assert_eq!(row(Bound::AtLeast(1.0), 0.9).verdict(), Verdict::Fails);
    assert_eq!(row(Bound::AtLeast(1.0), f64::NAN).verdict(), Verdict::Fails);
}
