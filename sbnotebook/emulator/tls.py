"""TLS, for clients that speak nothing else: with a certificate of its own, which the clients have to trust."""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from sbnotebook.emulator.service.http_app import NAMES
from sbnotebook.emulator.store import make_private
from sbnotebook.errors import EmulatorStartError

_CERTIFICATE: Final = "certificate.pem"
_KEY: Final = "certificate.key"
_ADDRESSES: Final = ("127.0.0.1", "::1")


def tls_context(directory: Path, names: Iterable[str] = ()) -> tuple[ssl.SSLContext, Path]:
    """Return the context of a server, and the certificate that its clients have to trust.

    The certificate is made where there is none, where it has ended, and where it lacks one of the names.
    """
    path = directory / _CERTIFICATE
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not _fits(path, wanted := {*NAMES, socket.gethostname().casefold(), *map(str.casefold, names)}):
            _make(directory, sorted(wanted))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path, directory / _KEY)
    except (OSError, ValueError) as error:
        raise EmulatorStartError(
            f"The emulator cannot use the certificate in {directory}: {error}. Remove it to get another one."
        ) from error
    return context, path


def _fits(path: Path, names: set[str]) -> bool:
    from cryptography import x509

    if not path.exists():
        return False
    known = x509.load_pem_x509_certificate(path.read_bytes())
    alternatives = known.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    has_names = names <= {*alternatives.get_values_for_type(x509.DNSName)}
    return has_names and known.not_valid_after_utc > datetime.now(UTC) + timedelta(days=1)


def _make(directory: Path, names: list[str]) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sbnotebook emulator")])
    alternatives = [*map(x509.DNSName, names), *(x509.IPAddress(ipaddress.ip_address(each)) for each in _ADDRESSES)]
    # It signs only itself.
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "crl_sign"), False
    )
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=825))  # the longest that the clients of all systems accept
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True, key_cert_sign=True, **usage, encipher_only=False, decipher_only=False
            ),
            critical=True,
        )
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    make_private(directory / _KEY)
    (directory / _KEY).write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    draft = directory / f"{_CERTIFICATE}.{os.getpid()}"
    draft.write_bytes(certificate.public_bytes(pem))
    draft.replace(directory / _CERTIFICATE)
