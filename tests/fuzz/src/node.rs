//! Slices of a node, created, resized, adopted and deleted in any order, within its GPUs' capacity.

use tranche_domain::compute::{Latency, Priority};
use tranche_domain::id::{GpuSelector, GpuUuid};
use tranche_domain::node::{Gpu, Node, Origin};
use tranche_domain::request::{ComputeMode, Fraction, Resize, Share, SliceRequest};
use tranche_domain::units::{Bytes, Permille};

use crate::input::Input;

/// Any order of requests, to a node of up to three GPUs.
pub fn node(data: &[u8]) {
    let mut input = Input(data);
    drive(&mut input);
}

fn drive(input: &mut Input<'_>) -> Option<()> {
    let gpus = (0..input.below(4)?).map(|index| Gpu {
        index: index.into(),
        uuid: uuid(index),
        island: u32::from(index) / 2,
        capacity: Bytes::mib(1000 * (u64::from(index) + 1)),
        obstacle: (index == 3).then(|| "in the way".into()),
    });
    let mut node = Node::new(gpus.collect());
    loop {
        let before = node.clone();
        match input.below(6)? {
            0..=2 => {
                let request = request(input)?;
                let origin = Origin { uid: 1, now_unix_ms: 1, job: None };
                let possible = node.check(&request).is_ok();
                match node.create(&request, origin).cloned() {
                    Ok(slice) => {
                        assert!(possible && before.slice(&slice.name).is_err());
                        let mut undone = node.clone();
                        undone.delete(&slice.name).expect("it is there");
                        assert_eq!(undone, before, "deleting undoes creating");
                        undone.adopt(slice).expect("what was there fits again");
                        assert_eq!(undone, node, "and adopting does it again");
                    }
                    Err(_) => assert!(!possible && node == before),
                }
            }
            3 => {
                let Some(name) = pick(&node, input.byte()?) else { continue };
                let resize = Resize {
                    fraction: fraction(input.number()?),
                    memory: Some(Bytes::new(input.number()?)).filter(|bytes| bytes.get() % 2 == 1),
                    compute: Permille::try_from(input.number()? as u32).ok(),
                    limit: Permille::try_from(input.number()? as u32).ok(),
                    priority: Priority::try_from(input.number()? as i32).ok(),
                    latency: (input.below(2)? == 1).then_some(Latency::try_from(input.number()? as u32).ok()),
                    frozen: Some(input.below(2)? == 1),
                };
                if node.resize(&name, resize).is_err() {
                    assert_eq!(node, before, "a refusal changes nothing");
                }
            }
            4 => {
                let Some(name) = pick(&node, input.byte()?) else { continue };
                node.delete(&name).expect("it is there");
            }
            _ => {
                let Some(name) = pick(&node, input.byte()?) else { continue };
                let (gpu, excess) = (uuid(input.below(4)?), Bytes::mib(input.byte()?.into()));
                node.set_excess(&name, gpu, excess);
                assert!(!node.set_excess(&name, gpu, excess), "no news the second time");
                node.set_excess(&name, gpu, Bytes::ZERO);
            }
        }
        check(&node);
    }
}

fn check(node: &Node) {
    for (gpu, room) in node.gpus().iter().zip(node.rooms()) {
        let (memory, compute) = node.committed(gpu.uuid);
        assert!(memory <= gpu.capacity, "{memory} of {} promised", gpu.capacity);
        assert!(compute <= Permille::WHOLE);
        assert_eq!(memory.saturating_add(room.free), gpu.capacity);
    }
}

fn request(input: &mut Input<'_>) -> Option<SliceRequest> {
    let share = match input.below(3)? {
        0 => Share::Fraction(fraction(input.number()?)?),
        1 => Share::Whole(u32::from(input.below(20)?).try_into().ok()?),
        _ => Share::Memory(Bytes::new(input.number()?)),
    };
    let flags = input.byte()?;
    let mode = [ComputeMode::Fair, ComputeMode::Strict, ComputeMode::BestEffort, ComputeMode::Fair];
    let name = (flags & 1 > 0).then(|| format!("n{}", flags >> 5).parse().expect("a good name"));
    Some(SliceRequest {
        name,
        memory: if flags & 2 > 0 { Some(Bytes::new(input.number()?)) } else { None },
        compute: if flags & 4 > 0 { Permille::try_from(input.number()? as u32).ok() } else { None },
        limit: if flags & 128 > 0 { Permille::try_from(input.number()? as u32).ok() } else { None },
        mode: mode[usize::from(flags >> 3 & 3)],
        priority: Priority::try_from(i32::from(flags)).unwrap_or_default(),
        latency: if flags & 8 > 0 { Latency::try_from(input.number()? as u32).ok() } else { None },
        gang: (flags & 64 > 0).then(|| "ranks".parse().expect("a label")),
        gpus: gpus(if flags & 16 > 0 { input.byte()? } else { 0 }),
        ephemeral: flags & 32 > 0,
        ..SliceRequest::of(share)
    })
}

/// Those of GPUs 0 to 7 whose bit is set.
fn gpus(bits: u8) -> Vec<GpuSelector> {
    (0..8).filter(|index| bits >> index & 1 > 0).map(GpuSelector::Index).collect()
}

fn fraction(number: u64) -> Option<Fraction> {
    Fraction::try_from((number % 1024) as u32).ok()
}

fn pick(node: &Node, which: u8) -> Option<tranche_domain::id::SliceName> {
    let names: Vec<_> = node.slices().keys().collect();
    (!names.is_empty()).then(|| names[usize::from(which) % names.len()].clone())
}

const fn uuid(index: u8) -> GpuUuid {
    GpuUuid::from_bytes([index + 1; 16])
}
