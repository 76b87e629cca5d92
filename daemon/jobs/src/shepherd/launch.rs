//! The launcher's socket for the daemon: starts what a ticket permits, as the user who attested it.
//!
//! The daemon chooses time and slice. User, command, folder and environment are the ticket's; files are
//! descriptors that the daemon opened; and of the daemon's environment only known variables with validated
//! values are taken.

use std::env;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Component, Path};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tranche_domain::jobs::Attested;
use tranche_jobs::runner_protocol::{
    CommandOrder, CommandOutcome, ContainerOrder, LONGEST_MESSAGE, LaunchAnswer, LaunchRequest, Removal,
    RunnerReady, Start, StatusLine, container_name, receive_message, send_message,
};

use crate::account::Barred;
use crate::log::Log;
use crate::status_file::StatusFile;
use crate::supervision::Site;
use crate::tickets::{LaunchTicket, MemberRecord, NoRecord, Tickets, now_unix_s};
use crate::{identity, leftovers, limits, member, pam};

/// The library that attaches a program to its slice, installed beside this program.
const SHIM: &str = "libtranche_preload.so";

/// Serves one request of the daemon.
pub(crate) fn run(daemon: &UnixStream, tickets: &Tickets) -> io::Result<()> {
    let (request, files) = receive(daemon)?;
    match request {
        LaunchRequest::Revoke(ids) => {
            for id in &ids {
                tickets.revoke(id)?;
            }
            send_message(&mut &*daemon, &LaunchAnswer::Revoked)
        }
        LaunchRequest::Remove(removal) => {
            let answer = remove(&removal, tickets).unwrap_or_else(refused);
            send_message(&mut &*daemon, &answer)
        }
        LaunchRequest::Start(start) => match admit(&start, tickets) {
            Ok((ticket, record)) => launch(daemon, &start, files, &ticket, record),
            Err(barred) => send_message(&mut &*daemon, &refused(barred)),
        },
    }
}

fn refused(barred: Barred) -> LaunchAnswer {
    match barred {
        Barred::ForGood(why) => LaunchAnswer::Refused { why, for_good: true },
        Barred::ForNow(why) => LaunchAnswer::Refused { why, for_good: false },
    }
}

/// The request, with the descriptors that came with it.
fn receive(daemon: &UnixStream) -> io::Result<(LaunchRequest, Vec<OwnedFd>)> {
    let (mut line, mut files) = (Vec::new(), Vec::new());
    let mut bytes = vec![0; 64 << 10];
    while line.last() != Some(&b'\n') {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let received =
            recvmsg(daemon, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                files.extend(rights);
            }
        }
        if received.bytes == 0 || (line.len() + received.bytes) as u64 > LONGEST_MESSAGE {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.extend_from_slice(&bytes[..received.bytes]);
    }
    Ok((serde_json::from_slice(&line)?, files))
}

/// The ticket and the member's locked record, if the ticket permits this start now.
fn admit(start: &Start, tickets: &Tickets) -> Result<(LaunchTicket, MemberRecord), Barred> {
    let unreadable = |error: io::Error| Barred::ForNow(format!("cannot read its ticket: {error}"));
    let again = "submit the job again";
    let ticket = tickets.find(&start.ticket).map_err(unreadable)?;
    let ticket = ticket.ok_or_else(|| {
        Barred::ForGood(format!("its submitter's ticket has been revoked, or was never issued; {again}"))
    })?;
    if let Some(why) = ticket.void(now_unix_s()) {
        return Err(Barred::ForGood(format!("its submitter's ticket {why}; {again}")));
    }
    let launch = &ticket.attested.launch;
    let wanted = (&start.command, &start.workdir, &start.container, &start.service);
    if (&launch.command, &launch.workdir, &launch.container, &ticket.attested.service) != wanted {
        return Err(Barred::ForGood(format!(
            "what it is to run is not what its submitter attested; {again}"
        )));
    }
    ticket.account.again(ticket.uid)?;
    pam::permits(&ticket.account.name)?;
    let record = tickets.member(&ticket, start.index).map_err(unreadable)?;
    Ok((ticket, record.map_err(|no| Barred::ForGood(no.into_reason()))?))
}

/// Removes what a killed runner left of a member's container, as the ticket's user.
fn remove(removal: &Removal, tickets: &Tickets) -> Result<LaunchAnswer, Barred> {
    let failed = |error: io::Error| Barred::ForNow(error.to_string());
    let ticket = tickets.find_for_removal(&removal.ticket).map_err(failed)?;
    let ticket =
        ticket.ok_or_else(|| Barred::ForGood("its submitter's ticket is not there any more".into()))?;
    let attested = &ticket.attested;
    let Some(container) = &attested.launch.container else { return Ok(LaunchAnswer::Removed(None)) };
    ticket.account.again(ticket.uid)?;
    // The lock shows that there is no runner of this member.
    let record = tickets.member(&ticket, removal.index).map_err(failed)?;
    let _unless_it_runs = match record {
        Ok(record) => Some(record),
        Err(NoRecord::Runs(why)) => return Err(Barred::ForNow(why)),
        Err(NoRecord::Over(_)) => None,
    };
    identity::become_account(&ticket.account.name, ticket.uid, ticket.gid).map_err(failed)?;
    let name = container_name(slice_of(attested, removal.index));
    Ok(LaunchAnswer::Removed(leftovers::remove(&name, &container.engine).map_err(failed)?))
}

/// Name of a member's slice.
fn slice_of(attested: &Attested, index: u32) -> String {
    format!("{}.{}.{index}", attested.project, attested.job)
}

fn launch(
    daemon: &UnixStream,
    start: &Start,
    files: Vec<OwnedFd>,
    ticket: &LaunchTicket,
    mut record: MemberRecord,
) -> io::Result<()> {
    let [attempt, log] = <[OwnedFd; 2]>::try_from(files)
        .map_err(|files| io::Error::other(format!("{} files came, and not two", files.len())))?
        .map(File::from);
    let shim = env::current_exe()?.with_file_name(SHIM);
    let mut status = StatusFile::lock(attempt)?;
    let shepherd = identity::own()?;
    let place = match limits::of_unit(start.limits) {
        Ok(place) => place,
        Err(why) => return send_message(&mut &*daemon, &refused(Barred::ForNow(why.to_string()))),
    };
    status.write(&StatusLine::Shepherd(shepherd))?;
    identity::become_account(&ticket.account.name, ticket.uid, ticket.gid)?;
    let ready = RunnerReady { shepherd, limits: start.limits, unlimited: None };
    send_message(&mut &*daemon, &LaunchAnswer::Ready(ready))?;
    // No order: the daemon ended or cancelled the start.
    let Ok(order) = receive_message::<CommandOrder>(io::BufReader::new(daemon)) else { return Ok(()) };
    let log = Log { to: log, kept: start.kept };
    match bind(order, ticket, start.index, &shim) {
        Ok(order) => member::run(order, status, Site { log, place }, |outcome, told| {
            let is_service = ticket.attested.service.is_some();
            if !told && !is_service && !matches!(outcome, CommandOutcome::Lost) {
                // If this fails, the member may be started once more at worst.
                let _ = record.ended(outcome.is_success());
            }
        }),
        Err(why) => status.write(&StatusLine::Ended(CommandOutcome::NotStarted(why))),
    }
}

/// The ticket's command, with the variables of the daemon's slice.
fn bind(order: CommandOrder, ticket: &LaunchTicket, index: u32, shim: &Path) -> Result<CommandOrder, String> {
    let attested = &ticket.attested;
    let given = |name: &str| {
        let value = order.environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        value.ok_or_else(|| format!("the daemon gave no {name}"))
    };
    let checked = |name: &str, good: &dyn Fn(&str) -> bool| {
        let value = given(name)?;
        if good(&value) {
            Ok(value)
        } else {
            Err(format!("the daemon gave a {name} that leads nowhere: {value:?}"))
        }
    };
    let slice = slice_of(attested, index);
    let socket = checked("TRANCHE_SLICE_SOCKET", &|path| is_socket_of(path, &slice))?;
    let gpus = checked("CUDA_VISIBLE_DEVICES", &are_gpus)?;
    let number = checked("TRANCHE_JOB_START", &|text| text.parse::<u32>().is_ok())?;
    let shim = shim.to_str().filter(|path| Path::new(path).is_file());
    let shim = shim.ok_or("the library that leads into the slice is not installed")?;
    let mut environment = attested.launch.environment.clone();
    let preloaded = environment.iter().find(|(name, value)| name == "LD_PRELOAD" && !value.is_empty());
    let preload = preloaded.map_or_else(|| shim.to_owned(), |(_, list)| format!("{shim}:{list}"));
    let own = [
        ("LD_PRELOAD", preload),
        ("TRANCHE_SLICE_SOCKET", socket),
        ("CUDA_VISIBLE_DEVICES", gpus),
        ("TRANCHE_JOB_NAME", attested.job.to_string()),
        ("TRANCHE_JOB_PROJECT", attested.project.to_string()),
        ("TRANCHE_JOB_INDEX", index.to_string()),
        ("TRANCHE_JOB_COMPLETIONS", attested.completions.to_string()),
        ("TRANCHE_JOB_START", number),
    ];
    environment.retain(|(name, _)| own.iter().all(|(own, _)| own != name));
    environment.extend(own.map(|(name, value)| (name.to_owned(), value)));
    Ok(CommandOrder {
        command: attested.launch.command.clone(),
        environment,
        workdir: attested.launch.workdir.clone().into(),
        farewell: order.farewell,
        container: container(order.container, attested, &slice)?,
        health: attested.service.as_ref().and_then(|service| service.health.clone()),
    })
}

/// The ticket's container, with the daemon's document of the slice.
fn container(
    given: Option<ContainerOrder>,
    attested: &Attested,
    slice: &str,
) -> Result<Option<ContainerOrder>, String> {
    let Some(spec) = attested.launch.container.clone() else { return Ok(None) };
    let document = given.and_then(|given| given.document);
    let file = format!("tranche.dev-slice-{slice}.json");
    if let Some(path) = document.as_ref().filter(|path| !path.is_absolute() || !path.ends_with(&file)) {
        return Err(format!("the daemon named a document that is not the slice's: {}", path.display()));
    }
    Ok(Some(ContainerOrder { name: container_name(slice), spec, document }))
}

/// Tests if the path has the form `RUNTIME/slices/NAME/attach.sock`.
fn is_socket_of(path: &str, slice: &str) -> bool {
    let path = Path::new(path);
    let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    path.is_absolute() && plain && path.ends_with(Path::new("slices").join(slice).join("attach.sock"))
}

fn are_gpus(list: &str) -> bool {
    list.len() <= 4096 && list.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-,".contains(&byte))
}

#[cfg(test)]
mod tests {
    use tranche_domain::jobs::{HealthCheck, LaunchSpec, TerminationPolicy};

    use super::*;
    use crate::account::SubmitterAccount;

    fn ticket() -> LaunchTicket {
        let environment = [("A", "1"), ("LD_PRELOAD", "/own.so"), ("TRANCHE_SLICE_SOCKET", "/x")];
        let attested = Attested {
            project: "a".parse().unwrap(),
            job: "j".parse().unwrap(),
            completions: 3.try_into().unwrap(),
            retries: 0,
            service: None,
            launch: LaunchSpec {
                command: vec!["train".into()],
                environment: environment.map(|(name, value)| (name.into(), value.into())).into(),
                workdir: "/home".into(),
                container: None,
            },
        };
        LaunchTicket::new(0, 0, SubmitterAccount::of(0).unwrap().0, attested).unwrap()
    }

    fn bound(change: impl Fn(&mut Vec<(String, String)>)) -> Result<CommandOrder, String> {
        let pairs = [
            ("TRANCHE_SLICE_SOCKET", "/run/tranche/slices/a.j.2/attach.sock"),
            ("CUDA_VISIBLE_DEVICES", "GPU-00,GPU-01"),
            ("TRANCHE_JOB_START", "4"),
            ("LD_PRELOAD", "/evil.so"),
            ("BASH_ENV", "/evil"),
            ("A", "2"),
        ];
        let mut environment = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        change(&mut environment);
        let order = CommandOrder {
            command: vec!["evil".into()],
            environment,
            workdir: "/".into(),
            farewell: TerminationPolicy::DEFAULT,
            container: None,
            health: HealthCheck::new("80/evil".parse().unwrap(), None, None).ok(),
        };
        let shim = env::current_exe().unwrap();
        bind(order, &ticket(), 2, &shim)
    }

    #[test]
    fn daemon_chooses_only_the_slice() {
        let order = bound(|_| {}).unwrap();
        assert_eq!((&order.command[..], &order.workdir), (&["train".to_owned()][..], &"/home".into()));
        assert_eq!(order.health, None);
        let value = |name: &str| {
            let values: Vec<_> = order.environment.iter().filter(|(known, _)| known == name).collect();
            assert!(values.len() < 2, "{name}: {values:?}");
            values.first().map(|(_, value)| value.clone())
        };
        assert_eq!(value("A").unwrap(), "1");
        assert_eq!(value("TRANCHE_SLICE_SOCKET").unwrap(), "/run/tranche/slices/a.j.2/attach.sock");
        assert_eq!(
            (value("TRANCHE_JOB_INDEX").unwrap(), value("TRANCHE_JOB_START").unwrap()),
            ("2".into(), "4".into())
        );
        assert!(value("LD_PRELOAD").unwrap().ends_with(":/own.so"));
        assert_eq!(value("BASH_ENV"), None);
    }

    #[test]
    fn unsafe_environment_values_are_rejected() {
        let with = |name: &'static str, value: &'static str| {
            bound(move |all| {
                all.iter_mut().filter(|(known, _)| known == name).for_each(|pair| pair.1 = value.into());
            })
        };
        for socket in [
            "/run/tranche/slices/a.j.1/attach.sock",
            "slices/a.j.2/attach.sock",
            "/x/../slices/a.j.2/attach.sock",
            "/tmp/x",
        ] {
            assert!(with("TRANCHE_SLICE_SOCKET", socket).is_err(), "{socket}");
        }
        assert!(with("CUDA_VISIBLE_DEVICES", "0\nLD_PRELOAD=/x").is_err());
        assert!(with("TRANCHE_JOB_START", "x").is_err());
        assert!(bound(|all| all.remove(0).0.clear()).unwrap_err().contains("gave no TRANCHE_SLICE_SOCKET"));
    }
}
