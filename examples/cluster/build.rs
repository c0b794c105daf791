//! Compiles the protocol. `protox` reads it, so no `protoc` has to be installed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto/smoother.proto");
    let protocol = protox::compile(["smoother.proto"], ["proto"])?;
    tonic_prost_build::configure().compile_fds(protocol)?;
    Ok(())
}
