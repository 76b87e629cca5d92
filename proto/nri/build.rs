//! Compiles the protobuf definitions in Rust, so that building needs no `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    for file in ["nri/v1alpha1.proto", "ttrpc/request.proto"] {
        let files = protox::compile([file], ["proto"])?;
        tonic_prost_build::configure().compile_fds(files)?;
    }
    Ok(())
}
