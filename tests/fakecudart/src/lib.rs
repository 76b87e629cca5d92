//! A CUDA runtime on the public driver API, with stand-ins for the libraries of mathematics beside it.
//!
//! Programs that link the shared runtime run on the simulated driver with it, as a slice's tenants too: the driver is
//! opened by its name, so that a preloaded library's functions are found first. NVIDIA's own runtime uses private
//! tables of NVIDIA's driver, which nothing here uses or imitates; a program with the static runtime needs a GPU.
//!
//! Every declaration is this crate's own, after the public documentation of the API. `fakecudart-stage` makes the shared
//! libraries of it.

mod blas;
mod blas_lt;
mod code;
mod copy;
mod device;
mod dnn;
mod driver;
mod exports;
mod exports_work;
mod fft;
mod graph;
mod launch;
mod memory;
mod missing;
mod properties;
mod shapes;
mod status;
mod wall;
mod work;
