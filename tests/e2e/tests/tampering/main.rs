//! What a tenant can try that wants more than its slice: each attempt comes to nothing, or is an event with its evidence.
//!
//! Each is tried on a GPU whose other slice is full. That slice has to keep all that it holds, get what it frees, and
//! nothing may be taken from its cap. Some attempts stand elsewhere, where what they try is promised: forged pages and
//! foreign sockets in `promises::identity`, and programs that hold more than they may by more than forty routes in
//! `escape`. What is tried here shows only on the simulated driver how soon it is seen.
#![forbid(unsafe_code)]

mod attempts;
mod ground;
mod honest;
mod lies;
mod policy;
mod services;
mod strangers;
mod variables;
