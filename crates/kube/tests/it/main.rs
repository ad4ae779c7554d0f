//! Translations of manifests, the suite's own manifests, the schemas of the API, zones, and arbitrary objects.

mod cluster;
mod following;
mod golden;
mod modules;
mod property;
mod rights;
mod schema;
mod suite;
mod zones;
