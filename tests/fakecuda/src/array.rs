//! Arrays: device memory with a shape. Programs never see its layout; here it is rows after rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::driver::{Driver, Table, driver};
use crate::lookup::find;
use crate::memory::alloc::{allocate, drop_range};
use crate::memory::ranges::{Kind, Place};
use crate::memory::virt;
use crate::op::Op;
use crate::status::{Outcome, Status};
use crate::stream::{DefaultStream, select};
use crate::wall::{In, Out};

/// Address of an array without memory.
const NOWHERE: u64 = 0;

/// An array, or all levels of a mipmapped one.
#[derive(Clone)]
pub(crate) struct Array {
    context: u64,
    shape: Shape,
    /// The memory behind it and where in it this array begins.
    memory: u64,
    offset: u64,
    role: Role,
    /// Memory mapped into it, by region, if it has none of its own.
    tiles: BTreeMap<Region, u64>,
}

/// Place in an array: the fields of [`MapInfo`] between the array and the operation.
type Region = [u64; 5];

/// `CUarrayMapInfo`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct MapInfo {
    resource: u64,
    array: u64,
    region: Region,
    operation: i32,
    handle_type: i32,
    memory: u64,
    offset: u64,
    devices: u32,
    flags: u32,
    reserved: [u32; 2],
}

/// `CU_MEM_OPERATION_TYPE_MAP`.
const MAP: i32 = 1;
/// `CU_MEM_OPERATION_TYPE_UNMAP`.
const UNMAP: i32 = 2;
/// `CUDA_ARRAY3D_SPARSE` and `CUDA_ARRAY3D_DEFERRED_MAPPING`.
const WITHOUT_MEMORY: u32 = 0x40 | 0x80;

#[derive(Clone, PartialEq)]
enum Role {
    /// An array of its own.
    Whole,
    /// All levels, largest first.
    Mipmapped(Arc<Vec<u64>>),
    /// One level; goes with the mipmapped array.
    Level,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[derive(Clone, Copy, PartialEq)]
#[repr(C)]
pub(crate) struct Shape {
    width: usize,
    height: usize,
    depth: usize,
    format: i32,
    channels: u32,
    flags: u32,
}

/// `CUDA_ARRAY_DESCRIPTOR`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct FlatShape {
    width: usize,
    height: usize,
    format: i32,
    channels: u32,
}

impl Shape {
    /// Bytes of one element.
    fn element(&self) -> Outcome<u64> {
        let channel = match self.format {
            0x01 | 0x08 => 1,
            0x02 | 0x09 | 0x10 => 2,
            0x03 | 0x0a | 0x20 => 4,
            _ => return Err(Status::InvalidValue),
        };
        if matches!(self.channels, 1 | 2 | 4) {
            Ok(channel * u64::from(self.channels))
        } else {
            Err(Status::InvalidValue)
        }
    }

    fn has_memory(&self) -> bool {
        self.flags & WITHOUT_MEMORY == 0
    }

    fn rows(&self) -> u64 {
        self.height.max(1) as u64
    }

    fn pitch(&self) -> Outcome<u64> {
        self.element()?.checked_mul(self.width as u64).ok_or(Status::OutOfMemory)
    }

    fn bytes(&self) -> Outcome<u64> {
        let slices = self.depth.max(1) as u64;
        let rows = self.rows().checked_mul(slices).ok_or(Status::OutOfMemory)?;
        let bytes = self.pitch()?.checked_mul(rows).ok_or(Status::OutOfMemory)?;
        if bytes == 0 { Err(Status::InvalidValue) } else { Ok(bytes) }
    }

    /// The next smaller level.
    fn halved(&self) -> Self {
        let half = |side: usize| if side > 1 { side / 2 } else { side };
        Self { width: half(self.width), height: half(self.height), depth: half(self.depth), ..*self }
    }
}

impl Array {
    fn new(context: u64, shape: Shape, memory: u64, offset: u64, role: Role) -> Self {
        Self { context, shape, memory, offset, role, tiles: BTreeMap::new() }
    }

    /// Address of its bytes, from its first element on, with bytes from row to row and slice to slice.
    pub(crate) fn place(&self, table: &Table) -> Outcome<(Place, u64, u64)> {
        let range = table.ranges.at(self.memory).ok_or(Status::InvalidHandle)?;
        let pitch = self.shape.pitch()?;
        let place = Place::new(range.backing.clone(), range.offset + self.offset, range.device);
        Ok((place, pitch, pitch * self.shape.rows()))
    }

    /// All its bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.shape.bytes().unwrap_or(0)
    }
}

pub(crate) fn create(out: Out<u64>, shape: In<FlatShape>) -> Outcome {
    let FlatShape { width, height, format, channels } = shape.get()?;
    make(out, Shape { width, height, depth: 0, format, channels, flags: 0 })
}

pub(crate) fn create_3d(out: Out<u64>, shape: In<Shape>) -> Outcome {
    make(out, shape.get()?)
}

fn make(out: Out<u64>, shape: Shape) -> Outcome {
    out.check()?;
    let bytes = shape.bytes()?;
    let driver = driver()?;
    let mut table = driver.table();
    let context = table.current()?.0;
    let memory = match shape.has_memory() {
        true => allocate(driver, &mut table, bytes, Kind::Owned)?,
        false => NOWHERE,
    };
    let handle = table.handle();
    table.arrays.insert(handle, Array::new(context, shape, memory, 0, Role::Whole));
    out.put(handle)
}

pub(crate) fn describe(out: Out<FlatShape>, handle: u64) -> Outcome {
    let driver = driver()?;
    let table = driver.table();
    let Shape { width, height, format, channels, .. } = find(&table.arrays, handle)?.shape;
    out.put(FlatShape { width, height, format, channels })
}

pub(crate) fn describe_3d(out: Out<Shape>, handle: u64) -> Outcome {
    let driver = driver()?;
    let table = driver.table();
    out.put(find(&table.arrays, handle)?.shape)
}

pub(crate) fn destroy(handle: u64) -> Outcome {
    let driver = driver()?;
    let mut table = driver.table();
    if find(&table.arrays, handle)?.role != Role::Whole {
        return Err(Status::InvalidHandle);
    }
    end(driver, &mut table, handle);
    Ok(())
}

fn end(driver: &Driver, table: &mut Table, handle: u64) {
    let Some(array) = table.arrays.remove(&handle) else { return };
    array.tiles.values().for_each(|memory| virt::unpin(driver, table, *memory));
    match array.role {
        Role::Level => return,
        Role::Mipmapped(levels) => levels.iter().for_each(|level| drop(table.arrays.remove(level))),
        Role::Whole => {}
    }
    drop_range(driver, table, array.memory);
}

/// Ends all arrays of a context.
pub(crate) fn end_all(driver: &Driver, table: &mut Table, context: u64) {
    let handles: Vec<u64> =
        table.arrays.iter().filter(|(_, array)| array.context == context).map(|(h, _)| *h).collect();
    for handle in handles {
        end(driver, table, handle);
    }
}

pub(crate) fn create_mipmapped(out: Out<u64>, shape: In<Shape>, levels: u32) -> Outcome {
    out.check()?;
    let levels = Levels::of(shape.get()?, levels)?;
    let driver = driver()?;
    let mut table = driver.table();
    let context = table.current()?.0;
    let memory = match levels.shape.has_memory() {
        true => allocate(driver, &mut table, levels.bytes(), Kind::Owned)?,
        false => NOWHERE,
    };
    out.put(levels.insert(&mut table, context, memory))
}

/// The levels of a mipmapped array, largest first, with the bytes of each.
pub(crate) struct Levels {
    shape: Shape,
    each: Vec<(Shape, u64)>,
}

impl Levels {
    /// As many levels as requested, limited to those that the shape has.
    pub(crate) fn of(shape: Shape, levels: u32) -> Outcome<Self> {
        let longest = shape.width.max(shape.height).max(shape.depth).max(1);
        let each = std::iter::successors(Some(shape), |shape| Some(shape.halved()))
            .take(levels.clamp(1, longest.ilog2() + 1) as usize)
            .map(|shape| Ok((shape, shape.bytes()?)))
            .collect::<Outcome<_>>()?;
        Ok(Self { shape, each })
    }

    /// Bytes of all levels together.
    pub(crate) fn bytes(&self) -> u64 {
        self.each.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Makes them a mipmapped array over this memory.
    pub(crate) fn insert(self, table: &mut Table, context: u64, memory: u64) -> u64 {
        let (mut offset, mut handles) = (0, Vec::new());
        for (shape, bytes) in self.each {
            let handle = table.handle();
            table.arrays.insert(handle, Array::new(context, shape, memory, offset, Role::Level));
            handles.push(handle);
            offset += bytes;
        }
        let handle = table.handle();
        let role = Role::Mipmapped(Arc::new(handles));
        table.arrays.insert(handle, Array::new(context, self.shape, memory, 0, role));
        handle
    }
}

/// Maps memory into arrays that have none of their own, or unmaps it, in the order of a stream.
pub(crate) fn map(default: DefaultStream, list: In<MapInfo>, count: u32, stream: u64) -> Outcome {
    let driver = driver()?;
    let stream = select(driver, default, stream)?;
    stream.must_not_capture(driver)?;
    let list = list.list(count as usize)?;
    list.iter().try_for_each(|info| info.check(&driver.table()))?;
    for info in list {
        let mut table = driver.table();
        if info.operation == MAP {
            virt::pin(&mut table, info.memory)?;
        }
        let tiles = &mut table.arrays.get_mut(&info.array).ok_or(Status::InvalidValue)?.tiles;
        let before = match info.operation {
            MAP => tiles.insert(info.region(), info.memory),
            _ => tiles.remove(&info.region()),
        };
        drop(table);
        // Work before it in the stream may use it still.
        before.into_iter().try_for_each(|memory| stream.run(driver, &Op::Unpin(memory)))?;
    }
    Ok(())
}

impl MapInfo {
    /// The upper half of the first word is padding.
    fn region(&self) -> Region {
        let mut region = self.region;
        region[0] &= 0xffff_ffff;
        region
    }

    fn check(&self, table: &Table) -> Outcome {
        let array = table.arrays.get(&self.array).ok_or(Status::InvalidValue)?;
        let plain = self.handle_type == 0 && self.devices == 1 && self.flags == 0 && self.reserved == [0; 2];
        if !plain || array.shape.has_memory() || array.role == Role::Level {
            return Err(Status::InvalidValue);
        }
        match self.operation {
            MAP => virt::facts(table, self.memory).map(|_| ()),
            UNMAP => Ok(()),
            _ => Err(Status::InvalidValue),
        }
    }
}

pub(crate) fn level(out: Out<u64>, handle: u64, level: u32) -> Outcome {
    let driver = driver()?;
    let table = driver.table();
    let Role::Mipmapped(levels) = &find(&table.arrays, handle)?.role else {
        return Err(Status::InvalidHandle);
    };
    out.put(*levels.get(level as usize).ok_or(Status::InvalidValue)?)
}

pub(crate) fn destroy_mipmapped(handle: u64) -> Outcome {
    let driver = driver()?;
    let mut table = driver.table();
    if !matches!(find(&table.arrays, handle)?.role, Role::Mipmapped(_)) {
        return Err(Status::InvalidHandle);
    }
    end(driver, &mut table, handle);
    Ok(())
}
