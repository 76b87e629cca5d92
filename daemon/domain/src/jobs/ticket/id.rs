//! The name of a ticket: a uid and random bits.

use crate::word::word;

word! {
    /// Id of a ticket: the submitter's uid and 128 random bits. It is not a bearer secret: the launcher looks
    /// up the job that it permits.
    TicketId,
    "a ticket",
    "a uid, '-' and 32 hexadecimal digits",
    is_ticket
}

impl TicketId {
    /// Tests if the ticket was issued to this uid.
    pub fn is_of(&self, uid: u32) -> bool {
        self.as_str().split_once('-').is_some_and(|(of, _)| of.parse() == Ok(uid))
    }
}

fn is_ticket(text: &str) -> bool {
    let digit = |byte: u8| byte.is_ascii_digit();
    let hex = |byte: u8| digit(byte) || matches!(byte, b'a'..=b'f');
    text.split_once('-').is_some_and(|(uid, random)| {
        (1..=10).contains(&uid.len())
            && uid.bytes().all(digit)
            && random.len() == 32
            && random.bytes().all(hex)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticket_consists_of_uid_and_random_bits() {
        assert!("1000-0123456789abcdef0123456789abcdef".parse::<TicketId>().is_ok());
        for text in [
            "",
            "1000",
            "-0123456789abcdef0123456789abcdef",
            "x-0123456789abcdef0123456789abcdef",
            "1000-0123456789ABCDEF0123456789abcdef",
            "1000-0123456789abcdef0123456789abcde/",
            "1000-../../../../../../../../../../..",
        ] {
            assert!(text.parse::<TicketId>().is_err(), "{text}");
        }
    }
}
