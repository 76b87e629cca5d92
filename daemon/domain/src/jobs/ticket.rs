//! Tickets: a submitter's word to the job launcher about what may be run as that user, and the messages that carry it.
//!
//! The job launcher and the submitter have a socket of their own. The launcher sends a [`Greeting`], the submitter one
//! [`TicketRequest`] that repeats its nonce, the launcher one [`TicketAnswer`]: a line of JSON each.

use alloc::boxed::Box;
use alloc::string::String;
use core::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::name::{JobName, ProjectName};
use super::submission::{Launch, Submission};
use crate::word::word;

word! {
    /// The name of a ticket: the submitter's uid and 128 random bits. It is no secret that gives power by itself: the
    /// launcher looks up what it stands for.
    TicketId,
    "a ticket",
    "a uid, '-' and 32 hexadecimal digits",
    is_ticket
}

impl TicketId {
    /// Whether the submitter has this uid.
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

/// The first message, from the launcher. A reply that repeats the nonce was written after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// Random, for this connection alone.
    pub nonce: String,
}

/// The submitter's message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketRequest {
    /// As in the greeting.
    pub nonce: String,
    /// The request itself.
    pub ask: TicketAsk,
}

/// Requests to the launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TicketAsk {
    /// A ticket for this job of the peer's.
    Issue(Box<Attested>),
    /// This ticket of the peer's is void from now on.
    Revoke(TicketId),
    /// All tickets of the peer's for jobs of that name are void from now on.
    RevokeJob {
        /// The job's project.
        project: ProjectName,
        /// The job's name.
        job: JobName,
    },
}

/// What a submitter lets the launcher run, and no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attested {
    /// The job's project.
    pub project: ProjectName,
    /// The job's name.
    pub job: JobName,
    /// Number of members, each of which comes to a good end once.
    pub completions: NonZeroU32,
    /// Times that a member that failed is started again.
    pub retries: u32,
    /// Command, environment and working directory.
    pub launch: Launch,
}

impl From<&Submission> for Attested {
    fn from(submission: &Submission) -> Self {
        Self {
            project: submission.spec.project.clone(),
            job: submission.spec.name.clone(),
            completions: submission.spec.completions,
            retries: submission.terms.retries,
            launch: submission.launch.clone(),
        }
    }
}

/// The launcher's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TicketAnswer {
    /// The ticket, for the daemon to present.
    Issued(TicketId),
    /// Number of tickets that were voided.
    Revoked(u32),
    /// The reason, for a person.
    Refused(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_a_uid_and_random_bits() {
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
