//! A program that trains in a slice, and the lines that it prints.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use e2e::{Outcome, Process};
use serde_json::Value;

/// State of a training at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// Seconds since the begin of the demonstration.
    pub at: f64,
    /// Steps made so far.
    pub step: u64,
    /// Loss of the last step.
    pub loss: f64,
    /// Memory of the slice, as the program sees it.
    pub total: u64,
}

#[derive(Debug)]
enum Order {
    Hold(u64),
    End,
}

/// Lines that a training has printed so far.
#[derive(Debug, Default)]
struct Printed {
    seen: Vec<Seen>,
    refusals: u64,
}

/// A training that runs.
#[derive(Debug)]
pub struct Trainee {
    /// Name of the slice that it is in.
    pub slice: &'static str,
    /// Pid of the process on the GPU; 0 until the slice has it.
    pub pid: u32,
    orders: Sender<Order>,
    printed: Arc<Mutex<Printed>>,
    thread: JoinHandle<Outcome>,
}

impl Trainee {
    /// Takes a started program; times count from `begin`.
    pub fn of(slice: &'static str, process: Process, begin: Instant) -> Self {
        let (orders, received) = channel();
        let printed = Arc::new(Mutex::new(Printed::default()));
        let ours = printed.clone();
        let thread = std::thread::spawn(move || follow(process, &received, &ours, begin));
        Self { slice, pid: 0, orders, printed, thread }
    }

    /// All that was seen of it.
    pub fn seen(&self) -> Vec<Seen> {
        self.printed().seen.clone()
    }

    /// The last that was seen of it, if anything was.
    pub fn last(&self) -> Option<Seen> {
        self.printed().seen.last().copied()
    }

    /// Number of requests for memory that it was refused.
    pub fn refusals(&self) -> u64 {
        self.printed().refusals
    }

    /// Has it try to hold memory beside its model.
    pub fn hold(&self, mib: u64) {
        // It may have ended; then the demonstration fails by what is seen of it.
        let _ = self.orders.send(Order::Hold(mib));
    }

    /// Ends it, and returns how it ended.
    #[track_caller]
    pub fn end(self) -> Outcome {
        let _ = self.orders.send(Order::End);
        self.thread.join().expect("its thread reads until it has ended")
    }

    fn printed(&self) -> std::sync::MutexGuard<'_, Printed> {
        self.printed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Longest time without a line, such as while PyTorch starts on a busy machine.
const SILENCE: Duration = Duration::from_secs(120);

fn follow(
    mut process: Process,
    orders: &Receiver<Order>,
    printed: &Mutex<Printed>,
    begin: Instant,
) -> Outcome {
    loop {
        match orders.try_recv() {
            Ok(Order::Hold(mib)) => drop(process.say(&mib.to_string())),
            Ok(Order::End) => return process.end_within(SILENCE),
            Err(_) => {}
        }
        let Some(line) = process.line_within(SILENCE) else { return process.end_within(SILENCE) };
        let mut printed = printed.lock().unwrap_or_else(PoisonError::into_inner);
        match read(&line, begin.elapsed().as_secs_f64()) {
            Some(seen) => printed.seen.push(seen),
            None => printed.refusals += u64::from(line.contains("refused")),
        }
    }
}

fn read(line: &str, at: f64) -> Option<Seen> {
    let line: Value = serde_json::from_str(line).ok()?;
    let (step, loss, total) = (line["step"].as_u64()?, line["loss"].as_f64()?, line["total"].as_u64()?);
    Some(Seen { at, step, loss, total })
}

#[cfg(test)]
mod tests {
    use super::{Seen, read};

    #[test]
    fn lines_are_states_or_refusals() {
        let line = r#"{"step": 7, "loss": 0.5, "free": 1, "total": 2, "at": 9.0}"#;
        assert_eq!(read(line, 1.5), Some(Seen { at: 1.5, step: 7, loss: 0.5, total: 2 }));
        assert_eq!(read(r#"{"refused": true, "step": 7}"#, 1.5), None);
    }
}
