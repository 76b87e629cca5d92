//! Arrays: device memory with a shape. Programs never see its layout; here it is rows after rows.

use std::sync::Arc;

use crate::driver::{Driver, Table, driver};
use crate::lookup::find;
use crate::memory::alloc::{allocate, drop_range};
use crate::memory::ranges::{Kind, Place};
use crate::status::{Outcome, Status};
use crate::wall::{In, Out};

/// An array, or all levels of a mipmapped one.
#[derive(Clone)]
pub(crate) struct Array {
    context: u64,
    shape: Shape,
    /// The memory behind it and where in it this array begins.
    memory: u64,
    offset: u64,
    role: Role,
}

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
    /// Where its bytes are, from its first element on, with bytes from row to row and slice to slice.
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
    let memory = allocate(driver, &mut table, bytes, Kind::Owned)?;
    let context = table.current()?.0;
    let handle = table.handle();
    table.arrays.insert(handle, Array { context, shape, memory, offset: 0, role: Role::Whole });
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
    let shape = shape.get()?;
    let longest = shape.width.max(shape.height).max(shape.depth).max(1);
    let shapes: Vec<Shape> = std::iter::successors(Some(shape), |shape| Some(shape.halved()))
        .take(levels.clamp(1, longest.ilog2() + 1) as usize)
        .collect();
    let sizes: Vec<u64> = shapes.iter().map(Shape::bytes).collect::<Outcome<_>>()?;
    let driver = driver()?;
    let mut table = driver.table();
    let memory = allocate(driver, &mut table, sizes.iter().sum(), Kind::Owned)?;
    let context = table.current()?.0;
    let (mut offset, mut handles) = (0, Vec::new());
    for (shape, size) in shapes.into_iter().zip(sizes) {
        let handle = table.handle();
        table.arrays.insert(handle, Array { context, shape, memory, offset, role: Role::Level });
        handles.push(handle);
        offset += size;
    }
    let handle = table.handle();
    let role = Role::Mipmapped(Arc::new(handles));
    table.arrays.insert(handle, Array { context, shape, memory, offset: 0, role });
    out.put(handle)
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
