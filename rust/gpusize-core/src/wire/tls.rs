//! TLS client settings: verified by default, a CA file instead, or anything accepted on request.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::error::{Error, Result};
use crate::spec::TlsSpec;

/// What a handshake needs; built once, shared by all connections.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Protocol settings with the session cache.
    pub config: Arc<ClientConfig>,
    /// The name that the certificate must carry.
    pub name: ServerName<'static>,
}

impl Tls {
    /// Read the authorities and fix the protocol settings.
    pub fn new(spec: &TlsSpec) -> Result<Self> {
        let name = ServerName::try_from(spec.server_name.clone()).map_err(|_| {
            Error::target("not a name that a certificate can carry", &spec.server_name, "check the URL")
        })?;
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|e| Error::environment(e.to_string(), "TLS", "report this as a defect"))?;
        let config = if spec.insecure {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAll(provider))).with_no_client_auth()
        } else {
            builder.with_root_certificates(roots(spec.ca_file.as_deref())?).with_no_client_auth()
        };
        Ok(Self { config: Arc::new(config), name })
    }
}

fn roots(ca_file: Option<&str>) -> Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    if let Some(path) = ca_file {
        let unreadable = |e: &dyn std::fmt::Display| {
            Error::target(format!("cannot read certificates: {e}"), path, "give a PEM file of certificate authorities")
        };
        let certificates = CertificateDer::pem_file_iter(path).map_err(|e| unreadable(&e))?;
        for certificate in certificates {
            store.add(certificate.map_err(|e| unreadable(&e))?).map_err(|e| unreadable(&e))?;
        }
    } else {
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if store.is_empty() {
        let place = ca_file.unwrap_or("the system's certificate store");
        return Err(Error::target("no certificate authority found", place, "name a PEM file with --cacert"));
    }
    Ok(store)
}

/// Checks signatures, so that the peer holds the key it shows, but trusts any certificate.
#[derive(Debug)]
struct AcceptAll(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAll {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
