//! The Rust of the KServe messages, from the `.proto` of this repository. It is written to a file that is checked in, so that a
//! build needs neither protoc nor this crate.

use std::io;
use std::path::{Path, PathBuf};

use prost_build::{Config, Module};

const SERDE: &str = "#[derive(serde::Serialize, serde::Deserialize)]";
const MESSAGE: &str = "#[serde(default, deny_unknown_fields)]";
/// The one message with a oneof: its choice is a field of the JSON object, and serde cannot refuse others beside one.
const FLATTENED: &str = ".inference.InferParameter";

/// Of the checkout that runs this: a target folder that several share keeps the path of the one that compiled it.
fn kserve() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&here).join("../gpusize-kserve")
}

/// Where the Rust lies.
pub fn messages_path() -> PathBuf {
    kserve().join("src/messages.rs")
}

/// The Rust of all messages.
///
/// # Errors
///
/// The `.proto` cannot be read or means nothing.
pub fn messages() -> io::Result<String> {
    let proto = kserve().join("proto");
    let files = protox::compile([proto.join("kserve.proto")], [&proto]).map_err(io::Error::other)?;
    let mut config = Config::new();
    config.bytes(["."]).btree_map(["."]).type_attribute(".", SERDE);
    for message in files.file.iter().flat_map(|file| &file.message_type) {
        let path = format!(".inference.{}", message.name());
        let attribute = if path == FLATTENED { "#[serde(default)]" } else { MESSAGE };
        // A path stands for what is nested in it too.
        config.message_attribute(path, attribute);
    }
    config
        .type_attribute("inference.InferParameter.parameter_choice", "#[serde(rename_all = \"snake_case\")]")
        .field_attribute("inference.InferParameter.parameter_choice", "#[serde(flatten)]")
        .field_attribute("inference.InferTensorContents.bytes_contents", "#[serde(with = \"super::as_base64\")]")
        .field_attribute("inference.ModelInferRequest.raw_input_contents", "#[serde(with = \"super::as_lengths\")]")
        .field_attribute("inference.ModelInferResponse.raw_output_contents", "#[serde(with = \"super::as_lengths\")]");
    for (field, as_name) in [
        ("inference.ModelInput.data_type", "data_type"),
        ("inference.ModelOutput.data_type", "data_type"),
        ("inference.ModelInstanceGroup.kind", "kind"),
    ] {
        config.field_attribute(field, format!("#[serde(with = \"super::as_name::{as_name}\")]"));
    }
    let requests =
        files.file.into_iter().map(|file| (Module::from_protobuf_package_name(file.package()), file)).collect();
    let code = config.generate(requests)?.into_values().collect::<String>();
    Ok(format!("// Written by `cargo run -p codegen` from proto/kserve.proto.\n{code}"))
}
