//! TLS and SASL to a Kafka cluster.

use krafka::auth::{AuthConfig, TlsConfig};
use ringmain_gateway::model::{BrokerTls, KafkaSasl, SaslMechanism};

/// The security settings of a client. `None`: neither TLS nor SASL.
pub(crate) fn security(tls: Option<&BrokerTls>, sasl: Option<&KafkaSasl>) -> Option<AuthConfig> {
    let tls = tls.map(tls_config);
    let Some(sasl) = sasl else {
        return tls.map(AuthConfig::ssl);
    };
    let user = sasl.login.user.to_string();
    let password = String::from_utf8_lossy(sasl.login.password.expose()).into_owned();
    let auth = match sasl.mechanism {
        SaslMechanism::Plain => AuthConfig::sasl_plain(user, password),
        SaslMechanism::ScramSha256 => AuthConfig::sasl_scram_sha256(user, password),
        SaslMechanism::ScramSha512 => AuthConfig::sasl_scram_sha512(user, password),
    };
    Some(match tls {
        Some(tls) => auth.with_tls(tls),
        None => auth,
    })
}

fn tls_config(tls: &BrokerTls) -> TlsConfig {
    let mut config = TlsConfig::new();
    config = match &tls.authorities {
        Some(pem) => config.with_ca_cert_pem(pem.to_vec()),
        None => config.with_native_roots(),
    };
    if let Some(certificate) = &tls.certificate {
        let key = certificate.key.expose().to_vec();
        config = config.with_client_cert_pem(certificate.chain.to_vec(), key);
    }
    match &tls.server_name {
        Some(name) => config.with_sni_hostname(name.to_string()),
        None => config,
    }
}
