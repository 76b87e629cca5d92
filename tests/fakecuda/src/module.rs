//! Modules, libraries and the kernels in them.
//!
//! A library belongs to no context. As `cuLibraryLoadData` documents, it is loaded eagerly into all contexts, those
//! made later included, or lazily into each one that needs something of it. Each load takes its code and variables of
//! the context's device. Lazily, kernels are loaded when `cuModuleGetFunction` requests one (CUDA programming guide,
//! "Lazy Loading"), when a kernel becomes a context's function, or when one is launched: here all of the image with the
//! first.

use std::collections::BTreeMap;

use simgpu::Loading;

use crate::driver::{Driver, Table, driver};
use crate::image::{Global, Image};
use crate::lookup::find;
use crate::memory::heap::BLOCK;
use crate::memory::place::allocate_on;
use crate::memory::ranges::Kind;
use crate::memory::release::drop_range;
use crate::state::module::{Function, Load, Module};
use crate::status::{Outcome, Status};
use crate::wall::{Host, In, Out, Text};

/// Time at which libraries are loaded: by the environment, or by the driver.
fn loading() -> Loading {
    match std::env::var("CUDA_MODULE_LOADING").as_deref() {
        Ok("EAGER") => Loading::Eager,
        Ok("LAZY") => Loading::Lazy,
        _ => crate::personality::own().loading,
    }
}

fn load(driver: &Driver, out: Out<u64>, image: Image) -> Outcome {
    out.check()?;
    let mut table = driver.table();
    let context = table.current()?.0;
    let load = load_into(driver, &mut table, &image, context)?;
    let handle = table.handle();
    let loads = BTreeMap::from([(context, load)]);
    table.modules.insert(handle, Module { image, loads, library: false });
    out.put(handle)
}

/// Takes the memory of an image in a context.
fn load_into(driver: &Driver, table: &mut Table, image: &Image, context: u64) -> Outcome<Load> {
    let device = table.contexts.get(&context).ok_or(Status::InvalidContext)?.device;
    let code = match loading() {
        Loading::Eager => cost(driver, table, device, image),
        Loading::Lazy => least(driver, table, device),
    };
    driver.charge(table.gpu(device), code)?;
    let mut load = Load { device, globals: Vec::new(), code };
    for Global { name, bytes, is_managed } in image.globals.iter().filter(|global| global.bytes > 0) {
        let kind = if *is_managed { Kind::Managed } else { Kind::Owned };
        match allocate_on(driver, table, *bytes, kind, 0, device) {
            Ok(base) => load.globals.push((name.clone(), base, *bytes)),
            Err(refusal) => {
                unload_from(driver, table, &load);
                return Err(refusal);
            }
        }
    }
    Ok(load)
}

fn unload_from(driver: &Driver, table: &mut Table, load: &Load) {
    load.globals.iter().for_each(|(_, base, _)| drop_range(driver, table, *base));
    driver.refund(table.gpu(load.device), load.code);
}

/// Loads the kernels of a module, where they are not loaded.
///
/// Those of a library are loaded in this context, those of any other module in its own.
pub(crate) fn need_code(driver: &Driver, table: &mut Table, module: u64, context: u64) -> Outcome {
    need(driver, table, module, context)?;
    let known = find(&table.modules, module)?;
    let context = if known.library { Some(context) } else { known.loads.keys().next().copied() };
    let context = context.ok_or(Status::InvalidContext)?;
    let load = known.loads.get(&context).ok_or(Status::InvalidContext)?;
    let (device, before) = (load.device, load.code);
    let code = cost(driver, table, device, &known.image);
    driver.charge(table.gpu(device), code.saturating_sub(before))?;
    if let Some(load) = table.modules.get_mut(&module).and_then(|module| module.loads.get_mut(&context)) {
        load.code = code;
    }
    Ok(())
}

/// Loads a library into a context, unless it is there.
pub(crate) fn need(driver: &Driver, table: &mut Table, module: u64, context: u64) -> Outcome {
    let known = find(&table.modules, module)?;
    if !known.library || known.loads.contains_key(&context) {
        return Ok(());
    }
    let image = known.image.clone();
    let load = load_into(driver, table, &image, context)?;
    if let Some(module) = table.modules.get_mut(&module) {
        module.loads.insert(context, load);
    }
    Ok(())
}

/// Loads what a new context has from its beginning. All that was loaded before a refusal goes with the context.
pub(crate) fn load_libraries(driver: &Driver, table: &mut Table, context: u64) -> Outcome {
    if loading() == Loading::Lazy {
        return Ok(());
    }
    let libraries: Vec<u64> =
        table.modules.iter().filter(|(_, module)| module.library).map(|(handle, _)| *handle).collect();
    libraries.into_iter().try_for_each(|library| need(driver, table, library, context))
}

/// Bytes of the device that the code takes: its size in whole blocks, and at least the model's.
fn cost(driver: &Driver, table: &Table, device: usize, image: &Image) -> u64 {
    least(driver, table, device).max(image.bytes.next_multiple_of(BLOCK))
}

/// Bytes that a module takes of which no kernel is loaded.
fn least(driver: &Driver, table: &Table, device: usize) -> u64 {
    driver.node().gpu_spec(table.gpu(device)).model.module().bytes()
}

fn end(driver: &Driver, table: &mut Table, handle: u64) -> Outcome {
    let module = table.modules.remove(&handle).ok_or(Status::InvalidHandle)?;
    module.loads.values().for_each(|load| unload_from(driver, table, load));
    table.functions.retain(|_, function| function.module != handle);
    Ok(())
}

/// Ends what is loaded in a context: modules, and libraries as far as they are there.
pub(crate) fn end_all(driver: &Driver, table: &mut Table, context: u64) {
    let handles: Vec<u64> = table
        .modules
        .iter()
        .filter(|(_, module)| module.loads.contains_key(&context))
        .map(|(handle, _)| *handle)
        .collect();
    for handle in handles {
        let Some(module) = table.modules.get_mut(&handle) else { continue };
        if !module.library {
            let _ = end(driver, table, handle);
        } else if let Some(load) = module.loads.remove(&context) {
            unload_from(driver, table, &load);
        }
    }
}

pub(crate) fn load_data(out: Out<u64>, image: Host) -> Outcome {
    let driver = driver()?;
    driver.table().current()?;
    load(driver, out, crate::image::read(image, wanted(driver))?)
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

/// Ten times the compute capability of the current device, or of the first one.
fn wanted(driver: &Driver) -> u32 {
    let table = driver.table();
    let device = table.current_device().map_or(0, |(_, device)| device);
    let [major, minor] = driver.node().gpu_spec(table.gpu(device)).model.compute_capability;
    major * 10 + minor
}

fn from_file(name: Text) -> Outcome<Image> {
    let bytes = std::fs::read(name.get()?).map_err(|_| Status::FileNotFound)?;
    crate::image::copy_of(&bytes, wanted(driver()?))
}

pub(crate) fn load_file(out: Out<u64>, name: Text) -> Outcome {
    let driver = driver()?;
    driver.table().current()?;
    load(driver, out, from_file(name)?)
}

pub(crate) fn unload(handle: u64) -> Outcome {
    let driver = driver()?;
    let mut table = driver.table();
    if find(&table.modules, handle)?.library {
        return Err(Status::NotPermitted);
    }
    end(driver, &mut table, handle)
}

/// `CU_MODULE_EAGER_LOADING` or `CU_MODULE_LAZY_LOADING`.
pub(crate) fn loading_mode(out: Out<i32>) -> Outcome {
    driver()?;
    out.put(if loading() == Loading::Eager { 1 } else { 2 })
}

pub(crate) fn function(out: Out<u64>, module: u64, name: Text) -> Outcome {
    out.check()?;
    let name = name.get()?;
    let driver = driver()?;
    let mut table = driver.table();
    let handle = named(&mut table, module, &name)?;
    let current = table.current().map_or(0, |(current, _)| current);
    need_code(driver, &mut table, module, current)?;
    out.put(handle)
}

/// `cuLibraryGetKernel`: loads nothing.
pub(crate) fn kernel(out: Out<u64>, library: u64, name: Text) -> Outcome {
    out.check()?;
    let name = name.get()?;
    let mut table = driver()?.table();
    out.put(named(&mut table, library, &name)?)
}

/// The same handle for the same kernel, every time.
fn named(table: &mut Table, module: u64, name: &str) -> Outcome<u64> {
    let known =
        table.functions.iter().find(|(_, function)| function.module == module && function.entry.name == name);
    if let Some((handle, _)) = known {
        return Ok(*handle);
    }
    let entry = find(&table.modules, module)?.image.entry(name).ok_or(Status::NotFound)?;
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
    let mut table = driver.table();
    // Of a library, the variable of the current context.
    let context = if find(&table.modules, module)?.library {
        let current = table.current()?.0;
        need(driver, &mut table, module, current)?;
        Some(current)
    } else {
        None
    };
    let loads = &find(&table.modules, module)?.loads;
    let load = context.map_or_else(|| loads.values().next(), |context| loads.get(&context));
    let globals = &load.ok_or(Status::NotFound)?.globals;
    let (_, base, bytes) = globals.iter().find(|(known, _, _)| *known == name).ok_or(Status::NotFound)?;
    address.offer(*base);
    size.offer(*bytes as usize);
    Ok(())
}

/// Address of a variable of a library that lies in managed memory.
pub(crate) fn managed(address: Out<u64>, size: Out<usize>, library: u64, name: Text) -> Outcome {
    let wanted = name.get()?;
    let is_managed = {
        let table = driver()?.table();
        let globals = &find(&table.modules, library)?.image.globals;
        globals.iter().any(|global| global.name == wanted && global.is_managed)
    };
    if is_managed { global(address, size, library, name) } else { Err(Status::NotFound) }
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
    library(out, crate::image::read(image, wanted(driver()?))?)
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

/// Needs no current context. Refused as a whole if it doesn't fit into one of those that are to have it at once.
fn library(out: Out<u64>, image: Image) -> Outcome {
    out.check()?;
    let driver = driver()?;
    let mut table = driver.table();
    let handle = table.handle();
    table.modules.insert(handle, Module { image, loads: BTreeMap::new(), library: true });
    let contexts: Vec<u64> = match loading() {
        Loading::Eager => table.contexts.keys().copied().collect(),
        Loading::Lazy => Vec::new(),
    };
    for context in contexts {
        if let Err(refusal) = need(driver, &mut table, handle, context) {
            end(driver, &mut table, handle)?;
            return Err(refusal);
        }
    }
    out.put(handle)
}

pub(crate) fn library_unload(handle: u64) -> Outcome {
    let driver = driver()?;
    let mut table = driver.table();
    if !find(&table.modules, handle)?.library {
        return Err(Status::InvalidHandle);
    }
    end(driver, &mut table, handle)
}

/// The module of a library in the current context, which needs it from now on: here one handle for all.
pub(crate) fn library_module(out: Out<u64>, library: u64) -> Outcome {
    out.check()?;
    let driver = driver()?;
    let mut table = driver.table();
    let current = table.current()?.0;
    need(driver, &mut table, library, current)?;
    out.put(library)
}

/// The function of a kernel in the current context, which needs it from now on: one handle for all.
pub(crate) fn kernel_function(out: Out<u64>, kernel: u64) -> Outcome {
    out.check()?;
    let driver = driver()?;
    let mut table = driver.table();
    let current = table.current()?.0;
    let module = find(&table.functions, kernel)?.module;
    need_code(driver, &mut table, module, current)?;
    out.put(kernel)
}

pub(crate) fn name(out: Out<Host>, function: u64) -> Outcome {
    out.check()?;
    if function == 0 {
        return Err(Status::InvalidValue);
    }
    let driver = driver()?;
    let name = find(&driver.table().functions, function)?.entry.name.clone();
    out.put(crate::names::kept(&name))
}
