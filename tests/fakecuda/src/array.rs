//! Arrays: device memory with a shape. Programs never see its layout; here it is rows after rows.

use std::sync::Arc;

use crate::driver::{Driver, Table, driver};
use crate::lookup::{DefaultStream, find, select};
use crate::memory::physical;
use crate::memory::place::allocate;
use crate::memory::ranges::Kind;
use crate::memory::release::drop_range;
use crate::memory::span::Place;
use crate::state::array::{Array, Region, Role};
use crate::state::stream::Op;
use crate::status::{Outcome, Status};
use crate::wall::{In, Out};

pub(crate) use crate::state::array::Shape;

/// Address of an array without memory.
const NOWHERE: u64 = 0;

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

/// `CUDA_ARRAY_DESCRIPTOR`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct FlatShape {
    width: usize,
    height: usize,
    format: i32,
    channels: u32,
}

impl Array {
    /// Address of its bytes, from its first element on, with bytes from row to row and slice to slice.
    pub(crate) fn place(&self, table: &Table) -> Outcome<(Place, u64, u64)> {
        let range = table.ranges.at(self.memory).ok_or(Status::InvalidHandle)?;
        let pitch = self.shape.pitch()?;
        let place = Place::new(range.backing.clone(), range.offset + self.offset, range.device);
        Ok((place, pitch, pitch * self.shape.rows()))
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
    array.tiles.values().for_each(|memory| physical::unpin(driver, table, *memory));
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
            physical::pin(&mut table, info.memory)?;
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
            MAP => physical::facts(table, self.memory).map(|_| ()),
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
