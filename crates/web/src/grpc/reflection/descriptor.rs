//! Descriptors (`google/protobuf/descriptor.proto`), as far as names are looked up in them.

use prost::Message;

use super::SymbolDefinition;

/// `FileDescriptorSet`, with each file unparsed.
#[derive(Clone, PartialEq, Message)]
pub(super) struct FileDescriptorSet {
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub(super) file: Vec<Vec<u8>>,
}

/// `FileDescriptorProto`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct FileDescriptor {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    package: String,
    #[prost(string, repeated, tag = "3")]
    pub(super) dependency: Vec<String>,
    #[prost(message, repeated, tag = "4")]
    message_type: Vec<Descriptor>,
    #[prost(message, repeated, tag = "5")]
    enum_type: Vec<Container>,
    #[prost(message, repeated, tag = "6")]
    service: Vec<Container>,
    #[prost(message, repeated, tag = "7")]
    extension: Vec<Field>,
}

/// `DescriptorProto`.
#[derive(Clone, PartialEq, Message)]
struct Descriptor {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    field: Vec<Field>,
    #[prost(message, repeated, tag = "3")]
    nested_type: Vec<Descriptor>,
    #[prost(message, repeated, tag = "4")]
    enum_type: Vec<Container>,
    #[prost(message, repeated, tag = "6")]
    extension: Vec<Field>,
    #[prost(message, repeated, tag = "8")]
    oneof_decl: Vec<Named>,
}

/// `EnumDescriptorProto` and `ServiceDescriptorProto`, which have the same shape: a name, and named members.
#[derive(Clone, PartialEq, Message)]
struct Container {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    within: Vec<Named>,
}

#[derive(Clone, PartialEq, Message)]
struct Named {
    #[prost(string, tag = "1")]
    name: String,
}

/// `FieldDescriptorProto`.
#[derive(Clone, PartialEq, Message)]
struct Field {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    extendee: String,
    #[prost(int32, tag = "3")]
    number: i32,
}

impl FileDescriptor {
    /// Passes all definitions to `see`.
    pub(super) fn look(&self, see: &mut dyn FnMut(SymbolDefinition<'_>)) {
        let scope = &self.package;
        for service in &self.service {
            let name = join(scope, &service.name);
            for method in &service.within {
                see(SymbolDefinition::Symbol(join(&name, &method.name)));
            }
            see(SymbolDefinition::Service(name));
        }
        for message in &self.message_type {
            message.look(scope, see);
        }
        look_at_enums(&self.enum_type, scope, see);
        look_at_extensions(&self.extension, scope, see);
    }
}

impl Descriptor {
    /// Recurses as deep as messages nest, which the Protobuf decoder has bounded.
    fn look(&self, scope: &str, see: &mut dyn FnMut(SymbolDefinition<'_>)) {
        let name = join(scope, &self.name);
        for field in &self.field {
            see(SymbolDefinition::Symbol(join(&name, &field.name)));
        }
        for choice in &self.oneof_decl {
            see(SymbolDefinition::Symbol(join(&name, &choice.name)));
        }
        for nested in &self.nested_type {
            nested.look(&name, see);
        }
        look_at_enums(&self.enum_type, &name, see);
        look_at_extensions(&self.extension, &name, see);
        see(SymbolDefinition::Symbol(name));
    }
}

/// Values of an enum are its siblings, not its members (as in C++).
fn look_at_enums(enums: &[Container], scope: &str, see: &mut dyn FnMut(SymbolDefinition<'_>)) {
    for one in enums {
        see(SymbolDefinition::Symbol(join(scope, &one.name)));
        for value in &one.within {
            see(SymbolDefinition::Symbol(join(scope, &value.name)));
        }
    }
}

fn look_at_extensions(extensions: &[Field], scope: &str, see: &mut dyn FnMut(SymbolDefinition<'_>)) {
    for extension in extensions {
        see(SymbolDefinition::Symbol(join(scope, &extension.name)));
        see(SymbolDefinition::Extension {
            of: &extension.extendee,
            number: extension.number,
        });
    }
}

fn join(scope: &str, name: &str) -> String {
    if scope.is_empty() {
        name.to_owned()
    } else {
        format!("{scope}.{name}")
    }
}
