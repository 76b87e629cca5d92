//! Redaction of values of variables and of credentials.

/// Text in the place of each value.
const GONE: &str = "[redacted]";
/// Words that announce a credential.
const SECRETS: [&str; 6] = ["password", "passwd", "secret", "token", "apikey", "api-key"];

/// The text without values of variables, without credentials, and without those in addresses.
/// Examples are `NAME=value`; `--token value` and `password: value`; `https://user:pass@host`.
pub(super) fn redacted(text: &str) -> String {
    text.split_inclusive('\n').map(line).collect()
}

fn line(line: &str) -> String {
    let mut after_secret = false;
    let word = |word: &str| {
        let (bare, space) = word.split_at(word.trim_end().len());
        let kept = if after_secret && !bare.is_empty() { GONE.into() } else { self::word(bare) };
        after_secret = announces_secret(bare);
        kept + space
    };
    line.split_inclusive(char::is_whitespace).map(word).collect()
}

fn word(word: &str) -> String {
    match word.split_once('=') {
        Some((name, value)) if !value.is_empty() && hides(name) => format!("{name}={GONE}"),
        _ => without_credentials(word),
    }
}

/// Tests if this is a variable's name, or an option that takes a secret.
fn hides(name: &str) -> bool {
    let bare = name.trim_start_matches(['"', '\'', '(', '[', '{']);
    let is_variable = bare.len() > 1
        && bare.starts_with(|c: char| c.is_ascii_uppercase() || c == '_')
        && bare.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    is_variable || is_secret(name)
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRETS.iter().any(|secret| name.contains(secret))
}

/// Tests if the next word is a secret, as after `--token` or `password:`.
fn announces_secret(word: &str) -> bool {
    (word.starts_with("--") && !word.contains('=') || word.ends_with(':')) && is_secret(word)
}

fn without_credentials(word: &str) -> String {
    let split = word.split_once("://").and_then(|(scheme, rest)| {
        let authority = rest.split('/').next()?;
        let (credentials, _) = authority.rsplit_once('@')?;
        Some((scheme, &rest[credentials.len()..]))
    });
    split.map_or_else(|| word.into(), |(scheme, rest)| format!("{scheme}://{GONE}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn variables_and_credentials_are_redacted() {
        for (text, left) in [
            ("env HOME=/root TOKEN=abc run\n", "env HOME=[redacted] TOKEN=[redacted] run\n"),
            ("x --password hunter2 y", "x --password [redacted] y"),
            ("x --api-key=1", "x --api-key=[redacted]"),
            ("Password: hunter2", "Password: [redacted]"),
            ("\"AWS_KEY=1\"", "\"AWS_KEY=[redacted]"),
            ("see https://me:pass@host/x?", "see https://[redacted]@host/x?"),
        ] {
            assert_eq!(redacted(text), left);
        }
    }

    #[test]
    fn harmless_text_is_unchanged() {
        for text in [
            "tranche_slice_info{slice=\"a\",tier=\"preload\"} 1\n",
            "slices_per_user = 64  # default",
            "\n\n  a\tb  \n",
            "NAME= x",
            "https://host/a@b",
        ] {
            assert_eq!(redacted(text), text);
        }
    }

    proptest! {
        #[test]
        fn no_variable_value_remains(
            before in "[a-z ]{0,10}", name in "[A-Z_][A-Z0-9_]{1,9}", value in "q[0-9]{8}", after in "[a-z ]{0,10}"
        ) {
            let text = format!("{before} {name}={value} {after}");
            prop_assert!(!redacted(&text).contains(&value));
        }

        #[test]
        fn lines_stay_lines(text in "[ -~\n]{0,200}") {
            prop_assert_eq!(redacted(&text).matches('\n').count(), text.matches('\n').count());
        }
    }
}
