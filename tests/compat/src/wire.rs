//! The gRPC interface: every message, enum and service of `proto/rpc`, as a client compiled them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet, MethodDescriptorProto,
};

use crate::Description;

/// Compiles the sources of `proto/rpc` of this build.
pub fn descriptors() -> Result<FileDescriptorSet, Box<dyn std::error::Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto/rpc/proto");
    let files = sources(&root.join("tranche/v1"))?;
    Ok(protox::compile(files, [root])?)
}

fn sources(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
    let mut files = entries.collect::<io::Result<Vec<_>>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "proto"));
    files.sort();
    Ok(files)
}

/// Describes each thing that a client may rely on by a line. Messages carry numbers, so that lines begin with them;
/// names are promised too, because clients that compile the files anew use them.
pub fn wire(files: &FileDescriptorSet) -> Description {
    let mut description = Description::default();
    for file in files.file.iter().filter(|file| file.package().starts_with("tranche.")) {
        let package = file.package();
        file.message_type.iter().for_each(|message| describe_message(&mut description, package, message));
        file.enum_type.iter().for_each(|numbers| describe_enum(&mut description, package, numbers));
        for service in &file.service {
            let name = format!("{package}.{}", service.name());
            service.method.iter().for_each(|method| describe_method(&mut description, &name, method));
        }
    }
    description
}

fn describe_message(description: &mut Description, within: &str, message: &DescriptorProto) {
    let name = format!("{within}.{}", message.name());
    for field in &message.field {
        description.add(format!("message {name} {}", field.number()), describe_field(message, field));
    }
    message.nested_type.iter().for_each(|nested| describe_message(description, &name, nested));
    message.enum_type.iter().for_each(|numbers| describe_enum(description, &name, numbers));
}

fn describe_field(message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    let kind = match field.r#type() {
        Type::Message | Type::Enum => field.type_name().trim_start_matches('.').to_string(),
        plain => plain.as_str_name().trim_start_matches("TYPE_").to_lowercase(),
    };
    let oneof = || {
        let at = usize::try_from(field.oneof_index?).ok()?;
        Some(format!(" in oneof {}", message.oneof_decl.get(at)?.name()))
    };
    let (how, of) = match (field.label(), field.proto3_optional()) {
        (Label::Repeated, _) => ("repeated ", None),
        (_, true) => ("optional ", None),
        _ => ("", oneof()),
    };
    format!("{how}{kind} {}{}", field.name(), of.unwrap_or_default())
}

fn describe_enum(description: &mut Description, within: &str, numbers: &EnumDescriptorProto) {
    let name = format!("{within}.{}", numbers.name());
    for value in &numbers.value {
        description.add(format!("enum {name} {}", value.number()), value.name());
    }
}

fn describe_method(description: &mut Description, service: &str, method: &MethodDescriptorProto) {
    let plain = |name: &str| name.trim_start_matches('.').to_string();
    let stream = |streams: bool| if streams { "stream " } else { "" };
    description.add(
        format!("rpc {service} {}", method.name()),
        format!(
            "{}{} -> {}{}",
            stream(method.client_streaming()),
            plain(method.input_type()),
            stream(method.server_streaming()),
            plain(method.output_type()),
        ),
    );
}
