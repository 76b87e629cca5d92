//! Names of result codes, by the numbers of the public headers.

/// Names of `CUresult` without their prefix `CUDA_ERROR_`.
const CUDA: [(&str, i32); 30] = [
    ("SUCCESS", 0),
    ("INVALID_VALUE", 1),
    ("OUT_OF_MEMORY", 2),
    ("NOT_INITIALIZED", 3),
    ("INVALID_DEVICE", 101),
    ("INVALID_IMAGE", 200),
    ("INVALID_CONTEXT", 201),
    ("PEER_ACCESS_UNSUPPORTED", 217),
    ("UNSUPPORTED_LIMIT", 215),
    ("INVALID_PTX", 218),
    ("INVALID_SOURCE", 300),
    ("FILE_NOT_FOUND", 301),
    ("INVALID_HANDLE", 400),
    ("ILLEGAL_STATE", 401),
    ("NOT_FOUND", 500),
    ("NOT_READY", 600),
    ("PEER_ACCESS_NOT_ENABLED", 705),
    ("CONTEXT_IS_DESTROYED", 709),
    ("HOST_MEMORY_ALREADY_REGISTERED", 712),
    ("HOST_MEMORY_NOT_REGISTERED", 713),
    ("NOT_PERMITTED", 800),
    ("NOT_SUPPORTED", 801),
    ("STREAM_CAPTURE_UNSUPPORTED", 900),
    ("STREAM_CAPTURE_INVALIDATED", 901),
    ("STREAM_CAPTURE_MERGE", 902),
    ("STREAM_CAPTURE_UNMATCHED", 903),
    ("STREAM_CAPTURE_UNJOINED", 904),
    ("STREAM_CAPTURE_ISOLATION", 905),
    ("STREAM_CAPTURE_IMPLICIT", 906),
    ("STREAM_CAPTURE_WRONG_THREAD", 908),
];

/// Names of `nvmlReturn_t` without their prefix `NVML_ERROR_`.
const NVML: [(&str, i32); 7] = [
    ("NVML_SUCCESS", 0),
    ("NVML_UNINITIALIZED", 1),
    ("NVML_INVALID_ARGUMENT", 2),
    ("NVML_NOT_SUPPORTED", 3),
    ("NVML_NOT_FOUND", 6),
    ("NVML_INSUFFICIENT_SIZE", 7),
    ("NVML_ARGUMENT_VERSION_MISMATCH", 25),
];

/// The number of a name, or of digits.
pub(crate) fn number(name: &str) -> Option<i32> {
    let known = CUDA.iter().chain(&NVML).find(|(known, _)| *known == name);
    known.map(|(_, number)| *number).or_else(|| name.parse().ok())
}

/// The name of a number that `function` returned.
pub(crate) fn name(function: &str, number: i32) -> String {
    let known = if function.starts_with("nvml") { NVML.as_slice() } else { CUDA.as_slice() };
    let found = known.iter().find(|(_, known)| *known == number);
    found.map_or_else(|| number.to_string(), |(name, _)| (*name).to_owned())
}
