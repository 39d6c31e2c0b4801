"""Texts with and without credentials, drawn from a seed in each run, so that no file contains a token.

Positives are texts that an agent could paste, with secrets in them: those of ``credentials``, and other forms that
issuers document, with random parts. Negatives are texts that agents write every day, and harmless texts that look most
like a secret.
"""

from __future__ import annotations

import base64
import json
import random
import uuid
from typing import TYPE_CHECKING, Final, NamedTuple

from credentials import ALNUM, BASE32, BASE64, CREDENTIALS, HEX, URLSAFE, user_and_password

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SEED: Final = 13
DRAWS: Final = 6
NEGATIVES_EACH: Final = 140
SURROUNDINGS: Final = (
    "{}",
    "The deployment failed; the log says: {} and nothing else.",
    "export VALUE='{}'",
    "$ cat .env\n{}\n$ exit",
    "- run: deploy\n  env:\n    VALUE: {}\n",
    "配置里有{}，请删除。",
    "| name | value |\n|---|---|\n| key | {} |",
    '```json\n["{}"]\n```',
    "diff --git a/x b/x\n+{}\n-old",
    "2026-11-22T06:00:00Z ERROR request failed: {}",
)
INVISIBLE: Final = ("\u200b", "\u00ad", "\u2060", "\ufeff", "\u200d")
WORDS: Final = (
    *("agents", "hand", "work", "over", "with", "tokens", "passwords", "keys", "secrets", "vault", "bearer", "basic"),
    *("authorization", "header", "password", "connection", "string", "server", "database", "user", "host", "port"),
)
PLACEHOLDERS: Final = (
    *("***", "********", "<password>", "$DB_PASSWORD", "${DB_PASSWORD}", "${{ secrets.DB_PASSWORD }}", "changeme"),
    *("{password}", "{settings.password}", "%PASSWORD%", "%(password)s", "your-password-here", "EXAMPLE", "xxxxxxxx"),
    *("REDACTED", "[REDACTED]", "{{ vault_password }}", "$(cat /run/secrets/db)", "@Password", "os.environ", "..."),
    *("getPassword()", "self.password", "PLACEHOLDER", "change-me", "myPassword123", "example-password-1", "secret"),
    *("admin123", "test1234", "P@ssw0rd", "tiger", "null"),
)


class Sample(NamedTuple):
    """A text and its kind: the kind of its secret, or the kind of text if it has no secret."""

    kind: str
    text: str


class Draw:
    """Draws random parts, the same in each run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def text(self, alphabet: str, length: int) -> str:
        """Return ``length`` characters of an alphabet."""
        return "".join(self.random.choices(alphabet, k=length))

    def password(self) -> str:
        """Return a password like those of a password manager."""
        return self.text(ALNUM, 10) + self.text("!@^~*", 1) + self.text("0123456789", 2) + self.text(ALNUM, 6)

    def words(self, count: int) -> str:
        """Return ``count`` words."""
        return " ".join(self.random.choices(WORDS, k=count))


FORMS: Final[dict[str, Callable[[Draw], str]]] = {
    "Vault service": lambda draw: "hvs." + draw.text(URLSAFE, 95),
    "Vault batch": lambda draw: "hvb." + draw.text(URLSAFE, 140),
    "Vault legacy": lambda draw: "X-Vault-Token: s." + draw.text(ALNUM, 24),
    "DigitalOcean personal": lambda draw: "dop_v1_" + draw.text(HEX, 64),
    "DigitalOcean OAuth": lambda draw: "doo_v1_" + draw.text(HEX, 64),
    "Databricks": lambda draw: "dapi" + draw.text(HEX, 32),
    "GitHub": lambda draw: "ghp_" + draw.text(ALNUM, 36),
    "GitLab": lambda draw: "glpat-" + draw.text(URLSAFE, 20),
    "AWS": lambda draw: "AKIA" + draw.text(BASE32, 16),
    "Stripe": lambda draw: "sk_live_" + draw.text(ALNUM, 24),
    "npm": lambda draw: "npm_" + draw.text(ALNUM, 36),
    "bearer, opaque": lambda draw: "Authorization: Bearer " + draw.text(URLSAFE, 32),
    "bearer, hex": lambda draw: f"curl -H 'Authorization: Bearer {draw.text(HEX, 40)}' https://api.example/v1",
    "bearer, JSON": lambda draw: json.dumps({"headers": {"authorization": "bearer " + draw.text(ALNUM, 48)}}),
    "bearer, UUID": lambda draw: f"Authorization: Bearer {uuid.UUID(int=draw.random.getrandbits(128))}",
    "basic": lambda draw: "Authorization: Basic " + user_and_password(draw.text(HEX, 8)),
    "basic, source": lambda draw: f'headers["Authorization"] = "Basic {user_and_password(draw.text(HEX, 8))}"',
    "registry": lambda draw: json.dumps({"auths": {"r.example": {"auth": user_and_password(draw.text(HEX, 8))}}}),
    "kubeconfig": lambda draw: "client-key-data: " + _encoded("RSA PRIVATE KEY", draw),
    "kubeconfig, EC": lambda draw: "client-key-data: " + _encoded("EC PRIVATE KEY", draw),
    "JDBC query": lambda draw: f"jdbc:mysql://db.example:3306/app?useSSL=true&user=app&password={draw.password()}",
    "JDBC server": lambda draw: (
        f"jdbc:sqlserver://db:1433;database=app;user=app;password={draw.password()};encrypt=true"
    ),
    "JDBC thin": lambda draw: f"jdbc:oracle:thin:app/{draw.text(ALNUM, 16)}@db.example:1521:orcl",
    "ADO": lambda draw: f"Server=db.example;Database=app;User Id=app;Password={draw.password()};Timeout=30",
    "ADO, first": lambda draw: f"Password={draw.password()};User ID=app;Data Source=db.example",
    "ODBC": lambda draw: f"DSN=app;UID=app;PWD={draw.password()}",
    "libpq": lambda draw: f"host=db.example port=5432 user=app password={draw.password()} dbname=app sslmode=require",
    "libpq, first": lambda draw: f"password={draw.password()} host=db.example dbname=app",
    "query": lambda draw: f"https://api.example/v1/login?user=app&password={draw.text(ALNUM, 14)}7&next=1",
    "URL": lambda draw: f"amqp://app:{draw.text(ALNUM, 16)}@mq.example:5672/",
    "invisible": lambda draw: _cut("ghp_" + draw.text(ALNUM, 36), draw),
    "invisible, Vault": lambda draw: _cut("hvs." + draw.text(ALNUM, 90), draw),
}

HARMLESS: Final[dict[str, Callable[[Draw], str]]] = {
    "prose": lambda draw: draw.words(40),
    "prose on tokens": lambda draw: f"Bearer {draw.words(3)}; Basic {draw.words(2)} with password={draw.words(5)}",
    "Chinese": lambda draw: "密码=请看保险库，令牌：" + draw.text("请先核对事件的版本再提交", 60),
    "hashes": lambda draw: f"commit {draw.text(HEX, 40)} sha256:{draw.text(HEX, 64)} md5 {draw.text(HEX, 32)}",
    "refs": lambda draw: f"blake3:{draw.text(HEX, 64)} key={draw.text(HEX, 64)} proof {draw.text(HEX, 128)}",
    "identifiers": lambda draw: f"token_id={uuid.UUID(int=draw.random.getrandbits(128))} auth={draw.text(HEX, 16)}",
    "public keys": lambda draw: "-----BEGIN PUBLIC KEY-----\n" + draw.text(BASE64, 64) + "\n-----END PUBLIC KEY-----",
    "encoded certificate": lambda draw: "client-certificate-data: " + _encoded("CERTIFICATE", draw),
    "ssh public key": lambda draw: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5" + draw.text(BASE64, 48) + " me@host",
    "image": lambda draw: "data:image/png;base64,iVBORw0KGgo" + draw.text(BASE64, 400),
    "integrity": lambda draw: f'"integrity": "sha512-{draw.text(BASE64, 86)}=="',
    "code": lambda draw: (
        f"def {draw.random.choice(WORDS)}(user, password={draw.random.choice(PLACEHOLDERS)}):\n"
        f"    return connect(host=host, user=user, password=self.{draw.random.choice(WORDS)}, port=1)"
    ),
    "minified": lambda draw: (
        "var a=function(e,t){return e.password=t.pwd,n=e?password=r.value:o;pwd=c(t,9)},"
        + ";".join(f"{draw.text('abcdef', 1)}={draw.text('nopq', 1)}.{draw.text(ALNUM, 2)}" for _ in range(30))
    ),
    "ternary": lambda draw: f"n=e?password=r.v{draw.text('123', 2)}:o;x=y&&pwd=={draw.text(HEX, 3)}",
    "properties": lambda draw: f"user=e.id;pwd=e.p{draw.text('0123456789', 2)};host=z?user=1&password=this.pw1&x=",
    "shell": lambda draw: f"USER=ci PWD=/home/ci/{draw.text(HEX, 8)} OLDPWD=/tmp; pwd=$(pwd); cd $PWD",
    "connection with a placeholder": lambda draw: (
        f"Server=db;Database=app;User Id=app;Password={draw.random.choice(PLACEHOLDERS)};Encrypt=True"
    ),
    "DSN with a placeholder": lambda draw: f"host=db user=app password={draw.random.choice(PLACEHOLDERS)} dbname=app",
    "query with a placeholder": lambda draw: f"jdbc:mysql://db/app?user=a&password={draw.random.choice(PLACEHOLDERS)}",
    "header with a placeholder": lambda draw: (
        f"Authorization: {draw.random.choice(['Bearer', 'Basic'])} {draw.random.choice(PLACEHOLDERS)}"
    ),
    "prefixes": lambda draw: f"tokens begin with hvs., dop_v1_, dapi or ghp_{'x' * 36}; {draw.words(9)}",
    "emoji": lambda draw: f"\U0001f468\u200d\U0001f4bb {draw.words(6)} co\u00adoperate \u200b{draw.text(HEX, 12)}",
}


def positives() -> Iterator[Sample]:
    """Yield every form of a secret, in different surrounding texts."""
    draw = Draw(SEED)
    known = [(kind, text) for kind, texts in CREDENTIALS.items() for text in texts]
    for number, (kind, text) in enumerate(known * 2):
        yield Sample(kind, SURROUNDINGS[(number * 3 + number // len(known)) % len(SURROUNDINGS)].format(text))
    for kind, form in FORMS.items():
        for _ in range(2 * DRAWS):
            yield Sample(kind, draw.random.choice(SURROUNDINGS).format(form(draw)))


def negatives() -> Iterator[Sample]:
    """Yield every kind of text without a secret."""
    draw = Draw(SEED)
    for kind, form in HARMLESS.items():
        for _ in range(NEGATIVES_EACH):
            yield Sample(kind, draw.random.choice(SURROUNDINGS).format(form(draw)))


def _encoded(label: str, draw: Draw) -> str:
    lines = "\n".join(draw.text(BASE64, 64) for _ in range(8))
    return base64.b64encode(f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n".encode()).decode()


def _cut(token: str, draw: Draw) -> str:
    position = draw.random.randrange(3, len(token) - 1)
    return token[:position] + draw.random.choice(INVISIBLE) + token[position:]
