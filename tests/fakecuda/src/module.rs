//! Modules, libraries and the kernels in them. A library is a module that belongs to a device, not a context.

use crate::driver::{Driver, Table, driver};
use crate::image::{Entry, Image};
use crate::lookup::find;
use crate::memory::alloc::{allocate_on, drop_range};
use crate::memory::ranges::Kind;
use crate::status::{Outcome, Status};
use crate::wall::{Host, In, Out, Text};

/// A loaded image.
pub(crate) struct Module {
    /// The context it is loaded in; 0 for a library that no context has used yet.
    context: u64,
    device: usize,
    image: Image,
    /// Global variables: name, address, bytes.
    globals: Vec<(String, u64, u64)>,
    /// A library outlives contexts.
    library: bool,
}

/// A kernel, as `CUfunction` or `CUkernel`.
#[derive(Clone)]
pub(crate) struct Function {
    /// Its module.
    pub(crate) module: u64,
    /// What the image says of it.
    pub(crate) entry: Entry,
    /// What was set for it: attribute and value.
    pub(crate) set: Vec<(i32, i32)>,
}

fn load(driver: &Driver, out: Out<u64>, image: Image, library: bool) -> Outcome {
    out.check()?;
    let mut table = driver.table();
    let (context, device) = table.current_device()?;
    driver.charge(table.gpu(device), cost(driver, &table, device, &image))?;
    let mut globals = Vec::new();
    for (name, size) in image.globals.iter().filter(|(_, size)| *size > 0) {
        match allocate_on(driver, &mut table, *size, Kind::Owned, 0, device) {
            Ok(base) => globals.push((name.clone(), base, *size)),
            Err(refusal) => {
                globals.iter().for_each(|(_, base, _)| drop_range(driver, &mut table, *base));
                driver.refund(table.gpu(device), cost(driver, &table, device, &image));
                return Err(refusal);
            }
        }
    }
    let handle = table.handle();
    table.modules.insert(handle, Module { context, device, image, globals, library });
    out.put(handle)
}

/// What the code takes of the device: by its size, and at least what the model says.
fn cost(driver: &Driver, table: &Table, device: usize, image: &Image) -> u64 {
    driver.node().gpu_spec(table.gpu(device)).model.module().bytes().max(image.bytes)
}

fn end(driver: &Driver, table: &mut Table, handle: u64) -> Outcome {
    let module = table.modules.remove(&handle).ok_or(Status::InvalidHandle)?;
    module.globals.iter().for_each(|(_, base, _)| drop_range(driver, table, *base));
    driver.refund(table.gpu(module.device), cost(driver, table, module.device, &module.image));
    table.functions.retain(|_, function| function.module != handle);
    Ok(())
}

/// Ends the modules of a context.
pub(crate) fn end_all(driver: &Driver, table: &mut Table, context: u64) {
    let handles: Vec<u64> = table
        .modules
        .iter()
        .filter(|(_, module)| module.context == context && !module.library)
        .map(|(handle, _)| *handle)
        .collect();
    for handle in handles {
        let _ = end(driver, table, handle);
    }
}

pub(crate) fn load_data(out: Out<u64>, image: Host) -> Outcome {
    let driver = driver()?;
    driver.table().current()?;
    load(driver, out, crate::image::read(image)?, false)
}

/// Compiler options have nothing to act on here, except that logs stay empty.
pub(crate) fn load_data_ex(
    out: Out<u64>,
    image: Host,
    count: u32,
    options: In<i32>,
    values: In<u64>,
) -> Outcome {
    options.list(count as usize)?;
    values.list(count as usize)?;
    load_data(out, image)
}

fn from_file(name: Text) -> Outcome<Image> {
    let bytes = std::fs::read(name.get()?).map_err(|_| Status::FileNotFound)?;
    crate::image::copy_of(&bytes)
}

pub(crate) fn load_file(out: Out<u64>, name: Text) -> Outcome {
    let driver = driver()?;
    driver.table().current()?;
    load(driver, out, from_file(name)?, false)
}

pub(crate) fn unload(handle: u64) -> Outcome {
    let driver = driver()?;
    let mut table = driver.table();
    if find(&table.modules, handle)?.library {
        return Err(Status::InvalidHandle);
    }
    end(driver, &mut table, handle)
}

/// `CU_MODULE_EAGER_LOADING`.
pub(crate) fn loading_mode(out: Out<i32>) -> Outcome {
    driver()?;
    out.put(1)
}

pub(crate) fn function(out: Out<u64>, module: u64, name: Text) -> Outcome {
    out.check()?;
    let name = name.get()?;
    let driver = driver()?;
    let mut table = driver.table();
    let handle = named(&mut table, module, &name)?;
    out.put(handle)
}

/// The same handle for the same kernel, every time.
fn named(table: &mut Table, module: u64, name: &str) -> Outcome<u64> {
    let known =
        table.functions.iter().find(|(_, function)| function.module == module && function.entry.name == name);
    if let Some((handle, _)) = known {
        return Ok(*handle);
    }
    let entries = &find(&table.modules, module)?.image.entries;
    let entry = entries.iter().find(|entry| entry.name == name).cloned().ok_or(Status::NotFound)?;
    let handle = table.handle();
    table.functions.insert(handle, Function { module, entry, set: Vec::new() });
    Ok(handle)
}

pub(crate) fn function_count(out: Out<u32>, module: u64) -> Outcome {
    let driver = driver()?;
    let table = driver.table();
    out.put(find(&table.modules, module)?.image.entries.len() as u32)
}

pub(crate) fn functions(out: Out<u64>, count: u32, module: u64) -> Outcome {
    let driver = driver()?;
    let mut table = driver.table();
    let names: Vec<String> =
        find(&table.modules, module)?.image.entries.iter().map(|entry| entry.name.clone()).collect();
    let handles: Vec<u64> =
        names.iter().map(|name| named(&mut table, module, name)).collect::<Outcome<_>>()?;
    out.put_list(&handles, count as usize)
}

pub(crate) fn global(address: Out<u64>, size: Out<usize>, module: u64, name: Text) -> Outcome {
    let name = name.get()?;
    let driver = driver()?;
    let table = driver.table();
    let globals = &find(&table.modules, module)?.globals;
    let (_, base, bytes) = globals.iter().find(|(known, _, _)| *known == name).ok_or(Status::NotFound)?;
    address.offer(*base);
    size.offer(*bytes as usize);
    Ok(())
}

pub(crate) fn module_of(out: Out<u64>, function: u64) -> Outcome {
    let driver = driver()?;
    let table = driver.table();
    out.put(find(&table.functions, function)?.module)
}

pub(crate) fn library_load(
    out: Out<u64>,
    image: Host,
    jit: (In<i32>, In<u64>, u32),
    options: (In<i32>, In<u64>, u32),
) -> Outcome {
    check_options(jit)?;
    check_options(options)?;
    library(out, crate::image::read(image)?)
}

pub(crate) fn library_load_file(
    out: Out<u64>,
    name: Text,
    jit: (In<i32>, In<u64>, u32),
    options: (In<i32>, In<u64>, u32),
) -> Outcome {
    check_options(jit)?;
    check_options(options)?;
    library(out, from_file(name)?)
}

fn check_options(options: (In<i32>, In<u64>, u32)) -> Outcome {
    options.0.list(options.2 as usize).map(|_| ())
}

fn library(out: Out<u64>, image: Image) -> Outcome {
    load(driver()?, out, image, true)
}

pub(crate) fn library_unload(handle: u64) -> Outcome {
    let driver = driver()?;
    let mut table = driver.table();
    if !find(&table.modules, handle)?.library {
        return Err(Status::InvalidHandle);
    }
    end(driver, &mut table, handle)
}

/// The module of a library in the current context: here one and the same.
pub(crate) fn library_module(out: Out<u64>, library: u64) -> Outcome {
    let driver = driver()?;
    let table = driver.table();
    table.current()?;
    find(&table.modules, library)?;
    out.put(library)
}

/// The function of a kernel in the current context: here one and the same.
pub(crate) fn kernel_function(out: Out<u64>, kernel: u64) -> Outcome {
    let driver = driver()?;
    let table = driver.table();
    table.current()?;
    find(&table.functions, kernel)?;
    out.put(kernel)
}

pub(crate) fn name(out: Out<Host>, function: u64) -> Outcome {
    out.check()?;
    let driver = driver()?;
    let name = find(&driver.table().functions, function)?.entry.name.clone();
    out.put(crate::names::kept(&name))
}
