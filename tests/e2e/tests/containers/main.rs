//! Slices in containers, by `podman run --device tranche.dev/slice=NAME` with runc.
//!
//! The images contain files of this machine: libc, the tenant of the other tests, a static shell, programs for musl.
#![forbid(unsafe_code)]

mod documents;
mod engine;
mod identity;
mod images;
mod jobs;

use e2e::{CudaError, Kind, Tenant, eventually};
use engine::Engine;
use tranche_domain::units::Bytes;

/// Memory of half of a simulated V100.
const HALF_V100: Bytes = Bytes::mib(16255);
/// Most memory that a V100's driver can allocate.
const WHOLE_V100: Bytes = Bytes::mib(32510);

/// Fails unless the tenant can fill half a GPU, and gets nothing beyond that.
#[track_caller]
fn assert_has_half(tenant: Tenant) -> Tenant {
    let mut tenant = tenant.ready();
    assert_eq!((tenant.number("count"), tenant.info().1), (Ok(1), HALF_V100));
    tenant.fill();
    assert_eq!(tenant.alloc(Kind::Plain, Bytes::mib(64)), Err(CudaError::OUT_OF_MEMORY));
    tenant
}

/// Fails unless the tenant is refused any use of a GPU.
#[track_caller]
fn assert_locked_out(mut tenant: Tenant) {
    assert_eq!(tenant.init(), Err(CudaError::SYSTEM_NOT_READY));
    assert!(tenant.alloc(Kind::Plain, Bytes::mib(2)).is_err());
    assert_eq!(tenant.end().code, Some(0), "a refusal does not end the program");
}

#[test]
fn container_has_exactly_the_requested_slice() {
    let Some(engine) = Engine::begin("") else { return };
    let image = engine.glibc();
    engine.node.tranche(&["slice", "create", "half", "-g", "0.5", "--gpu", "2"]).success();
    let mut tenant = assert_has_half(engine.tenant("half", &[], &image));
    tenant.ask("nvml").expect("NVML begins");
    let [tried, opened] = tenant.numbers("writeshared").unwrap()[..] else { panic!("two numbers") };
    assert!(tried >= 1 && opened == 0, "root in the container can write its limits");

    let slice = engine.node.slice("half");
    assert_eq!((slice.tier.as_str(), slice.processes.len()), ("replace", 1), "{slice:#?}");
    let (outside, inside) = (slice.processes[0].pid, tenant.pid());
    assert_eq!(slice.processes[0].inner_pid, Some(inside), "as the container counts");
    assert_ne!(outside, inside);
    let held = engine.node.device().held_by(2, &[outside]);
    assert!(held > Bytes::mib(16000) && held <= HALF_V100, "{held}");
    assert!(engine.node.smi().gpus[2].foreign.is_empty());
    tenant.end();
    eventually("its memory is released", || match engine.node.device().gpus[2].processes.len() {
        0 => Ok(()),
        count => Err(format!("{count} processes are on the GPU")),
    });
}
