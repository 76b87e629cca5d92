//! Compiles the protobuf definitions in Rust, so that building needs no `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    for file in [
        "deviceplugin/v1beta1.proto",
        "podresources/v1.proto",
        "dra/v1.proto",
        "drahealth/v1alpha1.proto",
        "pluginregistration/v1.proto",
    ] {
        let files = protox::compile([file], ["proto"])?;
        tonic_prost_build::configure().compile_fds(files)?;
    }
    Ok(())
}
