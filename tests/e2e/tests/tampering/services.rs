//! Services in a slice by a drop-in: a process of the cgroup without the library belongs to it too.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use e2e::{Process, eventually, skip};

use crate::ground::{Ground, program, ready};

/// A cgroup as systemd makes it for a service, made by the test.
struct Service(PathBuf);

impl Service {
    /// Creates the cgroup in a hierarchy that distinguishes services here; `None` if that is not permitted.
    fn begin(name: &str) -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        let top = Path::new("/sys/fs/cgroup");
        let places = [top.join("devices"), top.join("unified").join(own), top.join(own)];
        let made = places.map(|place| place.join(format!("{name}.service")));
        made.into_iter()
            .find(|place| {
                place.parent().is_some_and(|above| above.join("cgroup.procs").exists())
                    && fs::create_dir(place).is_ok()
            })
            .map(Self)
    }

    /// Starts a program in it, as the drop-in has it, or without the library.
    #[track_caller]
    fn start(&self, ground: &Ground, library: bool) -> (Process, u32) {
        let mut command = ground.node.command("sh");
        let script = "echo $$ >\"$0/cgroup.procs\" && exec \"$@\"";
        command.args(["-c", script]).arg(&self.0).args([&program(), "hold", ""]);
        command.env("TRANCHE_SLICE_SOCKET", ground.node.dir().join("run/mounts/tamper/attach.sock"));
        if library {
            command.env("LD_PRELOAD", ground.node.stage().shim()).env("CUDA_VISIBLE_DEVICES", "0");
        }
        let mut process = Process::start(&mut command);
        let pid = ready(&mut process);
        (process, pid)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Its processes have been killed, and the folder can be removed once they have ended.
        for _ in 0..500 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

#[test]
fn a_program_of_a_service_that_drops_the_library_is_seen_with_the_services_slice() {
    let mut ground = Ground::new();
    let name =
        ground.node.dir().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let Some(service) = Service::begin(&name) else { return skip("no cgroup can be made here") };
    let (honest, honest_pid) = service.start(&ground, true);
    assert_eq!(ground.node.slice("tamper").pids(), [honest_pid], "the service is in its slice");
    let since = Instant::now();
    let (_other, pid) = service.start(&ground, false);
    let event = ground.sees("unshimmed-process", Some(pid), since);
    assert_eq!(event.slice.as_deref(), Some("tamper"), "{event:?}");
    // Also once no process with the library is left.
    drop(honest);
    eventually("the honest one has left", || match ground.node.slice("tamper").pids() {
        none if none.is_empty() => Ok(()),
        some => Err(format!("{some:?}")),
    });
    let since = Instant::now();
    let (_another, pid) = service.start(&ground, false);
    let event = ground.sees("unshimmed-process", Some(pid), since);
    assert_eq!(event.slice.as_deref(), Some("tamper"), "{event:?}");
    ground.neighbour_is_unharmed("service");
}
