//! Delivery of a report: to a command, a webhook, and by mail.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::Duration;

use super::message::ChangeReport;
use crate::cli::NotifyArgs;

/// Places of the program that takes mail on a Unix system.
const SENDMAIL: [&str; 2] = ["/usr/sbin/sendmail", "/usr/lib/sendmail"];
/// Pauses between attempts to deliver.
const PAUSES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(30)];
/// Time limit of one request to a webhook.
const PATIENCE: Duration = Duration::from_secs(20);

/// Reason for which a report was not delivered.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    /// A program could not be run.
    #[error("cannot run {program}: {cause}")]
    NotRun {
        /// The program or shell command.
        program: String,
        /// Error of the start, or of writing the report to it.
        cause: io::Error,
    },
    /// A program ended otherwise than with status 0.
    #[error("{program} failed{}", with(*.status))]
    Failed {
        /// The program or shell command.
        program: String,
        /// Exit status, or the signal that ended it.
        status: ExitStatus,
    },
    /// The webhook did not take the report.
    #[error("cannot post to {url}: {cause}")]
    Webhook {
        /// Address without its query and password.
        url: String,
        /// Error of the request, or its status.
        cause: Box<ureq::Error>,
    },
    /// No sendmail program is installed.
    #[error("there is no sendmail program ({}): install one, such as msmtp-mta or postfix, or use --command", SENDMAIL.join(", "))]
    NoSendmail,
    /// The address is not one that a header can hold.
    #[error("{0:?} is no mail address: it has to be like ann@example.org")]
    Address(String),
    /// The report could not be written as JSON.
    #[error("cannot write the report: {0}")]
    Json(#[from] serde_json::Error),
}

fn with(status: ExitStatus) -> String {
    status.code().map_or_else(|| ", ended by a signal".into(), |code| format!(" with status {code}"))
}

impl DeliveryError {
    /// Tests if another attempt may succeed.
    const fn is_temporary(&self) -> bool {
        matches!(self, Self::NotRun { .. } | Self::Failed { .. } | Self::Webhook { .. })
    }
}

/// Checks what can be wrong with the receivers before there is anything to report.
pub(super) fn check(args: &NotifyArgs) -> Result<(), DeliveryError> {
    match &args.mail {
        Some(address) if !is_address(address) => Err(DeliveryError::Address(address.clone())),
        Some(_) => sendmail().map(drop),
        None => Ok(()),
    }
}

fn is_address(text: &str) -> bool {
    let (user, host) = text.split_once('@').unwrap_or_default();
    let plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    plain(user) && plain(host) && !text.starts_with('-') && !text.contains([',', ';', '<', '>', '"'])
}

/// Delivers a report to each receiver; returns the last error of each that did not take it.
///
/// A command is run once, as it may have done a part of its work.
pub(super) fn deliver(args: &NotifyArgs, report: &ChangeReport) -> Vec<DeliveryError> {
    let command = args.command.as_deref().map(|command| run(command, report));
    let webhook = args.webhook.as_deref().map(|url| attempt(|| post(url, report)));
    let mail = args.mail.as_deref().map(|address| attempt(|| send(address, report)));
    [command, webhook, mail].into_iter().flatten().filter_map(Result::err).collect()
}

fn attempt(deliver: impl Fn() -> Result<(), DeliveryError>) -> Result<(), DeliveryError> {
    for pause in PAUSES {
        match deliver() {
            Err(error) if error.is_temporary() => sleep(pause),
            done => return done,
        }
    }
    deliver()
}

fn run(command: &str, report: &ChangeReport) -> Result<(), DeliveryError> {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]);
    shell.env("TRANCHE_CHANGE", report.change).env("TRANCHE_REASON", &report.reason);
    shell.env("TRANCHE_JOB_NAME", report.job.as_str()).env("TRANCHE_JOB_PROJECT", report.project.as_str());
    feed(shell, command, &serde_json::to_vec(report)?)
}

fn post(url: &str, report: &ChangeReport) -> Result<(), DeliveryError> {
    let config = ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).build();
    let sent = ureq::Agent::new_with_config(config)
        .post(url)
        .header("Content-Type", "application/json")
        .send(&serde_json::to_vec(report)?);
    sent.map(drop)
        .map_err(|cause| DeliveryError::Webhook { url: without_secrets(url), cause: Box::new(cause) })
}

/// The part of an address before its path, as paths and queries of webhooks are secrets.
fn without_secrets(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}")
}

fn send(address: &str, report: &ChangeReport) -> Result<(), DeliveryError> {
    let program = sendmail()?;
    let mut mail = Command::new(program);
    mail.args(["-i", "--", address]);
    // The text has no line breaks, so that it adds no header.
    let subject: String = report.text.chars().filter(char::is_ascii).take(200).collect();
    let text = format!(
        "To: {address}\nSubject: {subject}\nContent-Type: text/plain; charset=utf-8\n\n{}\n",
        report.text
    );
    feed(mail, program, text.as_bytes())
}

fn sendmail() -> Result<&'static str, DeliveryError> {
    SENDMAIL.into_iter().find(|path| Path::new(path).exists()).ok_or(DeliveryError::NoSendmail)
}

/// Runs a program with an input.
fn feed(mut command: Command, program: &str, input: &[u8]) -> Result<(), DeliveryError> {
    let not_run = |cause| DeliveryError::NotRun { program: program.to_owned(), cause };
    let mut child = command.stdin(Stdio::piped()).spawn().map_err(not_run)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read its input is no error.
        let written = stdin.write_all(input);
        written
            .or_else(|error| if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
            .map_err(not_run)?;
    }
    let status = child.wait().map_err(not_run)?;
    if status.success() { Ok(()) } else { Err(DeliveryError::Failed { program: program.to_owned(), status }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_cannot_be_an_option_or_a_header() {
        for address in ["ann@example.org", "ann+gpu@host"] {
            assert!(is_address(address), "{address}");
        }
        for text in ["ann", "@host", "ann@", "-oQ/tmp@x", "a@b\nBcc: c@d", "a@b,c@d", "a b@c"] {
            assert!(!is_address(text), "{text:?}");
        }
    }

    #[test]
    fn error_names_the_host_of_a_webhook_alone() {
        assert_eq!(
            without_secrets("https://user:pass@hooks.example.org/T0/secret?x=y"),
            "https://hooks.example.org"
        );
        assert_eq!(without_secrets("nonsense"), "://nonsense");
    }
}
