//! Each law on each model of the hardware zoo: `make zoo`. Arguments: a folder for the tables, and words of which the
//! names of model and law must contain each.
//!
//! `seed=N` among the words plays other games: listed bounds are of seed 1.

use std::path::PathBuf;
use std::process::ExitCode;

use arena::zoo::{LAWS, MODELS, Model, Verdict, json, markdown, play, short_rows};

fn main() -> std::io::Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().unwrap_or_else(|| "target/report".to_owned()));
    let (seeds, words): (Vec<String>, Vec<String>) = arguments.partition(|word| word.starts_with("seed="));
    let seed = seeds.last().map_or(Ok(1), |word| word["seed=".len()..].parse());
    let seed = seed.map_err(std::io::Error::other)?;
    let mut rows = Vec::new();
    let models = MODELS.iter().map(|model| Model { seed, ..*model });
    for (model, law) in models.flat_map(|model| LAWS.iter().map(move |law| (model, law))) {
        let name = format!("{} {}", model.name, law.name);
        if words.iter().all(|word| name.contains(word.as_str())) {
            let figures = play(&model, law);
            for row in figures.iter().filter(|row| row.verdict() != Verdict::Holds) {
                println!("{name}: {} {:.3} {:?}", row.figure.name, row.figure.measured, row.verdict());
            }
            rows.extend(figures);
        }
    }
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("zoo.json"), json(&rows))?;
    std::fs::write(folder.join("zoo.md"), markdown(&rows))?;
    std::fs::write(folder.join("zoo-short.tsv"), short_rows(&rows))?;
    let fails = rows.iter().filter(|row| row.verdict() == Verdict::Fails).count();
    println!("{} figures, {fails} beyond their bounds: {}", rows.len(), folder.join("zoo.md").display());
    Ok(if fails == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
