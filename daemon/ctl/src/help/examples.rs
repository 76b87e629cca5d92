//! Examples of the commands, for help and man pages.

/// A command line with a remark.
pub type Example = (&'static str, &'static str);

/// Lines with the page of a command, a command line and a remark, separated by tabs.
const EXAMPLES: &str = include_str!("../../data/examples.tsv");

/// Examples of the command with this page; a command of commands has none.
pub fn examples(page: &str) -> Vec<Example> {
    let of_page = |line: &'static str| line.strip_prefix(page)?.strip_prefix('\t')?.split_once('\t');
    EXAMPLES.lines().filter_map(of_page).collect()
}
