//! `cudaDeviceProp`, written field by field in the order of the public header.
//!
//! The layout differs between CUDA 12 and 13, which has no clock rates and no flags of functions that are gone.

use crate::device::{attribute, known, version};
use crate::driver;
use crate::status::Outcome;
use crate::wall::Out;

/// Bytes of the structure of CUDA 11, which `cudaGetDeviceProperties` of a runtime 12 fills.
const ELEVEN: usize = 728;

/// A C structure in the making.
struct Record(Vec<u8>);

impl Record {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn int(&mut self, value: i32) {
        self.bytes(&value.to_ne_bytes());
    }

    fn size(&mut self, value: usize) {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        self.bytes(&value.to_ne_bytes());
    }
}

/// Edition of the structure, which decides its fields.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edition {
    Twelve,
    Thirteen,
}

/// `cudaGetDeviceProperties`: the structure of the runtime's own version.
pub(crate) fn get(out: Out<u8>, device: i32) -> Outcome {
    if version() >= 13000 {
        put(out, &record(Edition::Thirteen, device)?)
    } else {
        put(out, &record(Edition::Twelve, device)?[..ELEVEN])
    }
}

/// `cudaGetDeviceProperties_v2` of CUDA 12.
pub(crate) fn get_12(out: Out<u8>, device: i32) -> Outcome {
    put(out, &record(Edition::Twelve, device)?)
}

fn put(out: Out<u8>, record: &[u8]) -> Outcome {
    out.put_list(record)
}

fn record(edition: Edition, device: i32) -> Outcome<Vec<u8>> {
    known(device)?;
    let mut record = Record(Vec::new());
    let old = edition == Edition::Twelve;
    identity(&mut record, device)?;
    let int = |record: &mut Record, numbers: &[i32]| {
        numbers.iter().for_each(|number| record.int(attribute(device, *number)));
    };
    let size = |record: &mut Record, number: i32| record.size(attribute(device, number) as usize);
    let only_old = |record: &mut Record, number: i32| {
        if old {
            int(record, &[number]);
        }
    };
    size(&mut record, 8);
    int(&mut record, &[12, 10]);
    size(&mut record, 11);
    int(&mut record, &[1, 2, 3, 4, 5, 6, 7]);
    only_old(&mut record, 13);
    size(&mut record, 9);
    int(&mut record, &[75, 76]);
    size(&mut record, 14);
    size(&mut record, 51);
    only_old(&mut record, 15);
    int(&mut record, &[16]);
    only_old(&mut record, 17);
    int(&mut record, &[18, 19]);
    only_old(&mut record, 20);
    int(&mut record, &[21, 77]);
    only_old(&mut record, 69);
    // Textures, then surfaces.
    int(
        &mut record,
        &[22, 23, 73, 74, 70, 71, 72, 45, 46, 24, 25, 26, 47, 48, 49, 52, 42, 43, 27, 28, 29, 53, 54],
    );
    int(&mut record, &[55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68]);
    size(&mut record, 30);
    int(&mut record, &[31, 32, 33, 34, 50, 35, 40, 41]);
    only_old(&mut record, 36);
    int(&mut record, &[37, 38, 108, 39, 78, 79, 80]);
    size(&mut record, 81);
    int(&mut record, &[82, 83, 84, 85, 86]);
    only_old(&mut record, 87);
    int(&mut record, &[88, 89, 90, 91, 95]);
    only_old(&mut record, 96);
    size(&mut record, 97);
    int(&mut record, &[100, 101, 106, 109]);
    size(&mut record, 111);
    int(&mut record, &[99, 112, 113, 114, 115, 116, 117, 118, 119, 121, 125, 120, 129]);
    let reserved = if old {
        63
    } else {
        int(&mut record, &[130, 131, 133, 134, 139, 140, 143]);
        56
    };
    record.bytes(&vec![0; 4 * reserved]);
    record.0.resize(record.0.len().next_multiple_of(8), 0);
    Ok(record.0)
}

/// Name, UUID, LUID and memory.
fn identity(record: &mut Record, device: i32) -> Outcome {
    let (mut uuid, mut luid, mut mask, mut total) = ([0; 16], [0; 8], 0, 0);
    let mut name = [0_i8; 256];
    driver::cuDeviceGetName(Out::to(&mut name).cast(), 256, device)?;
    driver::cuDeviceGetUuid_v2(Out::to(&mut uuid), device)?;
    // There is none outside Windows.
    let _ = driver::cuDeviceGetLuid(Out::to(&mut luid), Out::to(&mut mask), device);
    driver::cuDeviceTotalMem_v2(Out::to(&mut total), device)?;
    record.bytes(&name.map(i8::cast_unsigned));
    record.bytes(&uuid);
    record.bytes(&luid);
    record.bytes(&mask.to_ne_bytes());
    record.size(total);
    Ok(())
}
