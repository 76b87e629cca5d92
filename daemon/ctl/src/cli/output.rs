//! Choice of the output, as several commands take it.

use std::str::FromStr;

use clap::{Args, ValueEnum};

/// Choice between text and JSON output.
#[derive(Args, Clone, Copy, Debug)]
pub struct OutputArgs {
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// Form, order and filters of a list.
#[derive(Args, Clone, Debug, Default)]
pub struct ListingArgs {
    /// Form of the output [default: a table as wide as the terminal]
    #[arg(short = 'o', long, value_enum, value_name = "FORM")]
    pub output: Option<ListForm>,
    /// Print JSON instead of text, as with `-o json`
    #[arg(long, conflicts_with = "output")]
    pub json: bool,
    /// Sort by this column, such as age or in-slices
    #[arg(long, value_name = "COLUMN")]
    pub sort: Option<String>,
    /// Only entries with this state, user, project, gpu, pod or name; several filters apply together
    #[arg(long, value_name = "KEY=VALUE")]
    pub filter: Vec<Condition>,
}

impl ListingArgs {
    /// The form, by either option.
    pub const fn form(&self) -> Option<ListForm> {
        if self.json { Some(ListForm::Json) } else { self.output }
    }
}

/// Form in which a list is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListForm {
    /// A table with all columns, as wide as its content
    Wide,
    /// JSON with everything that is known
    Json,
    /// Comma-separated values of all columns
    Csv,
    /// Names alone, one on each line
    Name,
}

/// A condition of `--filter`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The compared property, in small letters.
    pub key: String,
    /// The value that it has to have.
    pub value: String,
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text
            .split_once('=')
            .ok_or_else(|| format!("{text:?} is no filter: write KEY=VALUE, such as state=running"))?;
        Ok(Self { key: key.trim().to_lowercase(), value: value.trim().to_owned() })
    }
}
