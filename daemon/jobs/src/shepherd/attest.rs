//! The launcher's socket for submitters, which issues and revokes tickets.
//! Peers are identified by the kernel.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tranche_domain::jobs::{Attested, Greeting, TicketAnswer, TicketAsk, TicketId, TicketRequest};
use tranche_jobs::runner_protocol::send_message;

use crate::account::{Barred, SubmitterAccount};
use crate::peer::Peer;
use crate::tickets::{LaunchTicket, Tickets, nonce};

/// Time limit of a connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum number of simultaneous connections, root's not counted.
const MOST_CONNECTIONS: usize = 128;
/// Maximum number of simultaneous connections of one user.
const MOST_OF_USER: usize = 8;

/// Number of connections of each user, by uid.
type Connections = Arc<Mutex<BTreeMap<u32, usize>>>;

/// Serves submitters; returns only if the socket fails.
pub(crate) fn serve(listener: &UnixListener, tickets: &Tickets) -> io::Result<()> {
    tickets.sweep()?;
    let connections = Connections::default();
    for stream in listener.incoming() {
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(error),
            // Out of descriptors, or the peer has disconnected.
            Err(_) => {
                thread::sleep(Duration::from_millis(50));
                continue;
            }
        };
        let (tickets, connections) = (tickets.clone(), Arc::clone(&connections));
        // Without a thread the connection is closed; the peer may retry.
        let _ = thread::Builder::new().name("submitter".into()).spawn(move || {
            let _ = connection(&stream, &tickets, &connections);
        });
    }
    Ok(())
}

fn connection(stream: &UnixStream, tickets: &Tickets, connections: &Connections) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let answer = match Peer::of(stream) {
        Ok(peer) => match Turn::take(connections, peer.uid) {
            Some(_turn) => attend(stream, &peer, tickets)?,
            None => TicketAnswer::Refused("too many are asking at once; try again".into()),
        },
        Err(why) => TicketAnswer::Refused(why),
    };
    send_message(&mut &*stream, &answer)
}

/// Permit for one connection.
struct Turn<'a>(&'a Connections, u32);

impl<'a> Turn<'a> {
    fn take(connections: &'a Connections, uid: u32) -> Option<Self> {
        let mut all = connections.lock().unwrap_or_else(PoisonError::into_inner);
        let others: usize = all.iter().filter(|(user, _)| **user != 0).map(|(_, count)| count).sum();
        let of_user = all.get(&uid).copied().unwrap_or(0);
        if of_user >= MOST_OF_USER || (uid != 0 && others >= MOST_CONNECTIONS) {
            return None;
        }
        all.insert(uid, of_user + 1);
        Some(Self(connections, uid))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match all.get_mut(&self.1) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(all.remove(&self.1)),
        }
    }
}

fn attend(stream: &UnixStream, peer: &Peer, tickets: &Tickets) -> io::Result<TicketAnswer> {
    let deadline = Instant::now() + PATIENCE;
    let greeting = Greeting { nonce: nonce()? };
    send_message(&mut &*stream, &greeting)?;
    let line = peer.line(stream, deadline)?;
    let Ok(request) = serde_json::from_slice::<TicketRequest>(&line) else {
        return Ok(TicketAnswer::Refused("this is no request for a ticket".into()));
    };
    if request.nonce != greeting.nonce {
        return Ok(TicketAnswer::Refused("the request does not repeat what it was sent".into()));
    }
    let answer = peer.may_attest().and_then(|()| answer(request.ask, peer, tickets));
    Ok(answer.unwrap_or_else(TicketAnswer::Refused))
}

fn answer(ask: TicketAsk, peer: &Peer, tickets: &Tickets) -> Result<TicketAnswer, String> {
    let failed = |error: io::Error| error.to_string();
    match ask {
        TicketAsk::Issue(attested) => issue(*attested, peer, tickets).map(TicketAnswer::Issued),
        TicketAsk::Revoke(id) => {
            let found = tickets.find(&id).map_err(failed)?;
            match found {
                Some(ticket) if peer.uid == 0 || ticket.uid == peer.uid => {
                    tickets.revoke(&id).map(|there| TicketAnswer::Revoked(there.into())).map_err(failed)
                }
                Some(_) => Err(format!("ticket {id} is not of user {}", peer.uid)),
                None => Ok(TicketAnswer::Revoked(0)),
            }
        }
        TicketAsk::RevokeJob { project, job } => {
            let mut count = 0;
            for ticket in tickets.of(peer.uid).map_err(failed)? {
                if ticket.attested.project == project && ticket.attested.job == job {
                    count += u32::from(tickets.revoke(&ticket.id).map_err(failed)?);
                }
            }
            Ok(TicketAnswer::Revoked(count))
        }
    }
}

fn issue(attested: Attested, peer: &Peer, tickets: &Tickets) -> Result<TicketId, String> {
    check(&attested)?;
    let (account, _) = SubmitterAccount::of(peer.uid).map_err(|barred| match barred {
        Barred::ForGood(why) | Barred::ForNow(why) => why,
    })?;
    let ticket = LaunchTicket::new(peer.uid, peer.gid, account, attested)
        .map_err(|error| format!("no ticket: {error}"))?;
    tickets.issue(&ticket).map_err(|error| format!("cannot keep the ticket: {error}"))?;
    Ok(ticket.id)
}

/// Rejects commands that no program could be started with.
fn check(attested: &Attested) -> Result<(), String> {
    let launch = &attested.launch;
    let variables = launch.environment.iter().flat_map(|(name, value)| [name, value]);
    let has_zero =
        launch.command.iter().chain([&launch.workdir]).chain(variables).any(|text| text.contains('\0'));
    match () {
        () if launch.command.is_empty() && launch.container.is_none() => Err("there is no command".into()),
        () if launch.command.first().is_some_and(String::is_empty) => Err("there is no command".into()),
        () if !launch.workdir.starts_with('/') => Err("the folder is no absolute path".into()),
        () if has_zero => Err("a zero byte is in the command, the folder or the environment".into()),
        () => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_one_user_are_limited() {
        let connections = Connections::default();
        let turns: Vec<_> = (0..MOST_OF_USER).map(|_| Turn::take(&connections, 7).unwrap()).collect();
        assert!(Turn::take(&connections, 7).is_none());
        let others: Vec<_> = (100..).map_while(|uid| Turn::take(&connections, uid)).take(1000).collect();
        assert_eq!(others.len(), MOST_CONNECTIONS - MOST_OF_USER);
        assert!(Turn::take(&connections, 0).is_some(), "root is served however many others there are");
        drop((turns, others));
        assert!(connections.lock().unwrap().is_empty());
    }
}
