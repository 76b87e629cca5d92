//! Findings of the prose lint: words and forms that `docs/GLOSSARY.md` rules out, by crate.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

pub mod comments;

use comments::{Block, Kind};

/// Most characters in the first sentence of a doc comment.
const SUMMARY_CHARACTERS: usize = 100;
/// Fewest words in a doc comment that states no number, unit or code.
const DOC_WORDS: usize = 4;
/// Fewest words in a SAFETY argument, references to another one not counted.
const SAFETY_WORDS: usize = 5;

/// The rules, in the order of the columns of the measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A pronoun of persons as the subject or object of a technical sentence.
    Person,
    /// A verb of speech or sight, which machines lack.
    Speech,
    /// An idiom with a plainer equivalent.
    Idiom,
    /// A doc summary that begins as a question does.
    Question,
    /// A doc comment that repeats the item's name, or has at most three words and no figure.
    Filler,
    /// A SAFETY comment that names no precondition.
    Safety,
    /// A doc summary over 100 characters.
    Long,
}

impl Rule {
    /// Every rule, in the order of columns.
    pub const ALL: [Self; 7] =
        [Self::Person, Self::Speech, Self::Idiom, Self::Question, Self::Filler, Self::Safety, Self::Long];
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Person => "person",
            Self::Speech => "speech",
            Self::Idiom => "idiom",
            Self::Question => "question",
            Self::Filler => "filler",
            Self::Safety => "safety",
            Self::Long => "long",
        })
    }
}

const PERSONS: &[&str] = &[
    "nobody",
    "somebody",
    "anybody",
    "everybody",
    "someone",
    "anyone",
    "everyone",
    "whoever",
    "whomever",
    "whom",
    "those who",
    "no one",
    "no-one",
];

const SPEECH: &[&str] = &[
    "say",
    "says",
    "said",
    "saying",
    "tell",
    "tells",
    "told",
    "telling",
    "hear",
    "hears",
    "heard",
    "hearing",
    "look at",
    "looks at",
    "looked at",
    "looking at",
    "ask",
    "asks",
    "asked",
    "asking",
    "believe",
    "believes",
    "believed",
    "believing",
];

const IDIOMS: &[&str] = &[
    "go on",
    "goes on",
    "went on",
    "going on",
    "gone on",
    "no more",
    "for ever",
    "forever",
    "so many",
    "is to be",
    "are to be",
    "was to be",
    "were to be",
];

/// Idioms that are plain in the longer phrase.
const PLAIN: &[&str] = &["no more than"];

const QUESTIONS: &[&str] =
    &["what", "who", "whose", "whether", "how", "which", "where", "when", "whoever", "whatever"];

/// References and formulas that are no SAFETY argument by themselves.
const NO_ARGUMENT: &[&str] = &[
    "the program's own call",
    "as above",
    "see above",
    "the same as above",
    "this function's contract",
    "the caller's promise",
    "by this module's contract",
    "as in",
];

/// Words that carry no information in a comparison with the item's name.
const EMPTY: &[&str] = &[
    "a", "an", "the", "of", "its", "it", "is", "this", "that", "to", "in", "by", "for", "as", "with", "and",
    "has", "get", "gets", "return", "returns", "one", "be",
];

/// Units and dimensions, which inform in the shortest text.
const UNITS: &[&str] = &[
    "bytes",
    "byte",
    "bits",
    "units",
    "pages",
    "words",
    "nanoseconds",
    "microseconds",
    "milliseconds",
    "seconds",
    "minutes",
    "hours",
    "permille",
    "percent",
    "mib",
    "gib",
    "kib",
    "utf-8",
];

/// One violation of a rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    /// File, relative to the root.
    pub path: PathBuf,
    /// Line number from 1.
    pub line: usize,
    /// The rule that is violated.
    pub rule: Rule,
    /// The words that violate it.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path.display(), self.line, self.rule, self.text)
    }
}

/// Findings of one crate or folder of documents.
#[derive(Debug, Default)]
pub struct Measure {
    /// Words in comments and documents, code left out.
    pub words: usize,
    /// Findings, in the order of files and lines.
    pub findings: Vec<Finding>,
}

impl Measure {
    /// Number of findings of one rule.
    pub fn count(&self, rule: Rule) -> usize {
        self.findings.iter().filter(|finding| finding.rule == rule).count()
    }

    /// Findings per 1,000 words.
    pub fn rate(&self) -> f64 {
        let count = |number: usize| u32::try_from(number).map_or(f64::INFINITY, f64::from);
        count(self.findings.len()) * 1000.0 / count(self.words.max(1))
    }

    fn add(&mut self, path: &Path, blocks: &[Block]) {
        for block in blocks {
            let words = words(block);
            let mut found: Vec<_> = phrases(&words).collect();
            if block.kind == Kind::Message {
                // What a message demands of its reader is a verb of speech; a part of a sentence has no idioms.
                found.retain(|(_, rule, _)| *rule == Rule::Person);
            } else {
                self.words += words.len();
            }
            match block.kind {
                Kind::Doc => found.extend(summary(&words, block)),
                Kind::Comment => found.extend(safety(&words)),
                Kind::Help | Kind::Message | Kind::Markdown => {}
            }
            found.sort();
            let finding = |(line, rule, text)| Finding { path: path.to_owned(), line, rule, text };
            self.findings.extend(found.into_iter().map(finding));
        }
    }
}

/// The measure of each crate and each folder of documents, by its path. `README.md` at the root is its own.
pub fn measure() -> BTreeMap<String, Measure> {
    let tracked = crate::tracked();
    let crates: Vec<&Path> =
        tracked.iter().filter(|path| path.ends_with("Cargo.toml")).filter_map(|path| path.parent()).collect();
    let mut measures: BTreeMap<String, Measure> = BTreeMap::new();
    for path in &tracked {
        let blocks = match blocks(path) {
            Some(blocks) => blocks,
            None => continue,
        };
        let home =
            path.ancestors().skip(1).find(|folder| crates.contains(folder) && *folder != Path::new(""));
        let unit = home.or(path.parent()).filter(|folder| *folder != Path::new("")).unwrap_or(path);
        measures.entry(unit.display().to_string()).or_default().add(path, &blocks);
    }
    measures
}

/// The blocks of a file that the lint reads; none for every other file.
fn blocks(path: &Path) -> Option<Vec<Block>> {
    let name = path.file_name()?.to_str()?;
    if path.extension().is_some_and(|extension| extension == "rs") {
        let folder = path.parent().and_then(Path::file_name).and_then(|folder| folder.to_str());
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let module = stem.filter(|stem| !["mod", "lib", "main"].contains(stem)).or(folder);
        let mut blocks = comments::of_rust(&crate::text(path)?, module.unwrap_or_default());
        let is_test = path.components().any(|part| part.as_os_str() == "tests")
            || stem.is_some_and(|stem| stem.ends_with("tests"));
        blocks.retain(|block| block.kind != Kind::Message || !is_test);
        return Some(blocks);
    }
    let is_document = name.ends_with(".md") && path.starts_with("docs");
    let read = is_document || ["README.md", "CONTRIBUTING.md"].contains(&name);
    read.then(|| crate::text(path).map(|text| comments::of_markdown(&text))).flatten()
}

/// One word of a block.
#[derive(Debug)]
struct Word {
    line: usize,
    /// As written, marks included; inline code as one backtick.
    text: String,
    /// In lower case, without marks and without a possessive ending.
    plain: String,
}

impl Word {
    fn new(line: usize, text: &str) -> Self {
        let plain = text.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
        let plain = plain.strip_suffix("'s").unwrap_or(&plain).to_owned();
        Self { line, text: text.to_owned(), plain }
    }

    fn is_code(&self) -> bool {
        self.text.contains('`')
    }

    /// True for the last word of a sentence.
    fn ends_sentence(&self) -> bool {
        let text = self.text.trim_end_matches(['"', '\'', ')', '*', '_']);
        text.ends_with(['.', '!', '?']) && !["e.g.", "i.e.", "cf.", "vs.", "etc."].contains(&text)
    }
}

/// The words of a block, each piece of inline code as one word, code fences and link targets left out.
fn words(block: &Block) -> Vec<Word> {
    let (mut words, mut fenced, mut code) = (Vec::new(), false, false);
    for (line, text) in &block.lines {
        if text.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if fenced {
            continue;
        }
        let mut kept = String::new();
        for (index, part) in text.split('`').enumerate() {
            code ^= index > 0;
            match (index > 0, code) {
                (true, true) => kept.push('`'),
                (_, false) => kept.push_str(part),
                (false, true) => {}
            }
        }
        // Inline code ends with its paragraph, so that an unpaired backtick hides one paragraph at most.
        code &= !text.trim().is_empty();
        let kept = without_targets(&kept);
        words.extend(
            kept.split([' ', '/', '\u{2013}', '\u{2014}', '|'])
                .filter(|word| !word.trim().is_empty())
                .map(|word| Word::new(*line, word.trim())),
        );
    }
    words.retain(|word| word.is_code() || !word.plain.is_empty());
    words
}

/// A line without the targets of its Markdown links.
fn without_targets(line: &str) -> String {
    let mut parts = line.split("](");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        kept.push_str(part.split_once(')').map_or("", |(_, after)| after));
    }
    kept
}

/// Findings of the rules about single words and phrases.
fn phrases(words: &[Word]) -> impl Iterator<Item = (usize, Rule, String)> {
    let lists = [(Rule::Person, PERSONS), (Rule::Speech, SPEECH), (Rule::Idiom, IDIOMS)];
    (0..words.len()).flat_map(move |at| {
        let begins = move |phrase: &&&str| starts_with(&words[at..], phrase);
        let found = lists.into_iter().filter_map(move |(rule, list)| Some((rule, list.iter().find(begins)?)));
        let plain = PLAIN.iter().any(|plain| starts_with(&words[at..], plain));
        found.filter(move |_| !plain).map(move |(rule, phrase)| (words[at].line, rule, (*phrase).to_owned()))
    })
}

fn starts_with(words: &[Word], phrase: &str) -> bool {
    let mut wanted = phrase.split(' ');
    let matches = words.iter().zip(wanted.by_ref()).all(|(word, wanted)| word.plain == wanted);
    matches && phrase.split(' ').count() <= words.len()
}

/// Findings of the rules about doc comments.
fn summary(words: &[Word], block: &Block) -> Vec<(usize, Rule, String)> {
    let Some(first) = words.first() else { return Vec::new() };
    let paragraph_end = block.lines.iter().find(|(line, text)| *line > first.line && text.trim().is_empty());
    let end = paragraph_end.map_or(usize::MAX, |(line, _)| *line);
    let mut found = Vec::new();
    if QUESTIONS.contains(&first.plain.as_str()) {
        found.push((first.line, Rule::Question, first.text.clone()));
    }
    let sentence: String = sentence(block, end);
    if sentence.chars().count() > SUMMARY_CHARACTERS {
        found.push((first.line, Rule::Long, format!("{} characters", sentence.chars().count())));
    }
    if is_filler(words, block.item.as_deref().unwrap_or_default()) {
        found.push((first.line, Rule::Filler, sentence));
    }
    found
}

/// The first sentence of a block, code included, up to that line.
fn sentence(block: &Block, end: usize) -> String {
    let mut sentence: Vec<&str> = Vec::new();
    for (_, text) in block.lines.iter().filter(|(line, _)| *line < end) {
        for word in text.split_whitespace() {
            sentence.push(word);
            if Word::new(0, word).ends_sentence() {
                return sentence.join(" ");
            }
        }
    }
    sentence.join(" ")
}

/// True for a doc comment that adds nothing to the name of its item.
fn is_filler(words: &[Word], item: &str) -> bool {
    let informs = |word: &Word| {
        word.is_code()
            || word.plain.contains(|c: char| c.is_ascii_digit())
            || UNITS.contains(&word.plain.as_str())
    };
    if words.iter().any(informs) {
        return false;
    }
    let name = parts(item);
    let content: Vec<&str> =
        words.iter().map(|word| word.plain.as_str()).filter(|word| !EMPTY.contains(word)).collect();
    let repeats = content.iter().all(|word| name.iter().any(|part| stem(part) == stem(word)));
    words.len() < DOC_WORDS || repeats
}

/// The words of an identifier, in lower case.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut previous = '_';
    for c in name.chars() {
        if c == '_' || c.is_uppercase() && previous.is_lowercase() {
            parts.push(String::new());
        }
        if c != '_' {
            parts.last_mut().expect("it has a first part").extend(c.to_lowercase());
        }
        previous = c;
    }
    parts
}

/// A word without its ending, for comparison alone.
fn stem(word: &str) -> &str {
    let short = ["ing", "ed", "es", "s", "e"].into_iter().find_map(|ending| word.strip_suffix(ending));
    short.filter(|short| short.len() >= 3).unwrap_or(word)
}

/// Findings of the rule about SAFETY comments: each argument of a block by itself.
fn safety(words: &[Word]) -> Vec<(usize, Rule, String)> {
    let starts: Vec<usize> = (0..words.len()).filter(|at| words[*at].text.starts_with("SAFETY:")).collect();
    let ends = starts.iter().copied().skip(1).chain([words.len()]);
    let arguments = starts.iter().copied().zip(ends).map(|(start, end)| &words[start..end]);
    let without = arguments.filter(|argument| !argues(&argument[1..]));
    without.map(|argument| (argument[0].line, Rule::Safety, text(argument))).collect()
}

/// True if an argument has enough words beside references and formulas.
fn argues(argument: &[Word]) -> bool {
    let (mut at, mut left) = (0, 0);
    while at < argument.len() {
        let formula = NO_ARGUMENT.iter().find(|formula| {
            let plain = formula.replace("'s", "");
            starts_with(&argument[at..], &plain)
        });
        let skipped = formula.map_or(0, |formula| formula.split(' ').count());
        left += usize::from(skipped == 0);
        at += skipped.max(1);
    }
    left >= SAFETY_WORDS
}

fn text(words: &[Word]) -> String {
    words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ")
}

/// Path of the ratchet's table, relative to the root.
pub const TABLE: &str = "tests/architecture/prose.tsv";

/// The findings that the ratchet's table allows, by crate or folder.
///
/// # Panics
/// If the table is missing, or a line of it is not a number, a tab and a path.
pub fn allowed() -> BTreeMap<String, usize> {
    let text = crate::text(Path::new(TABLE)).expect("the table of allowed findings is tracked");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let entry = |line: &str| {
        let (number, unit) = line.split_once('\t')?;
        Some((unit.to_owned(), number.parse().ok()?))
    };
    lines.map(|line| entry(line).unwrap_or_else(|| panic!("{TABLE}: {line:?}"))).collect()
}

/// The table with these figures: one line for each crate or folder with findings, sorted by path.
///
/// An empty line separates each two, so that branches which lower neighbours merge without a conflict.
pub fn table(figures: &BTreeMap<String, usize>) -> String {
    let mut text = String::from(
        "# Most findings of the prose lint, by crate or folder. Each figure is what the lint finds: lower it with the\n\
         # findings (`cargo run -p architecture --example prose -- --lower`). A path without a line has none.\n",
    );
    for (unit, figure) in figures.iter().filter(|(_, figure)| **figure > 0) {
        text.push_str(&format!("\n{figure}\t{unit}\n"));
    }
    text
}

#[cfg(test)]
mod tests;
