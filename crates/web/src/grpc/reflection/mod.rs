//! `grpc.reflection.v1.ServerReflection`: the list of services and the types of their messages, for tools such as `grpcurl`.
//!
//! Answers from descriptors that the application supplies. Does not know which services it really serves.

mod descriptor;
mod messages;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use prost::{DecodeError, Message};
use ringmain_wire::grpc::Code;

use self::descriptor::{FileDescriptor, FileDescriptorSet};
use self::messages::{
    ErrorResponse, ExtensionNumbers, FileDescriptors, MessageRequest, MessageResponse, ReflectionRequest,
    ReflectionResponse, ServiceName, Services,
};
use super::call::Call;
use super::messages::Messages;
use super::replies::Replies;
use super::service::Service;
use super::status::Result;

/// Descriptors of services and messages, indexed for queries.
#[derive(Clone)]
pub struct ReflectionService {
    known: Arc<DescriptorIndex>,
}

#[derive(Default)]
struct DescriptorIndex {
    /// The files as supplied: name, imports, bytes.
    files: Vec<(String, Vec<String>, Vec<u8>)>,
    by_name: BTreeMap<String, usize>,
    /// Full names of services, methods, messages, fields, enums, values, extensions.
    by_symbol: BTreeMap<String, usize>,
    /// Extensions by the message that they extend.
    extensions: BTreeMap<String, BTreeMap<i32, usize>>,
    services: BTreeSet<String>,
}

/// The error for bytes that are not a `FileDescriptorSet`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a FileDescriptorSet, as `protoc --include_imports --descriptor_set_out` and protox write it: {0}"
)]
pub struct DescriptorError(#[from] DecodeError);

impl ReflectionService {
    /// Parses a `FileDescriptorSet` with all imported files. Of two files with one name the first counts.
    ///
    /// # Errors
    /// The bytes are not a `FileDescriptorSet`.
    pub fn new(descriptors: &[u8]) -> std::result::Result<ReflectionService, DescriptorError> {
        let set = FileDescriptorSet::decode(descriptors)?;
        let mut known = DescriptorIndex::default();
        for bytes in set.file {
            let file = FileDescriptor::decode(bytes.as_slice())?;
            let number = known.files.len();
            if known.by_name.contains_key(&file.name) {
                continue;
            }
            known.by_name.insert(file.name.clone(), number);
            file.look(&mut |found| known.note(found, number));
            known.files.push((file.name, file.dependency, bytes));
        }
        Ok(ReflectionService {
            known: Arc::new(known),
        })
    }

    /// Returns the service, to be added to an application.
    #[must_use]
    pub fn service(&self) -> Service {
        let reflection = self.clone();
        Service::new("grpc.reflection.v1.ServerReflection").bidi(
            "ServerReflectionInfo",
            async move |_: &Call<'_>,
                        requests: &mut Messages<'_, ReflectionRequest>,
                        replies: &mut Replies<'_, '_, ReflectionResponse>| {
                reflection.talk(requests, replies).await
            },
        )
    }

    async fn talk(
        &self,
        requests: &mut Messages<'_, ReflectionRequest>,
        replies: &mut Replies<'_, '_, ReflectionResponse>,
    ) -> Result {
        // No file is sent twice on one stream.
        let mut sent = BTreeSet::new();
        while let Some(request) = requests.next().await? {
            let answer = self.known.answer(request.question.as_ref(), &mut sent);
            let answer = answer.unwrap_or_else(|(code, message)| {
                MessageResponse::Error(ErrorResponse {
                    error_code: code.number().into(),
                    error_message: message,
                })
            });
            let response = ReflectionResponse {
                valid_host: request.host.clone(),
                original_request: Some(request),
                answer: Some(answer),
            };
            replies.send(&response).await?;
        }
        Ok(())
    }
}

/// A definition in a descriptor.
enum SymbolDefinition<'d> {
    Symbol(String),
    Service(String),
    Extension { of: &'d str, number: i32 },
}

impl DescriptorIndex {
    fn note(&mut self, found: SymbolDefinition<'_>, file: usize) {
        match found {
            SymbolDefinition::Symbol(name) => {
                self.by_symbol.entry(name).or_insert(file);
            }
            SymbolDefinition::Service(name) => {
                self.by_symbol.entry(name.clone()).or_insert(file);
                self.services.insert(name);
            }
            SymbolDefinition::Extension { of, number } => {
                let of = of.trim_start_matches('.').to_owned();
                self.extensions.entry(of).or_default().insert(number, file);
            }
        }
    }

    fn answer(
        &self,
        question: Option<&MessageRequest>,
        sent: &mut BTreeSet<usize>,
    ) -> std::result::Result<MessageResponse, (Code, String)> {
        let not_found = |detail: String| (Code::NotFound, detail);
        let file = match question {
            Some(MessageRequest::ListServices(_)) => {
                let names = self.services.iter().cloned();
                let service = names.map(|name| ServiceName { name }).collect();
                return Ok(MessageResponse::Services(Services { service }));
            }
            Some(MessageRequest::AllExtensionNumbersOfType(name)) => {
                let numbers = self.extensions.get(name);
                if numbers.is_none() && !self.by_symbol.contains_key(name) {
                    return Err(not_found(format!("unknown type `{name}`")));
                }
                return Ok(MessageResponse::ExtensionNumbers(ExtensionNumbers {
                    base_type_name: name.clone(),
                    extension_number: numbers.into_iter().flat_map(BTreeMap::keys).copied().collect(),
                }));
            }
            Some(MessageRequest::FileByFilename(name)) => {
                let found = self.by_name.get(name);
                found.ok_or_else(|| not_found(format!("unknown file `{name}`")))?
            }
            Some(MessageRequest::FileContainingSymbol(name)) => {
                let found = self.by_symbol.get(name);
                found.ok_or_else(|| not_found(format!("unknown symbol `{name}`")))?
            }
            Some(MessageRequest::FileContainingExtension(extension)) => {
                let of = self.extensions.get(&extension.containing_type);
                let found = of.and_then(|numbers| numbers.get(&extension.extension_number));
                found.ok_or_else(|| {
                    let (number, of) = (extension.extension_number, &extension.containing_type);
                    not_found(format!("unknown extension {number} of `{of}`"))
                })?
            }
            None => return Err((Code::InvalidArgument, "expected a request, found none".into())),
        };
        let mut file_descriptor_proto = Vec::new();
        self.gather(*file, sent, &mut file_descriptor_proto);
        Ok(MessageResponse::FileDescriptors(FileDescriptors {
            file_descriptor_proto,
        }))
    }

    /// Appends a file, then its imports that were not sent yet. The requested file is sent in any case.
    fn gather(&self, first: usize, sent: &mut BTreeSet<usize>, out: &mut Vec<Vec<u8>>) {
        let mut pending = vec![first];
        sent.remove(&first);
        while let Some(number) = pending.pop() {
            if sent.insert(number) {
                let (_, dependencies, bytes) = &self.files[number];
                out.push(bytes.clone());
                pending.extend(dependencies.iter().filter_map(|name| self.by_name.get(name)));
            }
        }
    }
}

impl fmt::Debug for ReflectionService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.known.files.iter().map(|(name, ..)| name);
        f.debug_list().entries(names).finish()
    }
}
