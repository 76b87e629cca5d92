//! The library keeps caps and gates on 64-bit Arm, too.
//!
//! Its programs run emulated, in slices of this machine's daemon: both share pages, sockets and the simulated GPU.
//! `make arm` builds the libraries, whose folder is in `TRANCHE_ARM`.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use e2e::{Counted, CudaError, Held, Kind, Node, Process, compile_by, eventually};
use tranche_domain::units::Bytes;
use tranche_shm::compute::Tally;
use tranche_shm::lease::Lease;

/// The emulator with the folder of the other machine's libc, as in Debian's packages.
const EMULATOR: [&str; 3] = ["qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu"];
const COMPILER: &str = "aarch64-linux-gnu-gcc";
const OPEN: Lease =
    Lease { open: true, governed: true, frozen: false, bell: true, depth_us: 4_000, least: 1 };

/// Way of the library into a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// By `LD_PRELOAD`.
    Preload,
    /// In the place of the driver's libraries.
    Place,
}

fn built() -> PathBuf {
    let place = std::env::var_os("TRANCHE_ARM").expect("`make arm` names what it built in TRANCHE_ARM");
    PathBuf::from(place)
}

/// Command that starts a program of `clients/` emulated, with the library.
#[track_caller]
fn emulated(by: By, source: &str, arguments: &[&str]) -> Vec<String> {
    let program = compile_by(COMPILER, &format!("tests/e2e/clients/{source}"), &[]).expect("it compiles");
    let built = built();
    let preload = built.join("libtranche_preload.so");
    let (driver, replacements) = (built.join("sim"), built.join("replace"));
    let variables = match by {
        By::Preload => {
            [format!("LD_PRELOAD={}", preload.display()), format!("LD_LIBRARY_PATH={}", driver.display())]
        }
        By::Place => {
            ["LD_PRELOAD=".into(), format!("LD_LIBRARY_PATH={}:{}", replacements.display(), driver.display())]
        }
    };
    let variables = variables.into_iter().flat_map(|variable| ["-E".into(), variable]);
    let words = EMULATOR.map(String::from).into_iter().chain(variables);
    words
        .chain([program.display().to_string()])
        .chain(arguments.iter().map(|word| word.to_string()))
        .collect()
}

/// Number of launches in a program's report.
#[track_caller]
fn launches(line: &str) -> u64 {
    let count = line.strip_prefix("done ").and_then(|rest| rest.split(' ').next()?.parse().ok());
    count.unwrap_or_else(|| panic!("{line:?}"))
}

#[test]
fn every_way_to_allocate_ends_at_the_cap() {
    for by in [By::Preload, By::Place] {
        let node = Node::simulated("v100x8");
        node.tranche(&["slice", "create", "work", "-g", "0.5", "--gpu", "0"]).success();
        let mut tenant = node
            .tenant_of(&mut node.run_in_slice(&["--slice", "work"], &emulated(by, "tenant.c", &[])))
            .ready();
        assert_eq!(tenant.info().1, Bytes::mib(16255), "{by:?}");
        for kind in
            [Kind::Plain, Kind::Managed, Kind::Pitch, Kind::Async, Kind::Pool, Kind::Virtual, Kind::Array]
        {
            tenant.alloc(kind, Bytes::mib(512)).unwrap_or_else(|error| panic!("{by:?} {kind:?}: {error:?}"));
            let refused = tenant.alloc(kind, Bytes::mib(16000));
            assert_eq!(refused, Err(CudaError::OUT_OF_MEMORY), "{by:?} {kind:?}");
        }
        tenant.fill();
        let (held, cap) = (node.device().held_by(0, &[tenant.pid()]), node.slice("work").cap());
        assert!(held <= cap && held > cap.saturating_sub(Bytes::mib(600)), "{by:?}: {held} of {cap}");
        assert!(node.events().iter().all(|event| event.kind != "unshimmed-process"), "{by:?}");
    }
}

#[test]
fn launches_wait_at_a_closed_gate_and_are_counted_each() {
    for by in [By::Preload, By::Place] {
        let node = Node::simulated("v100x8");
        node.tranche(&["slice", "create", "work", "-g", "0.5", "--gpu", "0"]).success();
        let mut launcher = Process::start(
            &mut node.run_in_slice(&["--slice", "work"], &emulated(by, "launch.c", &["synchronous", "20"])),
        );
        assert!(launcher.line().unwrap_or_default().starts_with("ready "), "{by:?}");
        let closed = Held::hold(&node, "work", Lease { open: false, ..OPEN });
        launcher.say("go");
        let counted = Counted::of(&node, "work", 0);
        eventually("it waits", || match counted.tally(Tally::Waiting) {
            1 => Ok(()),
            other => Err(format!("{other} wait, {} launched", counted.tally(Tally::Launches))),
        });
        sleep(Duration::from_millis(100));
        assert_eq!(counted.tally(Tally::Launches), 0, "{by:?}");
        drop(closed);
        let _open = Held::hold(&node, "work", OPEN);
        let line = launcher.line().unwrap_or_default();
        let launches = launches(&line);
        assert!(launches > 0, "{by:?}: {line}");
        assert_eq!((counted.tally(Tally::Launches), counted.tally(Tally::Waiting)), (launches, 0), "{by:?}");
    }
}

#[test]
fn launches_of_a_saturating_program_are_counted_by_the_quick_door() {
    let node = Node::simulated("v100x8");
    node.tranche(&["slice", "create", "work", "-g", "0.5", "--gpu", "0"]).success();
    let words = emulated(By::Preload, "launch.c", &["saturate", "1500"]);
    let mut launcher = Process::start(&mut node.run_in_slice(&["--slice", "work"], &words));
    assert!(launcher.line().unwrap_or_default().starts_with("ready "));
    launcher.say("go");
    let line = launcher.line().unwrap_or_default();
    let reported = launches(&line);
    let counted = Counted::of(&node, "work", 0).tally(Tally::Launches);
    assert!(reported > 100, "{line}");
    // The last few are counted when the thread places its next mark.
    assert!(counted <= reported && counted + 256 >= reported, "{counted} of {reported}");
}
