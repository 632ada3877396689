"""The files of [security]: an error says which one is wrong, and how."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from braidlog.errors import InvalidArgumentError
from braidlog.serving.security import contexts, distrust, peer_token, tokens_of
from braidlog.serving.settings import SecuritySettings
from braidlog.wire.roles import Role
from braidlog.wire.tokens import make_token, token_entry

needs_openssl = pytest.mark.skipif(
    not shutil.which("openssl"), reason="openssl makes the certificates"
)


def refused(read: Callable[[SecuritySettings], Any], **files: Path) -> str:
    texts: dict[str, Any] = {name: str(file) for name, file in files.items()}
    settings = SecuritySettings(**texts)
    with pytest.raises(InvalidArgumentError) as caught:
        read(settings)
    return caught.value.message


def certificate(directory: Path, name: str, *more: str) -> tuple[Path, Path]:
    found, key = directory / f"{name}.crt", directory / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"]
    command += ["-pkeyopt", "ec_paramgen_curve:P-256", "-subj", f"/CN={name}"]
    command += ["-keyout", str(key), "-out", str(found), *more]
    subprocess.run(command, check=True, capture_output=True)
    return found, key


@needs_openssl
def test_which_file_of_tls_is_wrong(tmp_path: Path) -> None:
    crt, key = certificate(tmp_path, "node")
    _, other = certificate(tmp_path, "other")
    missing, text = tmp_path / "missing", tmp_path / "text"
    text.write_text("no PEM")

    def why(**files: Path) -> str:
        return refused(contexts, **{"certificate": crt, "key": key, **files})

    gone = f" = '{missing}': No such file or directory"
    assert why(certificate=missing) == f"[security] certificate{gone}"
    assert why(key=missing) == f"[security] key{gone}"
    assert why(authority=missing) == f"[security] authority{gone}"
    no_pem = f" = '{text}': the file has no certificate in PEM format"
    assert why(certificate=text) == f"[security] certificate{no_pem}"
    assert why(authority=text) == f"[security] authority{no_pem}"
    assert f"key = '{text}': the file has no private key in PEM" in why(key=text)
    assert why(key=other).endswith(
        f"'{other}': the key does not belong to the certificate {crt}"
    )
    assert contexts(SecuritySettings(certificate=str(crt), key=str(key)))[0]


def test_which_file_of_tokens_is_wrong(tmp_path: Path) -> None:
    missing, wrong = tmp_path / "missing", tmp_path / "wrong"
    gone = f" = '{missing}': No such file or directory"
    assert refused(tokens_of, tokens=missing) == f"[security] tokens{gone}"
    assert refused(peer_token, peer_token=missing) == f"[security] peer_token{gone}"
    wrong.write_text("[[token]]\nname = 5\n")
    named = f"[security] tokens = '{wrong}': token file, entry 1: "
    assert refused(tokens_of, tokens=wrong).startswith(named)
    wrong.write_bytes(b"\xff")
    assert refused(tokens_of, tokens=wrong).endswith("the file is not UTF-8 text")


def test_a_peer_token_that_peers_would_refuse(tmp_path: Path) -> None:
    tokens, file = tmp_path / "tokens.toml", tmp_path / "peer.token"
    texts, entries = {}, []
    for number, role in enumerate((Role.ADMIN, Role.PEER)):
        texts[role], token = make_token(role.word, role, bytes([number]) * 32)
        entries.append(token_entry(token))
    tokens.write_text("".join(entries))
    settings = SecuritySettings(tokens=str(tokens), peer_token=str(file))
    file.write_text(texts[Role.ADMIN] + "\n")
    assert refused(peer_token, tokens=tokens, peer_token=file) == (
        f"[security] peer_token = '{file}': a node needs a token of role peer, but"
        f" the token 'admin' of {tokens} has the role admin"
    )
    for text in (texts[Role.PEER], "known to others"):
        file.write_text(text + "\n")
        assert peer_token(settings) == text


@needs_openssl
def test_a_certificate_that_other_nodes_refuse(tmp_path: Path) -> None:
    crt, key = certificate(tmp_path, "node", "-addext", "subjectAltName=IP:127.0.0.1")
    other, _ = certificate(tmp_path, "other")

    def why(address: str = "127.0.0.1:7400", authority: Path = crt) -> str:
        settings = SecuritySettings(
            certificate=str(crt), key=str(key), authority=str(authority)
        )
        server, client = contexts(settings)
        assert server is not None
        assert client is not None
        return distrust(settings, address, server, client)

    assert why() == ""
    assert "self-signed certificate" in why(authority=other)
    assert "certificate is not valid for '10.9.9.9'" in why("10.9.9.9:7400")
    command = ["openssl", "x509", "-in", str(crt), "-signkey", str(key), "-days", "-1"]
    subprocess.run([*command, "-out", str(crt)], check=True, capture_output=True)
    assert "certificate has expired. Renew it" in why()
