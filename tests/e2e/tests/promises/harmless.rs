//! Promise 7: the shim never harms its program, and one that uses no GPU behaves as without it.

use std::path::Path;

use e2e::{CudaError, Kind, Node, Outcome, Tenant, compile, skip};
use tranche_domain::units::Bytes;

use crate::HALF_V100;

/// End of a command without the shim, with the shim preloaded outside all slices, and in a slice.
struct ThreeWays {
    plain: Outcome,
    preloaded: Outcome,
    in_slice: Outcome,
}

impl ThreeWays {
    #[track_caller]
    fn try_out(node: &Node, words: &[&str]) -> Self {
        let [program, arguments @ ..] = words else { panic!("a command has a program") };
        let shim = node.stage().shim();
        Self {
            plain: node.run(node.command(program).args(arguments)),
            preloaded: node.run(node.command(program).args(arguments).env("LD_PRELOAD", shim)),
            in_slice: node.run(&mut node.run_in_slice(&["-g", "0.1"], words)),
        }
    }

    /// Fails unless all three have the same output and the same end.
    #[track_caller]
    fn assert_same(&self) {
        for other in [&self.preloaded, &self.in_slice] {
            assert_eq!(end_of(other), end_of(&self.plain), "{}\n{other}", self.plain);
        }
    }
}

/// Exit code and output of a command; a signal counts as 128 and its number, as a runner exits.
fn end_of(outcome: &Outcome) -> (i32, &str, &str) {
    let code = outcome.code.or(outcome.signal.map(|signal| 128 + signal));
    (code.expect("a command exits or is killed"), &outcome.stdout, &outcome.stderr)
}

#[track_caller]
fn compiled(source: &str, flags: &[&str]) -> String {
    let program = compile(source, flags).unwrap_or_else(|complaint| panic!("{complaint}"));
    program.to_string_lossy().into_owned()
}

#[test]
fn ordinary_programs_have_the_same_output_and_end() {
    let node = Node::simulated("h200x1");
    let commands: [&[&str]; 7] = [
        &["true"],
        &["false"],
        &["sh", "-c", "echo out; echo err >&2; exit 3"],
        &["sh", "-c", "kill -SEGV $$"],
        &["sh", "-c", "umask; cat /proc/self/limits"],
        &["sh", "-c", "set -m; (exit 5) & wait $!; echo $?"],
        &["sh", "-c", "yes | head -n 2"],
    ];
    for words in commands {
        ThreeWays::try_out(&node, words).assert_same();
    }
}

#[test]
fn program_that_inspects_itself_finds_no_difference() {
    let node = Node::simulated("h200x1");
    let guest = compiled("tests/e2e/clients/guest.c", &[]);
    let ways = ThreeWays::try_out(&node, &[&guest]);
    assert_eq!(ways.plain.code, Some(9), "{}", ways.plain);
    ways.assert_same();
}

#[test]
fn a_static_program_runs_as_ever() {
    let program = match compile("tests/e2e/clients/static.c", &["-static"]) {
        Ok(program) => program,
        Err(complaint) => return skip(&format!("nothing can be linked statically here: {complaint}")),
    };
    let node = Node::simulated("h200x1");
    ThreeWays::try_out(&node, &[&program.to_string_lossy()]).assert_same();
}

#[test]
fn python_runs_as_ever() {
    let node = Node::simulated("h200x1");
    let script = "import ctypes, os, sys, threading\n\
        done = []\n\
        threads = [threading.Thread(target=lambda: done.append(1)) for _ in range(8)]\n\
        [t.start() for t in threads]; [t.join() for t in threads]\n\
        print(len(done), ctypes.CDLL(None).abs(-7), os.getcwd())\n\
        sys.exit(6)";
    let ways = ThreeWays::try_out(&node, &["python3", "-c", script]);
    if ways.plain.code != Some(6) {
        return skip("there is no python3");
    }
    ways.assert_same();
}

#[test]
fn nothing_is_opened_or_started_before_the_gpu_is_used() {
    let node = Node::simulated("v100x8");
    let counts = |tenant: &mut Tenant| (tenant.number("fds").unwrap(), tenant.number("threads").unwrap());
    let mut plain = node.tenant_of(&mut node.command(Tenant::program()));
    let mut inside = node.tenant(&["-g", "0.5", "--name", "quiet"]);
    assert_eq!(counts(&mut inside), counts(&mut plain));
    assert!(node.slice("quiet").processes.is_empty(), "it is registered before it needs to be");
}

#[test]
fn a_program_that_closes_all_descriptors_can_still_use_its_slice() {
    let node = Node::simulated("v100x8");
    let mut tenant = node.tenant(&["-g", "0.5"]);
    tenant.ask("closefds").unwrap();
    let mut tenant = tenant.ready();
    assert_eq!(tenant.info().1, HALF_V100);
    tenant.fill();
    assert_eq!(tenant.alloc(Kind::Plain, Bytes::mib(2)), Err(CudaError::OUT_OF_MEMORY));
}

#[test]
fn descriptors_closed_behind_the_shims_back_are_never_written_to() {
    let node = Node::simulated("v100x8");
    node.tranche(&["slice", "create", "pair", "-g", "0.5"]).success();
    let mut tenants = [0, 1].map(|_| node.tenant(&["--slice", "pair"]).ready());
    let files = node.dir().join("files");
    std::fs::create_dir(&files).unwrap();
    let tenant = &mut tenants[0];
    tenant.ask("closefds").unwrap();
    tenant.ask(&format!("openfiles {}", files.display())).unwrap();
    // Whatever it allocates now, the shim must write no request for credit to a file of the program, and the slice must
    // stay within its cap.
    for _ in 0..3 {
        let _ = tenant.alloc(Kind::Plain, Bytes::mib(12 * 1024));
    }
    for file in files.read_dir().unwrap() {
        let file = file.unwrap();
        assert_eq!(file.metadata().unwrap().len(), 0, "{} was written to", file.path().display());
    }
    let pids = tenants.each_mut().map(|tenant| tenant.pid());
    tenants[1].fill();
    assert!(node.device().held_by(0, &pids) <= HALF_V100);
}

#[test]
fn a_machine_without_a_driver_stays_one() {
    let node = Node::simulated("h200x1");
    let program = Tenant::program();
    for preload in [None, Some(node.stage().shim())] {
        let mut command = node.command(&program);
        command.env("LD_LIBRARY_PATH", Path::new("/nonexistent"));
        if let Some(shim) = &preload {
            command.env("LD_PRELOAD", shim);
        }
        let mut tenant = node.tenant_of(&mut command);
        assert_eq!(tenant.init(), Err(CudaError(9001)), "preload: {preload:?}");
        assert_eq!(tenant.ask("nvml"), Err(CudaError(9001)), "preload: {preload:?}");
        assert_eq!(tenant.end().code, Some(0));
    }
}
