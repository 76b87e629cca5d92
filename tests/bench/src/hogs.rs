//! Programs that take all processors from others.

use std::process::{Child, Command, Stdio, id};

use crate::{Result, interrupt};

/// Loops that want a processor each, as programs of the usual policy (`SCHED_OTHER`). Dropping this ends them.
#[derive(Debug)]
pub struct Hogs(Vec<Child>);

impl Hogs {
    /// Starts `count` loops. Each ends by itself, too, about a second after this process has gone.
    ///
    /// # Errors
    /// If one cannot be started; those before it are ended.
    pub fn start(count: usize) -> Result<Self> {
        // `kill -0` sends nothing, and fails where there is no such process.
        let body = "i=0; while :; do i=$((i+1)); if [ $i = 500000 ]; then i=0; kill -0 $0 || exit; fi; done";
        let mut hogs = Self(Vec::new());
        for _ in 0..count {
            let mut command = Command::new("sh");
            command.args(["-c", body, &id().to_string()]).stdin(Stdio::null()).stderr(Stdio::null());
            let hog = interrupt::start(&mut command)
                .map_err(|error| format!("cannot start {command:?}: {error}"))?;
            hogs.0.push(hog);
        }
        Ok(hogs)
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            // Errors mean that it has ended.
            let _ = hog.kill();
            let _ = hog.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn hogs_end_with_their_handle() {
        let hogs = Hogs::start(2).expect("sh starts");
        let places: Vec<PathBuf> = hogs.0.iter().map(|hog| format!("/proc/{}", hog.id()).into()).collect();
        assert!(places.iter().all(|place| place.exists()));
        drop(hogs);
        assert!(places.iter().all(|place| !place.exists()));
    }
}
