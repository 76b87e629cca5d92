//! Figures that are known to be beyond what is promised.

use std::sync::LazyLock;

/// A figure that is short of its promise, and the bound that holds today.
#[derive(Clone, Copy, Debug)]
pub struct Short {
    /// Name of the model.
    pub model: &'static str,
    /// Name of the law.
    pub law: &'static str,
    /// Name of the figure.
    pub figure: &'static str,
    /// Promised bound at the time of this entry.
    pub promised: f64,
    /// Beyond this it fails.
    pub today: f64,
}

/// All of them: `short.tsv`.
pub static SHORT: LazyLock<Vec<Short>> = LazyLock::new(|| {
    let lines = include_str!("short.tsv").lines();
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(parse).collect()
});

fn parse(line: &'static str) -> Short {
    let fields: Vec<&str> = line.split('\t').collect();
    let [model, law, figure, promised, today] = fields[..] else {
        panic!("five fields, not {}: {line}", fields.len())
    };
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("not a number: {line}"));
    Short { model, law, figure, promised: number(promised), today: number(today) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zoo::{LAWS, MODELS};

    #[test]
    fn listed_rows_name_models_and_laws_once() {
        let mut seen = std::collections::BTreeSet::new();
        for short in SHORT.iter() {
            assert!(MODELS.iter().any(|model| model.name == short.model), "{short:?}");
            assert!(LAWS.iter().any(|law| law.name == short.law), "{short:?}");
            assert!(seen.insert((short.model, short.law, short.figure)), "{short:?} twice");
        }
    }
}
