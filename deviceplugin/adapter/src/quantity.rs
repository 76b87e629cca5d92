//! Kubernetes' quantities: decimal numbers with a suffix.

/// Most digits of a quantity that is read.
const DIGITS: usize = 18;

/// Binary and decimal suffixes with their factors.
const SUFFIXES: [(&str, u128); 13] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000),
    ("", 1),
];

/// Value of a quantity. `None` if it is negative, no whole number, above `u64::MAX`, or malformed.
pub fn whole(quantity: &str) -> Option<u64> {
    let text = quantity.trim();
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (numerator, places) = decimal(number)?;
    let ten_to = |power: u32| 10u128.checked_pow(power);
    let (factor, divisor) = match suffix {
        // Thousandths and less, in which the API server writes fractions.
        "m" => (1, 1_000),
        "u" => (1, 1_000_000),
        "n" => (1, 1_000_000_000),
        _ => match (suffix.strip_prefix(['e', 'E']), factor_of(suffix)) {
            (_, Some(factor)) => (factor, 1),
            (Some(exponent), None) => match exponent.strip_prefix('-') {
                Some(negative) => (1, ten_to(negative.parse().ok()?)?),
                None => (ten_to(exponent.parse().ok()?)?, 1),
            },
            (None, None) => return None,
        },
    };
    let (value, divisor) = (numerator.checked_mul(factor)?, ten_to(places)?.checked_mul(divisor)?);
    value.is_multiple_of(divisor).then(|| u64::try_from(value / divisor).ok())?
}

fn factor_of(suffix: &str) -> Option<u128> {
    SUFFIXES.iter().find(|(name, _)| *name == suffix).map(|(_, factor)| *factor)
}

/// Digits of a decimal number as an integer, and how many of them are after the point.
fn decimal(text: &str) -> Option<(u128, u32)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{fraction}");
    let valid = (1..=DIGITS).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    valid.then(|| Some((digits.parse().ok()?, u32::try_from(fraction.len()).ok()?)))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_form_of_the_api_server_is_read() {
        for (text, value) in [
            ("0", 0),
            ("1k", 1000),
            ("1000", 1000),
            ("500e0", 500),
            ("1e3", 1000),
            ("1.5Gi", 3 << 29),
            ("16255Mi", 16255 << 20),
            ("34089205760", 34_089_205_760),
            ("1500m", 0),
            ("2000m", 2),
            ("10e-1", 1),
            ("12E", 12_000_000_000_000_000_000),
        ] {
            let expected = (text != "1500m").then_some(value);
            assert_eq!(whole(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_whole_number_of_64_bits_is_none() {
        for text in ["", "-1", "0.5", "1.0000001k", "19E", "1Zi", "1e99", "1e-99", "Mi", "1 Mi", "1e", "٣"] {
            assert_eq!(whole(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_number_is_read(number in 0..=999_999_999_999_999_999u64) {
            prop_assert_eq!(whole(&number.to_string()), Some(number));
            prop_assert_eq!(whole(&format!("{number}Mi")), number.checked_mul(1 << 20));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text: String) {
            let _ = whole(&text);
        }
    }
}
