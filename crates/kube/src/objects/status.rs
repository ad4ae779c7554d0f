//! The status of an object, as the API server has it.

use std::fmt;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// A status as JSON text: it is parsed only when the next one is derived from it, and as text it takes an eighth of the memory that its
/// values would take.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Status(Option<Box<str>>);

impl Status {
    /// Returns the fields; none if there is no status.
    #[must_use]
    pub fn fields(&self) -> Map<String, Value> {
        let text = self.0.as_deref().unwrap_or("{}");
        serde_json::from_str(text).unwrap_or_default()
    }
}

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Status, D::Error> {
        let json = Box::<RawValue>::deserialize(input)?;
        Ok(Status(json.get().starts_with('{').then(|| json.into())))
    }
}

impl From<Value> for Status {
    fn from(value: Value) -> Status {
        Status(value.is_object().then(|| value.to_string().into()))
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or("null"))
    }
}
