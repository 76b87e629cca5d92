//! Programs that nobody here wrote, or that are written as others write them, see the slice.
