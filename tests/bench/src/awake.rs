//! Processors kept from their idle states.

use std::process::{Child, Command, Stdio};
use std::thread::available_parallelism;

use crate::interrupt;

/// A loop on each processor that runs while nothing else does (`SCHED_IDLE`), until this is dropped.
///
/// Of two measurements that wait for wake-ups, one may find the processors idle and the other not: their difference
/// is that of the machine then.
#[derive(Debug)]
pub struct Awake(Vec<Child>);

impl Awake {
    /// Starts the loops; without `chrt` (util-linux) there are none, which is printed.
    pub fn start() -> Self {
        let count = available_parallelism().map_or(1, usize::from);
        let mut spinner = Command::new("chrt");
        spinner.args(["--idle", "0", "sh", "-c", "while :; do :; done"]).stdin(Stdio::null());
        match (0..count).map(|_| interrupt::start(&mut spinner)).collect() {
            Ok(loops) => Self(loops),
            Err(error) => {
                println!("NOTE: processors may go idle, as chrt (util-linux) cannot be started: {error}");
                Self(Vec::new())
            }
        }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        for spinner in &mut self.0 {
            // Errors mean that it has ended.
            let _ = spinner.kill();
            let _ = spinner.wait();
        }
    }
}
