"""What servers of TLS make of the first bytes of who only wants to know."""

import ssl
import subprocess
from pathlib import Path

import pytest

from braidlog.client.connection.probe import CLIENT_HELLO
from braidlog.wire.foreign import FIRST_BYTES, foreign

V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


@pytest.fixture(scope="module", params=["rsa:2048", "ec:P-256"])
def certificate(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    kind, _, curve = request.param.partition(":")
    key = ["ec", "-pkeyopt", f"ec_paramgen_curve:{curve}"]
    command = ["openssl", "req", "-x509", "-nodes", "-subj", "/CN=server", "-newkey"]
    command += [request.param] if kind == "rsa" else key
    command += ["-keyout", str(file), "-out", str(file.with_suffix(".crt"))]
    subprocess.run(command, check=True, capture_output=True)
    with file.open("a") as out:
        out.write(file.with_suffix(".crt").read_text())
    return file


@pytest.mark.parametrize(("low", "high"), [(V12, V12), (V13, V13), (V12, V13)])
@pytest.mark.parametrize("verify", [ssl.CERT_NONE, ssl.CERT_REQUIRED])
def test_a_server_of_tls_answers_with_a_handshake(
    certificate: Path, low: ssl.TLSVersion, high: ssl.TLSVersion, verify: ssl.VerifyMode
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.load_verify_locations(certificate)
    context.minimum_version, context.maximum_version = low, high
    context.verify_mode = verify
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(incoming, outgoing, server_side=True)
    incoming.write(CLIENT_HELLO)
    with pytest.raises(ssl.SSLWantReadError):
        server.do_handshake()
    answer = outgoing.read()
    assert foreign(answer[:FIRST_BYTES]) == "TLS"
    # No alert: it would be served.
    assert answer[0] == 0x16


def test_a_server_without_tls_knows_what_it_is() -> None:
    assert foreign(CLIENT_HELLO[:FIRST_BYTES]) == "TLS"
