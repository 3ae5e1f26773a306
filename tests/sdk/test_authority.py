"""The certificate that clients of the emulator trust, as a library of someone else's reads and enforces it."""

import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@pytest.fixture(scope="module")
def authority(emulator):
    return x509.load_pem_x509_certificate(Path(emulator.ca).read_bytes())


def extension(certificate, kind):
    found = certificate.extensions.get_extension_for_class(kind)
    assert found.critical, kind
    return found.value


def test_the_authority_is_limited_to_its_names_to_a_year_and_to_servers(authority):
    constraints = extension(authority, x509.NameConstraints)
    assert constraints.excluded_subtrees is None
    assert {str(name.value) for name in constraints.permitted_subtrees} == {"localhost", "127.0.0.1/32", "::1/128"}
    basic = extension(authority, x509.BasicConstraints)
    assert (basic.ca, basic.path_length) == (True, 0)
    usage = extension(authority, x509.KeyUsage)
    assert usage.key_cert_sign and not usage.crl_sign and not usage.digital_signature
    now = datetime.datetime.now(datetime.timezone.utc)
    assert authority.not_valid_before_utc < now < authority.not_valid_after_utc
    assert authority.not_valid_after_utc - authority.not_valid_before_utc <= datetime.timedelta(days=366)


@pytest.mark.parametrize(("name", "accepted"), [("localhost", True), ("bank.example", False)])
def test_openssl_refuses_a_certificate_of_the_authority_for_another_name(emulator, authority, tmp_path, name, accepted):
    authority_key = serialization.load_pem_private_key(
        (Path(emulator.ca).parent / "authority-key.pem").read_bytes(), password=None
    )
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "forged")]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(authority.not_valid_before_utc)
        .not_valid_after(authority.not_valid_after_utc)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    chain, key_file = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(chain, key_file)
    client = ssl.create_default_context(cafile=str(emulator.ca))
    outcome = handshake(client, server, name)
    if accepted:
        assert outcome is None, outcome
    else:
        assert outcome is not None and "permitted subtree violation" in outcome.verify_message


def handshake(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> ssl.SSLCertVerificationError | None:
    """A TLS handshake in memory; the client's refusal of the certificate, if it refuses."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    done = [False, False]
    while not all(done):
        for at, end in enumerate(ends):
            try:
                end.do_handshake()
                done[at] = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError as error:
                return error
    return None
