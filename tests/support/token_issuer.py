"""An identity provider for tests: keys, tokens right and wrong, and a server that publishes the keys as a test wants it.

Owns the making of tokens from raw parts, so that a test can break any one of them, and a JWKS server whose next answers are
set by the test. A library that makes tokens would refuse to make most of these.
"""

import asyncio
import base64
import contextlib
import datetime
import ipaddress
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

URL = "https://idp.example.test/realms/models"
RESOURCE = "http://digits-mcp.ml.svc:8931/mcp"


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _number(value: int) -> str:
    return encode(value.to_bytes((value.bit_length() + 7) // 8, "big"))


@dataclass(kw_only=True)
class Issuer:
    """One provider with one key. Claims and header fields given as `None` are left out."""

    key: PrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    url: str = URL
    kid: str = "key-1"
    audience: Any = RESOURCE
    subject: str = "alice"
    scope: str | None = "mcp:tools:list mcp:tools:call"

    @property
    def algorithm(self) -> str:
        return "RS256" if isinstance(self.key, rsa.RSAPrivateKey) else "ES256"

    def claims(self, **changes: Any) -> dict[str, Any]:
        now = int(time.time())
        claims = {
            "iss": self.url,
            "sub": self.subject,
            "aud": self.audience,
            "exp": now + 600,
            "iat": now,
            "scope": self.scope,
            **changes,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def header(self, **changes: Any) -> dict[str, Any]:
        header = {"alg": self.algorithm, "typ": "JWT", "kid": self.kid, **changes}
        return {name: value for name, value in header.items() if value is not None}

    def token(
        self,
        claims: dict[str, Any] | bytes | None = None,
        header: dict[str, Any] | bytes | None = None,
        *,
        sign: Callable[[bytes], bytes] | None = None,
    ) -> str:
        """A token of these parts, signed with the key unless `sign` does it."""
        parts = [self.header() if header is None else header, self.claims() if claims is None else claims]
        head = ".".join(encode(part if isinstance(part, bytes) else json.dumps(part).encode()) for part in parts)
        return f"{head}.{encode((sign or self.sign)(head.encode()))}"

    def sign(self, data: bytes) -> bytes:
        if isinstance(self.key, rsa.RSAPrivateKey):
            return self.key.sign(data, padding.PKCS1v15(), hashes.SHA256())
        r, s = decode_dss_signature(self.sign_der(data))
        size = (self.key.curve.key_size + 7) // 8
        return r.to_bytes(size, "big") + s.to_bytes(size, "big")

    def sign_der(self, data: bytes) -> bytes:
        assert isinstance(self.key, ec.EllipticCurvePrivateKey)
        return self.key.sign(data, ec.ECDSA(hashes.SHA256()))

    def public_pem(self) -> bytes:
        return self.key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    def jwk(self, **more: Any) -> dict[str, Any]:
        numbers = self.key.public_key().public_numbers()
        if isinstance(numbers, rsa.RSAPublicNumbers):
            shape = {"kty": "RSA", "n": _number(numbers.n), "e": _number(numbers.e)}
        else:
            shape = {
                "kty": "EC",
                "crv": "P-256",
                "x": encode(numbers.x.to_bytes(32, "big")),
                "y": encode(numbers.y.to_bytes(32, "big")),
            }
        return {**shape, "kid": self.kid, "use": "sig", "alg": self.algorithm, **more}

    def jwks(self, **more: Any) -> dict[str, Any]:
        return {"keys": [self.jwk(**more)]}


def keys_of(*issuers: Issuer) -> bytes:
    """A JWK set of several keys, as a server sends it."""
    return json.dumps({"keys": [issuer.jwk() for issuer in issuers]}).encode()


@dataclass(kw_only=True)
class KeyServer:
    """A server of keys. `answer` is the whole response, `gate` holds answers back while it is not set."""

    answer: bytes = b""
    port: int = 0
    requests: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: set["asyncio.Task[None]"] = field(default_factory=set)

    def publish(self, body: bytes, status: str = "200 OK", headers: str = "") -> None:
        head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\ncontent-type: application/json\r\n{headers}\r\n"
        self.answer = head.encode() + body

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.add(asyncio.create_task(self._handle(reader, writer)))

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            self.requests += 1
            self.asked.set()
            await self.gate.wait()
            writer.write(self.answer)
            await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()

    async def next_request(self) -> None:
        """Wait until it is asked again."""
        self.asked.clear()
        await self.asked.wait()


@contextlib.asynccontextmanager
async def key_server(answer: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[KeyServer]:
    """A server on loopback whose `answer` is this JWK set until a test changes it."""
    served = KeyServer()
    served.gate.set()
    served.publish(answer)
    server = await asyncio.start_server(served.connected, "127.0.0.1", 0, ssl=tls)
    served.port = server.sockets[0].getsockname()[1]
    async with server:
        yield served
        served.gate.set()
        await asyncio.gather(*served.tasks)


def certificate(folder: Path) -> tuple[ssl.SSLContext, str]:
    """A server's TLS context for 127.0.0.1, and the PEM of the authority that signed it: itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.pem").write_bytes(private + pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    return context, pem.decode()
