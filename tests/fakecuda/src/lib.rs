//! A `libcuda.so.1` whose GPUs exist only as bookkeeping.
//!
//! Unmodified driver-API programs run on it: their memory and copies are real bytes in the host, their kernels take
//! time and compute nothing.
//!
//! Laws:
//! - Nothing is exported that can only fail: a function works or is not there.
//! - What a program holds is counted on the simulated node ([`simgpu`]), in the real driver's granularity; this library
//!   keeps only what concerns its own process.
//! - Pointers of callers are touched in `wall` and nowhere else but where memory is mapped.
//! - `cuGetExportTable` refuses. The CUDA runtime (PyTorch, CuPy, libcudart) needs private tables of NVIDIA's driver,
//!   which this project does not imitate, so its programs can't run here.
//! - The library is never unloaded: host functions may be pending in it.

mod act;
mod array;
mod attributes;
mod bytes;
mod capture;
mod checkpoint;
mod context;
pub mod cut;
mod device;
mod driver;
mod event;
mod exports;
mod fat;
mod fault;
mod fill;
mod fork;
mod gate;
mod graph;
mod green;
mod image;
mod launch;
mod link;
mod load;
mod lookup;
mod memory;
mod module;
mod names;
mod node;
mod personality;
mod state;
mod status;
mod stream;
mod symbols;
mod timing;
mod transfer;
mod value;
mod visible;
mod wall;
mod words;
mod worker;
