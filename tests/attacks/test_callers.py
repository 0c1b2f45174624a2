"""Calling as another service: a pinned certificate stands for itself, and for no other that it has signed."""

from __future__ import annotations

import datetime
from pathlib import Path

import grpc
import grpc.aio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from croupier.operator import keys
from croupier.protocol.errors import refusal_of
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.service_directory import Secrets, load_secrets
from tests.support.arena import arena


def minted(issuer: Secrets) -> Secrets:
    """Returns a new key with a certificate that a service has signed, which is shown together with its own."""
    own = x509.load_pem_x509_certificate(issuer.tls_certificate)
    signing = serialization.load_pem_private_key(issuer.tls_key, None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "operator")]))
        .issuer_name(own.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(signing, hashes.SHA256())
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    chain = certificate.public_bytes(serialization.Encoding.PEM) + issuer.tls_certificate
    return issuer.model_copy(update={"tls_key": pem, "tls_certificate": chain})


@pytest.mark.parametrize("may_sign", [False, True])
async def test_a_service_cannot_make_callers_of_its_own(
    tmp_path: Path, may_sign: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it could: with certificates that may sign others, TLS alone lets the callers in, each with its own share."""
    if may_sign:  # as certificates of before were
        every = dict.fromkeys(("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False)
        every |= {"crl_sign": False, "encipher_only": False, "decipher_only": False}
        usage = x509.KeyUsage(digital_signature=True, key_cert_sign=True, **every)
        monkeypatch.setattr(keys, "key_usage", lambda **_: usage)
    async with arena(tmp_path, 1, over_tls=True) as deployment:
        hop_1 = deployment.deployment.shufflers[0]
        accountant = load_secrets(deployment.inside.directory / "accountant")
        for secrets, status in (
            (accountant, grpc.StatusCode.PERMISSION_DENIED),  # known, and only the operator may
            (minted(accountant), grpc.StatusCode.PERMISSION_DENIED if may_sign else grpc.StatusCode.UNAVAILABLE),
        ):
            async with deployment.inside.transport.peer_channel(hop_1, secrets) as channel:
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await stubs.RoundControlStub(channel).Withdraw(rpc.WithdrawRequest(round_id="r"), timeout=20)
            assert refused.value.code() is status
            refusal = refusal_of(refused.value)
            assert refusal is None or ("not pinned" in refusal.hint) is (secrets is not accountant)
