//! Tickets: a submitter's permission for the job launcher to run a job as that user.
//!
//! The launcher and the submitter share a socket of their own. The launcher sends a [`Greeting`], the
//! submitter one [`TicketRequest`] with the same nonce, and the launcher one [`TicketAnswer`], each as a line
//! of JSON.

pub(super) mod id;

use alloc::boxed::Box;
use alloc::string::String;
use core::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::name::{JobName, ProjectName};
use super::service::ServiceSpec;
use super::submission::{LaunchSpec, Submission};

pub use id::TicketId;

/// The launcher's first message. A request with the same nonce was written after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// Random value, unique to the connection.
    pub nonce: String,
}

/// The submitter's only message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketRequest {
    /// Nonce from the greeting.
    pub nonce: String,
    /// Operation on the ticket.
    pub ask: TicketAsk,
}

/// Operations of the launcher's socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TicketAsk {
    /// Issues a ticket for this job of the peer.
    Issue(Box<Attested>),
    /// Revokes this ticket of the peer.
    Revoke(TicketId),
    /// Revokes all tickets of the peer for jobs with this name.
    RevokeJob {
        /// Project to which it is submitted.
        project: ProjectName,
        /// Name of the job within its project.
        job: JobName,
    },
}

/// The job that a ticket permits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attested {
    /// Project to which it is submitted.
    pub project: ProjectName,
    /// Name of the job within its project.
    pub job: JobName,
    /// Number of members, each of which may succeed once.
    pub completions: NonZeroU32,
    /// Number of restarts of a member that fails.
    pub retries: u32,
    /// Present for a service, whose member never succeeds and is started again without bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceSpec>,
    /// Command, environment and working directory.
    pub launch: LaunchSpec,
}

impl From<&Submission> for Attested {
    fn from(submission: &Submission) -> Self {
        Self {
            project: submission.spec.project.clone(),
            job: submission.spec.name.clone(),
            completions: submission.spec.completions,
            retries: submission.terms.retries,
            service: submission.spec.service.clone(),
            launch: submission.launch.clone(),
        }
    }
}

/// Reply of the launcher to an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TicketAnswer {
    /// Id of the issued ticket, for the daemon to present.
    Issued(TicketId),
    /// Number of revoked tickets.
    Revoked(u32),
    /// Reason for the rejection, for the user.
    Refused(String),
}
