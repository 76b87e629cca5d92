//! Comments and strings of Rust sources, paragraphs of Markdown files, as blocks with line numbers.

/// Kind of a block, by its marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `///`, or `//!` at the head of a file.
    Doc,
    /// `//` and `/* */`.
    Comment,
    /// Help text of a command, as a string in an attribute.
    Help,
    /// Another string of three words or more, outside the tests in the file.
    Message,
    /// Text of a Markdown file.
    Markdown,
}

/// Lines that belong together: consecutive comment lines with one marker, or one Markdown file.
#[derive(Debug)]
pub struct Block {
    /// Kind of its marker.
    pub kind: Kind,
    /// Line numbers from 1, and the text of each without its marker.
    pub lines: Vec<(usize, String)>,
    /// Name of the item that a doc comment describes; of an inner one, of the module.
    pub item: Option<String>,
}

/// Arguments of clap attributes whose strings are printed as help.
const HELP: [&str; 6] = ["about", "long_about", "help", "long_help", "before_help", "after_help"];

/// All comments, help strings and messages of one source.
///
/// `module` names the file for inner doc comments.
pub fn of_rust(source: &str, module: &str) -> Vec<Block> {
    let mut pieces = Scanner::new(source).pieces();
    let lines: Vec<&str> = source.lines().collect();
    let tests = lines.iter().position(|line| line.starts_with("#[cfg(test)]")).unwrap_or(lines.len());
    pieces.retain(|piece| match piece.kind {
        Kind::Help => !piece.text.is_empty(),
        Kind::Message => piece.text.split_whitespace().nth(2).is_some() && piece.line <= tests,
        Kind::Doc | Kind::Comment | Kind::Markdown => true,
    });
    let mut blocks: Vec<Block> = Vec::new();
    let mut previous: Option<Piece> = None;
    for piece in pieces {
        let continues = previous.as_ref().is_some_and(|before| piece.continues(before));
        let entry = (piece.line, piece.text.clone());
        match blocks.last_mut() {
            Some(block) if continues => block.lines.push(entry),
            _ => blocks.push(Block { kind: piece.kind, lines: vec![entry], item: None }),
        }
        if piece.kind == Kind::Doc {
            let block = blocks.last_mut().expect("a block was just added or extended");
            block.item = if piece.inner {
                Some(module.to_owned())
            } else {
                item(&lines[piece.line.min(lines.len())..])
            };
        }
        previous = Some(piece);
    }
    blocks
}

/// The text of a Markdown file as one block, code and link targets left out.
pub fn of_markdown(source: &str) -> Vec<Block> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (index, line) in source.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            lines.push((index + 1, line.to_owned()));
        }
    }
    vec![Block { kind: Kind::Markdown, lines, item: None }]
}

/// Name of the first item in these lines, attributes and comments skipped.
fn item(lines: &[&str]) -> Option<String> {
    const BEFORE: [&str; 16] = [
        "pub", "const", "static", "fn", "unsafe", "extern", "async", "struct", "enum", "trait", "type",
        "mod", "mut", "union", "crate", "super",
    ];
    let code = lines.iter().map(|line| line.trim());
    let mut code = code.skip_while(|line| line.is_empty() || line.starts_with('#') || line.starts_with("//"));
    let words = code.next()?.split(|c: char| !c.is_alphanumeric() && c != '_');
    let mut names = words.filter(|word| !word.is_empty() && *word != "C" && !BEFORE.contains(word));
    names.next().map(str::to_owned)
}

/// One comment line or help string.
#[derive(Clone)]
struct Piece {
    kind: Kind,
    inner: bool,
    line: usize,
    /// True if code precedes it on its line.
    trails: bool,
    text: String,
}

impl Piece {
    /// True if it belongs to the same block as the piece before it.
    fn continues(&self, before: &Self) -> bool {
        let adjacent = self.line == before.line + 1 && !self.trails;
        adjacent
            && self.kind == before.kind
            && self.inner == before.inner
            && ![Kind::Help, Kind::Message].contains(&self.kind)
    }
}

/// A lexer that knows comments, strings and characters, and skips the rest.
struct Scanner<'a> {
    rest: &'a str,
    line: usize,
    /// Code on the current line so far.
    code: String,
    pieces: Vec<Piece>,
}

impl<'a> Scanner<'a> {
    fn new(source: &'a str) -> Self {
        Self { rest: source, line: 1, code: String::new(), pieces: Vec::new() }
    }

    fn pieces(mut self) -> Vec<Piece> {
        while let Some(c) = self.rest.chars().next() {
            if self.rest.starts_with("//") {
                self.line_comment();
            } else if self.rest.starts_with("/*") {
                self.block_comment();
            } else if let Some(hashes) = self.raw_string() {
                self.string(hashes);
            } else if c == '"' {
                self.string(None);
            } else if c == '\'' {
                self.character();
            } else {
                self.code.push(c);
                self.advance(c.len_utf8());
            }
        }
        self.pieces
    }

    /// Steps over `bytes` bytes and counts their lines.
    fn advance(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes.min(self.rest.len()));
        let newlines = taken.matches('\n').count();
        if newlines > 0 {
            self.line += newlines;
            self.code.clear();
        }
        self.rest = rest;
        taken
    }

    fn line_comment(&mut self) {
        let (line, trails) = (self.line, !self.code.trim().is_empty());
        let end = self.rest.find('\n').unwrap_or(self.rest.len());
        let text = self.advance(end);
        let (kind, inner, text) = if text.starts_with("///") && !text.starts_with("////") {
            (Kind::Doc, false, &text[3..])
        } else if let Some(text) = text.strip_prefix("//!") {
            (Kind::Doc, true, text)
        } else {
            (Kind::Comment, false, text.trim_start_matches('/'))
        };
        self.pieces.push(Piece { kind, inner, line, trails, text: text.to_owned() });
    }

    fn block_comment(&mut self) {
        let (mut depth, mut end) = (0_usize, 0);
        while end < self.rest.len() {
            let here = &self.rest[end..];
            if here.starts_with("/*") {
                (depth, end) = (depth + 1, end + 2);
            } else if here.starts_with("*/") {
                (depth, end) = (depth - 1, end + 2);
                if depth == 0 {
                    break;
                }
            } else {
                end += here.chars().next().map_or(1, char::len_utf8);
            }
        }
        let first = self.line;
        let text = self.advance(end).to_owned();
        for (offset, text) in text.lines().enumerate() {
            let text = text.trim().trim_matches(['/', '*']).to_owned();
            let piece =
                Piece { kind: Kind::Comment, inner: false, line: first + offset, trails: false, text };
            self.pieces.push(piece);
        }
    }

    /// Steps to the quote of a raw string that begins here, and returns the number of its hashes.
    fn raw_string(&mut self) -> Option<Option<usize>> {
        let within = self.code.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let prefix = ["r", "br", "cr"].into_iter().find(|prefix| {
            let after = self.rest.strip_prefix(prefix).map(|after| after.trim_start_matches('#'));
            after.is_some_and(|after| after.starts_with('"'))
        });
        let prefix = prefix.filter(|_| !within)?;
        let hashes = self.rest[prefix.len()..].find('"').expect("the quote was just found");
        self.advance(prefix.len() + hashes);
        Some(Some(hashes))
    }

    /// Steps over a string from its opening quote on. `raw` is the number of its hashes, `None` means escapes.
    fn string(&mut self, raw: Option<usize>) {
        let (line, body) = (self.line, &self.rest[1..]);
        let length = match raw {
            Some(hashes) => {
                let end = format!("\"{}", "#".repeat(hashes));
                body.find(&end).unwrap_or(body.len())
            }
            None => unescaped_quote(body),
        };
        let text = body[..length].to_owned();
        let named = self.code.trim_end().strip_suffix('=').map(str::trim_end);
        let is_help = named.is_some_and(|code| {
            HELP.iter().any(|help| {
                code.strip_suffix(help)
                    .is_some_and(|before| before.is_empty() || before.ends_with(['(', ' ', ',']))
            })
        });
        self.advance(1 + length + 1 + raw.unwrap_or(0));
        self.code.push('"');
        let kind = if is_help && !self.code.contains("let ") { Kind::Help } else { Kind::Message };
        self.pieces.push(Piece { kind, inner: false, line, trails: true, text });
    }

    /// A character, or the quote of a lifetime.
    fn character(&mut self) {
        let mut chars = self.rest.chars().skip(1);
        let (first, second) = (chars.next(), chars.next());
        let bytes = if first == Some('\\') {
            // The escaped character may itself be a quote.
            3 + self.rest.get(3..).and_then(|rest| rest.find('\'')).unwrap_or(0) + 1
        } else if second == Some('\'') {
            2 + first.map_or(0, char::len_utf8)
        } else {
            1
        };
        self.code.push('\'');
        self.advance(bytes);
    }
}

/// Length of a string's body up to its closing quote.
fn unescaped_quote(body: &str) -> usize {
    let mut escaped = false;
    for (at, c) in body.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at,
            _ => {}
        }
    }
    body.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<(Kind, usize, String)> {
        let line = |block: Block| {
            let text: Vec<_> = block.lines.iter().map(|(_, text)| text.trim()).collect();
            (block.kind, block.lines[0].0, text.join("|"))
        };
        of_rust(source, "module").into_iter().map(line).collect()
    }

    #[test]
    fn consecutive_lines_with_one_marker_are_one_block() {
        let source = "//! a\n//! b\n\n// c\n// d\n/// e\nfn f() {} // g\n// h\n";
        let expected = [
            (Kind::Doc, 1, "a|b"),
            (Kind::Comment, 4, "c|d"),
            (Kind::Doc, 6, "e"),
            (Kind::Comment, 7, "g|h"),
        ];
        assert_eq!(texts(source), expected.map(|(kind, line, text)| (kind, line, text.to_owned())));
    }

    #[test]
    fn strings_and_characters_hold_no_comments() {
        let source = r####"
            let a = "// no \" // no"; let b = r#"" // no"#; let c = '"'; let d = '\''; let e: &'static str = "x";
            let f = b"//"; // yes
        "####;
        let comments = texts(source).into_iter().filter(|(kind, ..)| *kind != Kind::Message);
        assert_eq!(comments.collect::<Vec<_>>(), [(Kind::Comment, 3, "yes".to_owned())]);
    }

    #[test]
    fn help_strings_of_commands_are_read() {
        let source = "#[arg(long, help = \"Cap of memory\")]\nx: u8,\nlet help = \"no\";\n";
        assert_eq!(texts(source), [(Kind::Help, 1, "Cap of memory".to_owned())]);
    }

    #[test]
    fn strings_of_some_words_are_messages_but_those_of_tests() {
        let source = "#[error(\"the slice is ending\")]\nlet a = \"two words\";\n#[cfg(test)]\nlet b = \"it is a test\";\n";
        assert_eq!(texts(source), [(Kind::Message, 1, "the slice is ending".to_owned())]);
    }

    #[test]
    fn doc_comments_know_their_items() {
        let names: Vec<_> = of_rust("//! m\n\n/// d\n#[inline]\npub const fn answer() {}\n", "module")
            .into_iter()
            .map(|block| block.item.unwrap_or_default())
            .collect();
        assert_eq!(names, ["module", "answer"]);
    }
}
