//! References to Secrets and ConfigMaps: certificates and authorities.

use std::sync::Arc;

use ringmain_gateway::model::{Authorities, Certificate, Name};

use super::condition::Fault;
use super::{Context, text};
use crate::objects::{ConfigMap, Key, Kind, ObjectRef, Secret};
use crate::store::Referrer;

impl Context<'_> {
    /// Resolves a certificate with its key and adds it to the parts.
    pub(super) fn certificate(&mut self, from: Referrer<'_>, reference: &ObjectRef) -> Result<Name, Fault> {
        const REASON: &str = "InvalidCertificateRef";
        let is_core = reference.group.as_deref().unwrap_or_default().is_empty();
        if !is_core || reference.kind.as_deref().unwrap_or("Secret") != "Secret" {
            return Err(Fault::new(REASON, "certificates are Secrets of the core group"));
        }
        let namespace = reference.namespace.as_deref().unwrap_or(from.namespace);
        let key = Key::new(Kind::Secret, namespace, &*reference.name);
        if !self.store.permits(from, Kind::Secret, namespace, &reference.name) {
            return Err(Fault::new(
                "RefNotPermitted",
                format!("no ReferenceGrant permits {key}"),
            ));
        }
        let Some(secret) = self.store.get::<Secret>(namespace, &reference.name) else {
            return Err(Fault::new(REASON, format!("{key} is not found")));
        };
        let (Some(chain), Some(private)) = (&secret.data.chain, &secret.data.key) else {
            return Err(Fault::new(REASON, format!("{key} lacks tls.crt or tls.key")));
        };
        if !text::has_pem(chain, "CERTIFICATE") || !text::has_pem(private.expose(), "PRIVATE KEY") {
            return Err(Fault::new(
                REASON,
                format!("{key}: tls.crt or tls.key is not PEM"),
            ));
        }
        let name: Name = key.to_string().into();
        let certificate = Certificate {
            name: Arc::clone(&name),
            chain: Arc::clone(chain),
            key: private.clone(),
        };
        self.certificates.insert(Arc::clone(&name), Arc::new(certificate));
        Ok(name)
    }

    /// Resolves authorities and adds them to the parts. `invalid_kind` is the reason for another kind of object.
    pub(super) fn authority(
        &mut self,
        from: Referrer<'_>,
        reference: &ObjectRef,
        invalid_kind: &'static str,
    ) -> Result<Name, Fault> {
        const REASON: &str = "InvalidCACertificateRef";
        let kind = reference.kind.as_deref().and_then(Kind::parse);
        let is_core = reference.group.as_deref().unwrap_or_default().is_empty();
        let kind = kind.filter(|kind| is_core && matches!(kind, Kind::ConfigMap | Kind::Secret));
        let Some(kind) = kind else {
            return Err(Fault::new(
                invalid_kind,
                "authorities are ConfigMaps or Secrets of the core group",
            ));
        };
        let namespace = reference.namespace.as_deref().unwrap_or(from.namespace);
        let key = Key::new(kind, namespace, &*reference.name);
        if !self.store.permits(from, kind, namespace, &reference.name) {
            return Err(Fault::new(
                "RefNotPermitted",
                format!("no ReferenceGrant permits {key}"),
            ));
        }
        let pem: Option<Arc<[u8]>> = match kind {
            Kind::ConfigMap => {
                let found = self.store.get::<ConfigMap>(namespace, &reference.name);
                let text = found.and_then(|found| found.data.authorities.as_ref());
                text.map(|text| Arc::from(text.as_bytes()))
            }
            _ => {
                let found = self.store.get::<Secret>(namespace, &reference.name);
                found.and_then(|found| found.data.authorities.clone())
            }
        };
        let Some(pem) = pem.filter(|pem| text::has_pem(pem, "CERTIFICATE")) else {
            return Err(Fault::new(
                REASON,
                format!("{key} is not found or has no PEM in ca.crt"),
            ));
        };
        let name: Name = key.to_string().into();
        let authorities = Authorities {
            name: Arc::clone(&name),
            pem,
        };
        self.authorities.insert(Arc::clone(&name), Arc::new(authorities));
        Ok(name)
    }
}
