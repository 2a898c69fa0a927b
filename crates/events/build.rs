//! Compiles the messages of `/proto` with protox, so that no protoc has to be installed.

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    let file = proto.join("dropgate.proto");
    println!("cargo:rerun-if-changed={}", file.display());
    let descriptors = protox::compile([&file], [&proto])?;
    prost_build::Config::new().compile_fds(descriptors)?;
    Ok(())
}
