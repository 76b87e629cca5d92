//! The linker: hands back what it was given, as one image. PTX stays PTX, which this driver loads as it is.

use std::sync::Arc;

use crate::driver::driver;
use crate::state::module::Link;
use crate::status::{Outcome, Status};
use crate::wall::{Host, In, Out, Text};

/// `CU_JIT_INPUT_PTX`; inputs of other types are read as binaries.
const PTX: i32 = 1;
/// The first number that is no input type.
const INPUTS: i32 = 6;

pub(crate) fn create(count: u32, options: In<i32>, values: In<u64>, out: Out<u64>) -> Outcome {
    out.check()?;
    options.list(count as usize)?;
    values.list(count as usize)?;
    let driver = driver()?;
    let mut table = driver.table();
    table.current()?;
    let handle = table.handle();
    table.links.insert(handle, Link::default());
    out.put(handle)
}

pub(crate) fn add_data(
    link: u64,
    kind: i32,
    data: Host,
    size: usize,
    _name: In<u8>,
    options: (u32, In<i32>, In<u64>),
) -> Outcome {
    options.1.list(options.0 as usize)?;
    add(link, kind, &data.bytes(size)?)
}

pub(crate) fn add_file(link: u64, kind: i32, path: Text, options: (u32, In<i32>, In<u64>)) -> Outcome {
    options.1.list(options.0 as usize)?;
    add(link, kind, &std::fs::read(path.get()?).map_err(|_| Status::FileNotFound)?)
}

fn add(link: u64, kind: i32, data: &[u8]) -> Outcome {
    if !(0..INPUTS).contains(&kind) {
        return Err(Status::InvalidValue);
    }
    let image = crate::image::copy_of(data, 0)?;
    let driver = driver()?;
    let mut table = driver.table();
    let link = table.links.get_mut(&link).ok_or(Status::InvalidHandle)?;
    if kind == PTX {
        let text = data.split(|byte| *byte == 0).next().unwrap_or_default();
        link.inputs.extend_from_slice(text);
        link.inputs.push(b'\n');
    } else if link.inputs.is_empty() || !image.entries.is_empty() {
        // Of several binaries the last one with kernels is the result: there is no code to join.
        link.inputs = data.to_vec();
    }
    Ok(())
}

pub(crate) fn complete(link: u64, image: Out<Host>, size: Out<usize>) -> Outcome {
    image.check()?;
    let driver = driver()?;
    let mut table = driver.table();
    let link = table.links.get_mut(&link).ok_or(Status::InvalidHandle)?;
    if link.inputs.is_empty() {
        return Err(Status::InvalidImage);
    }
    let mut bytes = link.inputs.clone();
    bytes.push(0);
    let output = link.output.insert(Arc::new(bytes));
    size.offer(output.len());
    image.put(Host(output.as_ptr().cast_mut().cast()))
}

pub(crate) fn destroy(link: u64) -> Outcome {
    driver()?.table().links.remove(&link).map(|_| ()).ok_or(Status::InvalidHandle)
}
