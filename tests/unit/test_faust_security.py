"""librdkafka's SASL and TLS settings as Faust's credentials, down to what its client is told."""

import ssl
from pathlib import Path

import pytest
from faust.transport.drivers.aiokafka import credentials_to_aiokafka_auth

from schemas.errors import Usage
from tempotrace.runtime.faust_security import credentials

# A self-signed certificate for `localhost`, made for this test; its key was thrown away.
CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBgDCCASWgAwIBAgIUIwuMtFGThodzSsqy5HEJDG7Fos0wCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTIwMTEzMDcxMFoYDzIxMjYxMTA3
MTMwNzEwWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAAT/hqOt2hv0w+XnrPHokfKDpzxBOLCgDYnnUqS8QqpEnygDA1uAgHYw
m7OwP54pgZcfOIOp/d1lxx8m4Oh+dLxto1MwUTAdBgNVHQ4EFgQUn5hZbpaGpnIT
BhaJN0/s3Ay6/NEwHwYDVR0jBBgwFoAUn5hZbpaGpnITBhaJN0/s3Ay6/NEwDwYD
VR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNJADBGAiEAimW5/Gmk4/zdId35SMVb
ZOVUxhwxN97S/VgbvH+KEGkCIQDRz1pNUqAwreL4tRHeiT+jY0Hqw9+FOoJV1eIN
aMvE9Q==
-----END CERTIFICATE-----
"""
SCRAM = {"sasl.username": "ann", "sasl.password": "secret", "sasl.mechanism": "SCRAM-SHA-512"}


def test_plain() -> None:
    assert credentials({"bootstrap.servers": "x:1"}) is None
    # As librdkafka: without a SASL protocol the rest is not looked at.
    assert credentials({"security.protocol": "PLAINTEXT", **SCRAM}) is None


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_sasl(mechanism: str, name: str) -> None:
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.username": "ann",
        "sasl.password": "secret",
        name: mechanism,
    }
    found = credentials(given)
    assert credentials_to_aiokafka_auth(found) == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "ann",
        "sasl_plain_password": "secret",
        "ssl_context": None,
    }
    assert "secret" not in repr(found)


def context_of(settings: dict[str, str]) -> tuple[str, ssl.SSLContext]:
    told = credentials_to_aiokafka_auth(credentials(settings))
    context = told["ssl_context"]
    assert isinstance(context, ssl.SSLContext)
    return str(told["security_protocol"]), context


@pytest.fixture
def authority(tmp_path: Path) -> str:
    path = tmp_path / "ca.pem"
    path.write_text(CERTIFICATE)
    return str(path)


def test_tls_trusts_the_given_authority(authority: str) -> None:
    protocol, context = context_of({"security.protocol": "ssl", "ssl.ca.location": authority})
    assert protocol == "SSL"
    (found,) = context.get_ca_certs()
    assert found["subject"] == ((("commonName", "localhost"),),)
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    same = context_of({"security.protocol": "ssl", "ssl.ca.pem": CERTIFICATE})[1]
    assert same.get_ca_certs() == context.get_ca_certs()


def test_sasl_over_tls_with_a_certificate_of_our_own(authority: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[tuple[object, ...]] = []
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", lambda self, *given: loaded.append(given))
    settings = {"security.protocol": "SASL_SSL", "ssl.ca.location": authority, **SCRAM}
    assert context_of(settings)[0] == "SASL_SSL"
    own = {"ssl.certificate.location": "own.crt", "ssl.key.location": "own.key"}
    assert context_of({**settings, **own})[0] == "SASL_SSL"
    context_of({**settings, **own, "ssl.key.password": "open sesame"})
    # An empty password: none would make OpenSSL ask for one on the terminal.
    assert loaded == [("own.crt", "own.key", ""), ("own.crt", "own.key", "open sesame")]


def test_checks_that_are_switched_off(authority: str) -> None:
    base = {"security.protocol": "ssl", "ssl.ca.location": authority}
    context = context_of({**base, "ssl.endpoint.identification.algorithm": "none"})[1]
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_REQUIRED)
    context = context_of({**base, "enable.ssl.certificate.verification": "false"})[1]
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_NONE)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"security.protocol": "tls"}, "security.protocol=tls"),
        ({"security.protocol": "sasl_plaintext"}, "sasl.mechanism=GSSAPI"),
        ({"security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER"),
        (
            {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "a"},
            "sasl.password",
        ),
        ({"security.protocol": "ssl", "ssl.ca.location": "absent.pem"}, "TLS settings"),
        ({"security.protocol": "ssl", "ssl.ca.pem": "no certificate"}, "TLS settings"),
        ({"security.protocol": "ssl", "ssl.keystore.location": "k.p12"}, "ssl.keystore.location"),
        ({"security.protocol": "ssl", "ssl.certificate.location": "absent.crt"}, "TLS settings"),
    ],
)
def test_what_cannot_be_used_is_named(settings: dict[str, str], message: str) -> None:
    with pytest.raises(Usage, match=message):
        credentials(settings)
