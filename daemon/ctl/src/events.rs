//! `tranche events`: the stored events, and with `-f` new ones.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tranche_domain::event::Event;
use tranche_domain::text::visible;

use crate::cli::EventsArgs;
use crate::client::{Daemon, Reconnection};
use crate::errors::Failure;
use crate::out;
use crate::table::Page;
use crate::terminal::Canvas;
use crate::when::Clock;

/// Carries out `tranche events` with the daemon at `socket`.
pub fn events(args: &EventsArgs, clock: Clock, socket: &Path) -> Result<(), Failure> {
    let earliest = args.since.map(|since| SystemTime::now().checked_sub(since).unwrap_or(UNIX_EPOCH));
    let mut daemon = Daemon::connect(socket)?;
    let mut reconnection = Reconnection::new(socket);
    let (mut any, mut last) = (false, None);
    loop {
        let before = last;
        let since = before.unwrap_or_default();
        let followed = daemon.events(since, args.slice.as_ref(), args.follow, |event| {
            let is_known = before.is_some_and(|before| event.seq <= before);
            last = last.max(Some(event.seq));
            if is_known || earliest.is_some_and(|earliest| time(&event) < earliest) {
                return Ok(ControlFlow::Continue(()));
            }
            any = true;
            print(&event, args, clock)?;
            Ok(ControlFlow::Continue(()))
        });
        match followed {
            _ if !args.follow => {
                followed?;
                break;
            }
            Ok(()) => match reconnection.after_end(last != before)? {
                Some(next) => daemon = next,
                None => break,
            },
            Err(failure) => daemon = reconnection.after(failure)?,
        }
    }
    if let (Some(slice), false) = (&args.slice, any) {
        eprintln!("tranche: no events of a slice {slice} are kept, or none that late");
    }
    Ok(())
}

fn print(event: &Event, args: &EventsArgs, clock: Clock) -> Result<(), Failure> {
    if args.output.json {
        return out::json_line(event);
    }
    let mut page = Page::on(Canvas::of_stdout());
    page.line(&line(event, clock));
    out::page(&page)
}

fn time(event: &Event) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(event.time_unix_ms)
}

/// One event as a line: time, severity, kind, subject and evidence.
fn line(event: &Event, clock: Clock) -> String {
    let when = clock.millis(time(event));
    let slice = event.slice.as_ref().map(|slice| format!(" slice {slice}"));
    let pid = event.pid.map(|pid| format!(" pid {pid}"));
    let gpu = event.gpu.map(|gpu| format!(" {gpu}"));
    let whom: String = [slice, pid, gpu].into_iter().flatten().collect();
    // An older daemon may have stored untrusted text without escaping it.
    let evidence = visible(&event.evidence);
    let actor = event.actor.as_ref().map(|actor| format!("by {}", visible(&actor.to_string())));
    let cause = event.cause.as_ref().map(|cause| format!("rule {}", visible(cause.as_str())));
    let origin: Vec<String> = cause.into_iter().chain(actor).collect();
    let origin = if origin.is_empty() { String::new() } else { format!(" [{}]", origin.join(", ")) };
    format!("{when} {:<7} {:<17}{whom}: {evidence}{origin}", event.severity, event.kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_domain::event::{Actor, EventCause, EventHistory, EventKind, Happening};
    use tranche_domain::id::{GpuUuid, HostPid};

    fn event(happening: Happening) -> Event {
        EventHistory::keeping(1).enter(happening, 1_767_323_090_007).clone()
    }

    #[test]
    fn event_is_one_line() {
        let happening = Happening::new(EventKind::UnderReported, "it holds 9 MiB and is charged 1 MiB");
        let slice = "a".parse().unwrap();
        let whole = event(happening.of(&slice).on(GpuUuid::from_bytes([0; 16])).by(HostPid::new(7)));
        assert_eq!(
            line(&whole, Clock::Utc),
            "2026-01-02T03:04:50.007Z warning under-reported    slice a pid 7 \
             GPU-00000000-0000-0000-0000-000000000000: it holds 9 MiB and is charged 1 MiB"
        );
        let drained = Happening::new(EventKind::SliceDeleted, "it was deleted").caused_by(EventCause::Drain);
        let drained = event(drained.asked_by(Actor::of_user(0, Some("root"))));
        assert!(line(&drained, Clock::Utc).ends_with("it was deleted [rule drain, by root (uid 0)]"));
        let bare = event(Happening::new(EventKind::DaemonStarted, "ready"));
        assert_eq!(line(&bare, Clock::Utc), "2026-01-02T03:04:50.007Z info    daemon-started   : ready");
    }

    #[test]
    fn untrusted_evidence_is_escaped() {
        let mut event = event(Happening::new(EventKind::ForeignProcess, ""));
        event.evidence = "\x1b[2J\u{9b}\n".into();
        assert!(
            line(&event, Clock::Utc).ends_with(": \\u{1b}[2J\\u{9b}\\n"),
            "{:?}",
            line(&event, Clock::Utc)
        );
    }
}
