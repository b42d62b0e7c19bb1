"""librdkafka's names for SASL and TLS settings, as credentials for Faust and its client aiokafka."""

import ssl
from collections.abc import Mapping
from typing import Final

from faust.auth import Credentials, SASLCredentials, SSLCredentials

from schemas.errors import Usage, cause_of

_PROTOCOLS: Final = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
# Settings that change whom we trust or who we are, and that the Python client cannot follow.
_REFUSED: Final = ("ssl.certificate.pem", "ssl.key.pem", "ssl.keystore.location", "ssl.engine.location")
_FALSE: Final = ("false", "0", "f", "n", "no")


def credentials(kafka: Mapping[str, str]) -> Credentials | None:
    """Credentials for these librdkafka settings, None for a plain connection. Raises Usage."""
    protocol = kafka.get("security.protocol", "plaintext").lower()
    if protocol not in _PROTOCOLS:
        raise Usage(f"security.protocol={protocol}: use one of {', '.join(_PROTOCOLS)}")
    context = _context(kafka) if protocol.endswith("ssl") else None
    if not protocol.startswith("sasl"):
        return None if context is None else SSLCredentials(context)
    mechanism = kafka.get("sasl.mechanism", kafka.get("sasl.mechanisms", "GSSAPI")).upper()
    if mechanism not in _MECHANISMS:
        raise Usage(f"sasl.mechanism={mechanism}: the incidents service knows {', '.join(_MECHANISMS)}")
    for name in ("sasl.username", "sasl.password"):
        if name not in kafka:
            raise Usage(f"security.protocol={protocol} needs {name}")
    return SASLCredentials(
        username=kafka["sasl.username"],
        password=kafka["sasl.password"],
        mechanism=mechanism,
        ssl_context=context,
    )


def _context(kafka: Mapping[str, str]) -> ssl.SSLContext:
    """Whom to trust, and our own certificate where the broker asks for one."""
    refused = [name for name in _REFUSED if kafka.get(name)]
    if refused:
        raise Usage(
            f"{refused[0]}: the incidents service takes ssl.certificate.location and ssl.key.location"
        )
    try:
        context = ssl.create_default_context(
            cafile=kafka.get("ssl.ca.location"), cadata=kafka.get("ssl.ca.pem")
        )
        certificate = kafka.get("ssl.certificate.location")
        if certificate:
            # An empty password rather than none: without one OpenSSL asks for it on the terminal.
            password = kafka.get("ssl.key.password", "")
            context.load_cert_chain(certificate, kafka.get("ssl.key.location"), password)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise Usage(f"the TLS settings cannot be used: {cause_of(error)}") from error
    if kafka.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
        context.check_hostname = False
    if kafka.get("enable.ssl.certificate.verification", "true").lower() in _FALSE:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
