//! TLS client settings: verified by default, a CA file instead, or anything accepted on request.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::spec::TlsSpec;
use gpusize_base::error::{Error, Result};

/// What a handshake needs; built once, shared by all connections.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Protocol settings with the session cache.
    pub config: Arc<ClientConfig>,
    /// The name that the certificate must carry.
    pub name: ServerName<'static>,
}

impl Tls {
    /// Read the authorities and fix the protocol settings; `http2`: offer HTTP/2, and nothing else.
    pub fn new(spec: &TlsSpec, http2: bool) -> Result<Self> {
        let name = ServerName::try_from(spec.server_name.clone()).map_err(|_| {
            Error::target("not a name that a certificate can carry", &spec.server_name, "check the URL")
        })?;
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|e| Error::environment(e.to_string(), "TLS", "report this as a defect"))?;
        let mut config = if spec.insecure {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAll(provider))).with_no_client_auth()
        } else {
            let named = spec.ca_file.as_deref().map(read_certificates).transpose()?;
            let roots = Arc::new(roots(named.as_deref(), spec.ca_file.as_deref())?);
            let inner = WebPkiServerVerifier::builder_with_provider(roots, provider)
                .build()
                .map_err(|e| Error::environment(e.to_string(), "TLS", "report this as a defect"))?;
            let verifier = NamedOrTrusted { inner, named: named.unwrap_or_default() };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth()
        };
        if http2 {
            config.alpn_protocols = vec![b"h2".to_vec()];
        }
        Ok(Self { config: Arc::new(config), name })
    }
}

fn read_certificates(path: &str) -> Result<Vec<CertificateDer<'static>>> {
    let unreadable = |e: rustls::pki_types::pem::Error| {
        Error::target(format!("cannot read certificates: {e}"), path, "give a PEM file of certificate authorities")
    };
    CertificateDer::pem_file_iter(path).map_err(unreadable)?.map(|c| c.map_err(unreadable)).collect()
}

fn roots(named: Option<&[CertificateDer<'static>]>, path: Option<&str>) -> Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    let place = path.unwrap_or("the system's certificate store");
    if let Some(certificates) = named {
        for certificate in certificates {
            store.add(certificate.clone()).map_err(|e| {
                Error::target(format!("cannot use a certificate: {e}"), place, "give certificate authorities as PEM")
            })?;
        }
    } else {
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if store.is_empty() {
        return Err(Error::target("no certificate authority found", place, "name a PEM file with --cacert"));
    }
    Ok(store)
}

/// The usual check, and one exception: a server may show a certificate of the user's own file itself. That is what
/// `openssl req -x509` makes, an authority that is also the server's certificate, which the usual check refuses.
#[derive(Debug)]
struct NamedOrTrusted {
    inner: Arc<WebPkiServerVerifier>,
    named: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for NamedOrTrusted {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        let usual = self.inner.verify_server_cert(shown, intermediates, name, ocsp, now);
        // Only "an authority used as a server's certificate" has no name of its own among the errors; dates and names have.
        let is_authority = matches!(&usual, Err(rustls::Error::InvalidCertificate(CertificateError::Other(_))));
        if is_authority && self.named.iter().any(|n| n.as_ref() == shown.as_ref()) {
            verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
            return Ok(ServerCertVerified::assertion());
        }
        usual
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
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
