//! The language of the table: calls, fills and checks, separated by semicolons.
//!
//! ```text
//! cuMemAlloc_v2(&p, 0) = INVALID_VALUE        a call and its result; SUCCESS where none is given
//! cuMemFree_v2(p) = SUCCESS|INVALID_VALUE     either; `= !SUCCESS` any error; `= *` anything but a crash
//! bare cuMemFreeAsync(p, s)                   on a thread of its own without a current context
//! props = {4:1, 4:0, 4:1, 4:dev}              fills a variable: width in bytes, value
//! ? p != 0                                    a check; `x@8:4` is 4 bytes at offset 8 of `x`
//! ? text p is "invalid argument"              compares the C string at an address
//! $context                                    a macro of `macros.tsv`
//! ```
//!
//! An argument is a number, `NULL`, `x` (the first 8 bytes of a variable), `&x` (its address), `&x+8`, or `"text"`.
//! A variable has [`SIZE`] bytes, all zero at first.

use crate::codes;

/// Length of a variable in bytes.
pub(crate) const SIZE: usize = 4096;
/// Most arguments that a call can have.
pub(crate) const ARGUMENTS: usize = 12;

/// Part of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) variable: String,
    pub(crate) offset: usize,
    pub(crate) width: usize,
}

/// A value that is passed or compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    Number(u64),
    Value(Part),
    Address(String, usize),
    Text(String),
}

/// Results that a call may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    OneOf(Vec<i32>),
    AnyError,
    Anything,
}

impl Expected {
    pub(crate) fn allows(&self, result: i32) -> bool {
        match self {
            Self::OneOf(results) => results.contains(&result),
            Self::AnyError => result != 0,
            Self::Anything => true,
        }
    }
}

/// Comparison of two unsigned numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    Different,
    AtLeast,
    Below,
}

impl Comparison {
    pub(crate) const fn holds(self, left: u64, right: u64) -> bool {
        match self {
            Self::Equal => left == right,
            Self::Different => left != right,
            Self::AtLeast => left >= right,
            Self::Below => left < right,
        }
    }
}

/// One step of a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Call { function: String, arguments: Vec<Operand>, expected: Expected, bare: bool },
    Fill { variable: String, fields: Vec<(usize, Operand)> },
    Check { left: Operand, comparison: Comparison, right: Operand },
    Text { address: Operand, text: String },
}

/// Why a row cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} in `{step}`")]
pub(crate) struct BadStep {
    what: &'static str,
    step: String,
}

/// Reads steps; `macros` gives the text of a macro.
pub(crate) fn parse(text: &str, macros: &dyn Fn(&str) -> Option<String>) -> Result<Vec<Step>, BadStep> {
    let mut steps = Vec::new();
    for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        if let Some(name) = part.strip_prefix('$') {
            let body = macros(name).ok_or_else(|| bad("unknown macro", part))?;
            steps.extend(parse(&body, macros)?);
        } else {
            steps.push(step(part)?);
        }
    }
    Ok(steps)
}

fn bad(what: &'static str, step: &str) -> BadStep {
    BadStep { what, step: step.to_owned() }
}

fn step(text: &str) -> Result<Step, BadStep> {
    if let Some(check) = text.strip_prefix('?') {
        return self::check(check.trim()).ok_or_else(|| bad("not a check", text));
    }
    if let Some((variable, fields)) = text.split_once("= {") {
        return fill(variable.trim(), fields).ok_or_else(|| bad("not a fill", text));
    }
    let (text, bare) = text.strip_prefix("bare ").map_or((text, false), |call| (call.trim(), true));
    call(text, bare).ok_or_else(|| bad("not a call", text))
}

fn check(text: &str) -> Option<Step> {
    if let Some(rest) = text.strip_prefix("text ") {
        let (address, wanted) = rest.split_once(" is ")?;
        let Operand::Text(wanted) = operand(wanted.trim())? else { return None };
        return Some(Step::Text { address: operand(address.trim())?, text: wanted });
    }
    let known = [
        (" == ", Comparison::Equal),
        (" != ", Comparison::Different),
        (" >= ", Comparison::AtLeast),
        (" < ", Comparison::Below),
    ];
    let (sign, comparison) = known.into_iter().find(|(sign, _)| text.contains(sign))?;
    let (left, right) = text.split_once(sign)?;
    Some(Step::Check { left: operand(left.trim())?, comparison, right: operand(right.trim())? })
}

fn fill(variable: &str, fields: &str) -> Option<Step> {
    let fields = fields.strip_suffix('}')?;
    let read = |field: &str| {
        let (width, value) = field.trim().split_once(':')?;
        Some((width.parse().ok().filter(|width| (1..=SIZE).contains(width))?, operand(value)?))
    };
    let fields: Option<Vec<_>> = fields.split(',').map(read).collect();
    let fields = fields?;
    let length: usize = fields.iter().map(|(width, _)| width).sum();
    (length <= SIZE && is_name(variable)).then(|| Step::Fill { variable: variable.to_owned(), fields })
}

fn call(text: &str, bare: bool) -> Option<Step> {
    let (function, rest) = text.split_once('(')?;
    let (arguments, expected) = rest.rsplit_once(')')?;
    let arguments: Option<Vec<_>> = split(arguments).map(operand).collect();
    let arguments = arguments.filter(|arguments| arguments.len() <= ARGUMENTS)?;
    let expected = match expected.trim() {
        "" => Expected::OneOf(vec![0]),
        text => self::expected(text.strip_prefix('=')?.trim())?,
    };
    is_name(function).then(|| Step::Call { function: function.to_owned(), arguments, expected, bare })
}

/// The arguments of a call; none for an empty list.
fn split(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|argument| !argument.is_empty())
}

fn expected(text: &str) -> Option<Expected> {
    match text {
        "*" => Some(Expected::Anything),
        "!SUCCESS" => Some(Expected::AnyError),
        names => names
            .split('|')
            .map(|name| codes::number(name.trim()))
            .collect::<Option<_>>()
            .map(Expected::OneOf),
    }
}

fn operand(text: &str) -> Option<Operand> {
    if text == "NULL" {
        return Some(Operand::Number(0));
    }
    if let Some(quoted) = text.strip_prefix('"') {
        return Some(Operand::Text(quoted.strip_suffix('"')?.to_owned()));
    }
    if let Some(address) = text.strip_prefix('&') {
        let (variable, offset) = address.split_once('+').unwrap_or((address, "0"));
        let offset = offset.parse().ok().filter(|offset| *offset < SIZE)?;
        return is_name(variable).then(|| Operand::Address(variable.to_owned(), offset));
    }
    number(text).map(Operand::Number).or_else(|| part(text).map(Operand::Value))
}

fn number(text: &str) -> Option<u64> {
    if let Some(hexadecimal) = text.strip_prefix("0x") {
        return u64::from_str_radix(hexadecimal, 16).ok();
    }
    text.parse().ok().or_else(|| text.parse::<i64>().ok().map(i64::cast_unsigned))
}

fn part(text: &str) -> Option<Part> {
    let (text, width) = text.split_once(':').unwrap_or((text, "8"));
    let (variable, offset) = text.split_once('@').unwrap_or((text, "0"));
    let (offset, width): (usize, usize) = (offset.parse().ok()?, width.parse().ok()?);
    let fits = (1..=8).contains(&width) && offset <= SIZE - width && is_name(variable);
    fits.then(|| Part { variable: variable.to_owned(), offset, width })
}

fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

#[cfg(test)]
mod tests {
    use super::{Comparison, Expected, Operand, Part, Step, parse};

    fn none(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn each_kind_of_step_is_read() {
        let text = "bare cuA(&x+8, -1, \"a b\", x@4:4) = INVALID_VALUE|2; x = {4:1, 8:y}; ? x:4 >= 0x10; \
                    ? text x is \"no\"; cuB()";
        let four = Part { variable: "x".into(), offset: 4, width: 4 };
        let whole = |variable: &str| Part { variable: variable.into(), offset: 0, width: 8 };
        let expected = [
            Step::Call {
                function: "cuA".into(),
                arguments: vec![
                    Operand::Address("x".into(), 8),
                    Operand::Number(u64::MAX),
                    Operand::Text("a b".into()),
                    Operand::Value(four),
                ],
                expected: Expected::OneOf(vec![1, 2]),
                bare: true,
            },
            Step::Fill {
                variable: "x".into(),
                fields: vec![(4, Operand::Number(1)), (8, Operand::Value(whole("y")))],
            },
            Step::Check {
                left: Operand::Value(Part { width: 4, ..whole("x") }),
                comparison: Comparison::AtLeast,
                right: Operand::Number(16),
            },
            Step::Text { address: Operand::Value(whole("x")), text: "no".into() },
            Step::Call {
                function: "cuB".into(),
                arguments: Vec::new(),
                expected: Expected::OneOf(vec![0]),
                bare: false,
            },
        ];
        assert_eq!(parse(text, &none), Ok(expected.into()));
    }

    #[test]
    fn macros_are_replaced_and_unknown_ones_refused() {
        let macros = |name: &str| (name == "m").then(|| "cuA(); cuB()".to_owned());
        assert_eq!(parse("$m", &macros).map(|steps| steps.len()), Ok(2));
        assert!(parse("$n", &macros).is_err());
    }

    #[test]
    fn what_is_no_step_is_refused() {
        for text in [
            "cuA",
            "cuA(",
            "cuA() = NONSENSE",
            "? a",
            "x = {4}",
            "x = {9999:1}",
            "cuA(&x+5000)",
            "? x:9 == 1",
        ] {
            assert!(parse(text, &none).is_err(), "{text}");
        }
    }
}
