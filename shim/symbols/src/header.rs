//! Enumerators as a header of the driver declares them, or bindings that were made from one.

use std::collections::BTreeSet;

/// An enumerator: the name of its type, its own name, its number.
pub type Declared = (String, String, i64);

/// Endings of type names in declarations, which tables omit.
const ENDING: &str = "_enum";

/// Enumerators of all types in a header, which may declare one several times.
///
/// Constants whose name begins with a type of `prefixes` count as enumerators of that type.
pub fn enumerators(header: &str, prefixes: &BTreeSet<&str>) -> BTreeSet<Declared> {
    let mut found = BTreeSet::new();
    let mut within: Option<(String, i64)> = None;
    for line in without_comments(header).lines().map(str::trim) {
        if let Some(name) = beginning(line) {
            within = Some((name.to_owned(), 0));
        } else if line.starts_with('}') {
            within = None;
        } else if let Some((kind, next)) = &mut within {
            if let Some((name, number)) = enumerator(line, *next) {
                *next = number.wrapping_add(1);
                found.insert((kind.clone(), name.to_owned(), number));
            }
        } else if let Some((name, number)) = constant(line)
            && let Some(kind) = prefixes.iter().find(|kind| is_of(name, kind))
        {
            found.insert(((*kind).to_owned(), name.to_owned(), number));
        }
    }
    found
}

fn is_of(name: &str, kind: &str) -> bool {
    name.strip_prefix(kind).is_some_and(|rest| rest.starts_with('_'))
}

/// The text without comments; their line breaks stay.
fn without_comments(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("/*") {
        plain.push_str(before);
        let (comment, after) = after.split_once("*/").unwrap_or((after, ""));
        plain.extend(comment.chars().filter(|letter| *letter == '\n'));
        rest = after;
    }
    plain.push_str(rest);
    plain
}

/// The name of a type whose enumerators follow.
fn beginning(line: &str) -> Option<&str> {
    let line = line.strip_suffix('{')?.trim_end();
    let (before, name) = line.rsplit_once(' ')?;
    let is_type = before.split(' ').any(|word| word == "enum");
    is_type.then(|| name.strip_suffix(ENDING).unwrap_or(name))
}

/// An enumerator of its own line; one without a number has the next.
fn enumerator(line: &str, next: i64) -> Option<(&str, i64)> {
    let line = line.split("//").next()?.trim().trim_end_matches(',').trim_end();
    let (name, value) = line.split_once('=').map_or((line, None), |(name, value)| (name, Some(value)));
    let name = name.trim();
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let number = value.map_or(Some(next), number)?;
    is_name.then_some((name, number))
}

/// A constant: `#define NAME 1` or `pub const NAME: u32 = 1;`.
fn constant(line: &str) -> Option<(&str, i64)> {
    if let Some(rest) = line.strip_prefix("#define ") {
        let (name, value) = rest.split_once(' ')?;
        return Some((name, number(value)?));
    }
    let (name, value) = line.strip_prefix("pub const ")?.split_once(": ")?;
    Some((name, number(value.split_once('=')?.1)?))
}

/// A number in decimal or hexadecimal, alone or shifted.
fn number(text: &str) -> Option<i64> {
    let text = text.trim().trim_end_matches(';').trim_matches(['(', ')']).trim();
    if let Some((left, right)) = text.split_once("<<") {
        return number(left)?.checked_shl(u32::try_from(number(right)?).ok()?);
    }
    let text = text.trim_end_matches(['u', 'U', 'l', 'L']);
    match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const C: &str = "
typedef enum CUnew_enum {
    CU_NEW_A = 1,   /**< One */
    CU_NEW_B = 0x10, /**< More,
                        = 7 */
    CU_NEW_C,
    CU_NEW_D = (1 << 5) // last
} CUnew;
#define CUDA_FLAG_ON 0x02
#define CUDA_FLAGGED 3
";
    const RUST: &str = "
pub enum CUnew_enum {
    CU_NEW_A = 1,
    CU_NEW_B = 16,
    CU_NEW_C = 17,
    CU_NEW_D = 32,
}
pub const CUDA_FLAG_ON: u32 = 2;
impl CUnew_enum {
    pub const CU_NEW_E: CUnew_enum = CUnew_enum::CU_NEW_A;
}
";

    #[test]
    fn header_and_bindings_declare_the_same_enumerators() {
        let known = BTreeSet::from(["CUDA_FLAG"]);
        let [c, rust] = [C, RUST].map(|text| enumerators(text, &known));
        assert_eq!(c, rust);
        let numbers: Vec<_> = c.iter().map(|(kind, name, number)| (&**kind, &**name, *number)).collect();
        let new = |name, number| ("CUnew", name, number);
        let flag = ("CUDA_FLAG", "CUDA_FLAG_ON", 2);
        assert_eq!(
            numbers,
            [flag, new("CU_NEW_A", 1), new("CU_NEW_B", 16), new("CU_NEW_C", 17), new("CU_NEW_D", 32)]
        );
    }
}
