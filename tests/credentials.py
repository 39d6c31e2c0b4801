"""Made-up credentials in their issuers' formats. They are built at run time, so that no file of ours contains one.

Every random part is drawn from a digest of a name: it is the same in each run, and is no real credential.
"""

from __future__ import annotations

import base64
import json
import string
import uuid
from typing import Final

from blake3 import blake3

ALNUM: Final = string.ascii_letters + string.digits
URLSAFE: Final = ALNUM + "-_"
BASE64: Final = ALNUM + "+/"
HEX: Final = "0123456789abcdef"
BASE32: Final = string.ascii_uppercase + "234567"
BECH32: Final = "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"
LINES: Final = 3


def drawn(name: str, alphabet: str, length: int) -> str:
    """Return ``length`` characters of an alphabet, the same for the same name."""
    return "".join(alphabet[byte % len(alphabet)] for byte in blake3(name.encode()).digest(length=length))


def pem(label: str, headers: str = "") -> str:
    """Return a private key in RFC 7468 or RFC 1421 form."""
    lines = [drawn(f"{label}{line}", BASE64, 64) for line in range(LINES)]
    return "\n".join(
        [f"-----BEGIN {label}-----", *([headers, ""] if headers else []), *lines, f"-----END {label}-----"]
    )


def jwt(header: str = '{"alg":"HS256","typ":"JWT"}') -> str:
    """Return a JSON Web Token with this header."""
    parts = (header, '{"sub":"agent-7"}')
    encoded = [base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts]
    return ".".join([*encoded, drawn("jwt", URLSAFE, 43)])


GITHUB: Final = "ghp_" + drawn("ghp", ALNUM, 36)
PASSWORD: Final = drawn("password", ALNUM, 12)
DATABASE: Final = f"postgres://app:{PASSWORD}@db.example/app"


def user_and_password(name: str = "registry") -> str:
    """Return a user and password as RFC 7617 encodes them."""
    return base64.b64encode(f"deploy:{drawn(name, ALNUM, 16)}".encode()).decode()


def made_up_uuid(name: str) -> str:
    """Return a UUID, the same for the same name."""
    return str(uuid.UUID(drawn(name, HEX, 32)))


# Texts that contain a secret, by the kind of the secret.
CREDENTIALS: Final[dict[str, tuple[str, ...]]] = {
    "private key": (
        *(pem(f"{label}PRIVATE KEY") for label in ("", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED ")),
        pem("RSA PRIVATE KEY", "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0123456789ABCDEF"),
        pem("PGP PRIVATE KEY BLOCK", "Version: GnuPG v2"),
        pem("PRIVATE KEY").replace("\n", "\\n"),
        pem("PRIVATE KEY").replace("\n", "\r\n    "),
        pem("PRIVATE KEY").replace("\n", '\\n" +\n  "'),
    ),
    "signed-note key": ("PRIVATE+KEY+log.example+0a1b2c3d+" + drawn("note", BASE64, 44),),
    "AWS access key id": ("AKIA" + drawn("akia", BASE32, 16), "export AWS_KEY=ASIA" + drawn("asia", BASE32, 16)),
    "AWS secret access key": (
        "aws_secret_access_key = " + drawn("aws", BASE64, 40),
        '{"SecretAccessKey": "' + drawn("aws", BASE64, 40) + '"}',
        "AWS_SECRET_ACCESS_KEY=" + drawn("aws", BASE64, 40),
    ),
    "GitHub token": (
        *(prefix + drawn(prefix, ALNUM, 36) for prefix in ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
        "ghs_12345_" + jwt(),
        f"github_pat_{drawn('pat', ALNUM, 22)}_{drawn('tap', ALNUM, 59)}",
        f"https://{GITHUB}@github.com/o/r.git",
        f"令牌{GITHUB}已经泄露",
        f'"run\\n{GITHUB}\\n"',
    ),
    "GitLab token": ("glpat-" + drawn("glpat", URLSAFE, 20), "gldt-" + drawn("gldt", URLSAFE, 20)),
    "Slack token": (
        f"xoxb-{drawn('b1', string.digits, 12)}-{drawn('b2', string.digits, 13)}-{drawn('xoxb', ALNUM, 24)}",
        f"xapp-1-A{drawn('a1', string.digits, 10)}-{drawn('a2', string.digits, 13)}-{drawn('xapp', HEX, 64)}",
    ),
    "Slack webhook": ("https://hooks.slack.com/services/T0A1B2C3D/B0A1B2C3D/" + drawn("hook", ALNUM, 24),),
    "Discord webhook": ("https://discord.com/api/webhooks/123456789012345678/" + drawn("discord", URLSAFE, 68),),
    "Stripe key": ("sk_live_" + drawn("sk", ALNUM, 24), "rk_live_" + drawn("rk", ALNUM, 24)),
    "OpenAI key": (
        "sk-proj-" + drawn("proj", URLSAFE, 120),
        f"sk-{drawn('sk1', ALNUM, 20)}T3BlbkFJ{drawn('sk2', ALNUM, 20)}",
    ),
    "Anthropic key": ("sk-ant-api03-" + drawn("ant", URLSAFE, 93) + "AA",),
    "Google API key": ("AIza" + drawn("aiza", URLSAFE, 35),),
    "Google OAuth client secret": ("GOCSPX-" + drawn("gocspx", URLSAFE, 28),),
    "npm token": ("//registry.npmjs.org/:_authToken=npm_" + drawn("npm", ALNUM, 36),),
    "PyPI token": ("pypi-AgEIcHlwaS5vcmc" + drawn("pypi", URLSAFE, 120),),
    "Hugging Face token": ("hf_" + drawn("hf", string.ascii_letters, 34),),
    "SendGrid key": (f"SG.{drawn('sg1', URLSAFE, 22)}.{drawn('sg2', URLSAFE, 43)}",),
    "Twilio key": (f"TWILIO_SID=SK{drawn('tw', HEX, 32)}", f"SK{drawn('tw', HEX, 32)} is for twilio"),
    "Twilio token": ("twilio_auth_token: " + drawn("twt", HEX, 32),),
    "Telegram bot token": (
        "1234567890:AA" + drawn("telegram", URLSAFE, 33),
        f"https://api.telegram.org/bot123456789:AA{drawn('telegram', URLSAFE, 33)}/getMe",
    ),
    "JSON Web Token": (jwt(), f"Authorization: Bearer {jwt()}"),
    "password in a URL": (
        DATABASE,
        f"redis://:{PASSWORD}%21@10.0.0.1:6379/0",
        f"https://x-access-token:{GITHUB}@github.com/o/r.git",
        f"nats://alice:{PASSWORD}@[::1]:4222",
        rf"https:\/\/me:{PASSWORD}@example.org",
    ),
    "Azure key": (f"AccountName=x;AccountKey={drawn('azure', BASE64, 86)}==;EndpointSuffix=core.windows.net",),
    "NATS seed": tuple(f"S{letter}" + drawn(f"nats{letter}", BASE32, 56) for letter in "UACONX"),
    "webhook secret": ("whsec_" + drawn("whsec", BASE64, 32),),
    "invitation": ("deedbook-invite:" + drawn("invitation", URLSAFE, 200),),
    "age key": ("AGE-SECRET-KEY-1" + drawn("age", BECH32, 58),),
    "Vault token": (
        *(f"hv{letter}." + drawn(f"vault{letter}", URLSAFE, 95) for letter in "sbr"),
        "hvs." + drawn("vault root", ALNUM, 24),
        "X-Vault-Token: s." + drawn("old vault", ALNUM, 24),
        "VAULT_TOKEN=s." + drawn("old vault", ALNUM, 24),
    ),
    "DigitalOcean token": tuple(f"do{letter}_v1_" + drawn(f"do{letter}", HEX, 64) for letter in "por"),
    "Databricks token": ("dapi" + drawn("dapi", HEX, 32), f"DATABRICKS_TOKEN=dapi{drawn('dapi2', HEX, 32)}-2"),
    "bearer token": (
        "Authorization: Bearer " + drawn("bearer", URLSAFE, 40),
        "curl -H 'authorization: bearer " + drawn("lower", HEX, 32) + "'",
        '{"Authorization": "Bearer ' + drawn("json", BASE64, 43) + '="}',
    ),
    "user and password in base64": (
        f"Authorization: Basic {user_and_password()}",
        f'{{"auths": {{"registry.example": {{"auth": "{user_and_password()}"}}}}}}',
        f"//registry.example/:_auth={user_and_password()}",
    ),
    "private key in base64": tuple(
        f"client-key-data: {base64.b64encode(pem(f'{label}PRIVATE KEY').encode()).decode()}"
        for label in ("", "RSA ", "EC ", "ENCRYPTED ", "OPENSSH ")
    ),
    "password parameter": (
        f"jdbc:postgresql://db.example:5432/app?user=app&password={PASSWORD}",
        f"jdbc:sqlserver://db.example:1433;databaseName=app;user=sa;password={PASSWORD};encrypt=true",
        f"jdbc:oracle:thin:app/{PASSWORD}@//db.example:1521/orcl",
        f"Server=tcp:db.example,1433;Initial Catalog=app;User ID=sa;Password={PASSWORD};Encrypt=True",
        f"Driver={{ODBC Driver 18 for SQL Server}};Server=db.example;Uid=sa;Pwd={PASSWORD};",
        f"Password={PASSWORD};Server=db.example;Database=app",
        f"host=db.example port=5432 dbname=app user=app password={PASSWORD}",
        f"password='{PASSWORD}' host=db.example",
        f"https://api.example/login?user=app&pwd={PASSWORD}",
    ),
    "Deedbook HTTP token": ("deedbook_" + drawn("http", URLSAFE, 43),),
    "Shopify token": ("shpat_" + drawn("shopify", HEX, 32), "shpss_" + drawn("shopify secret", HEX, 32)),
    "Linear key": ("lin_api_" + drawn("linear", ALNUM, 40),),
    "Doppler token": ("dp.pt." + drawn("doppler", ALNUM, 43), "dp.st.prd." + drawn("service", ALNUM, 43)),
    "Atlassian token": (f"ATATT3{drawn('atlassian', URLSAFE, 180)}={drawn('sum', HEX.upper(), 8)}",),
    "Mailgun key": (
        "key-" + drawn("mailgun", HEX, 32),
        f"{drawn('mg1', HEX, 32)}-{drawn('mg2', HEX, 8)}-{drawn('mg3', HEX, 8)}",
    ),
    "Square token": ("sq0atp-" + drawn("square", URLSAFE, 22), "EAAAl" + drawn("square 2", URLSAFE, 59)),
    "Heroku key": ("HRKU-AA" + drawn("heroku", URLSAFE, 58), f"heroku login with {made_up_uuid('heroku')}"),
    "Notion token": (f"ntn_{drawn('notion', string.digits, 11)}{drawn('notion', ALNUM, 35)}",),
    "Figma token": ("figd_" + drawn("figma", URLSAFE, 40),),
    "Grafana token": (f"glsa_{drawn('grafana', ALNUM, 32)}_{drawn('sum', HEX, 8)}",),
    "New Relic key": ("NRAK-" + drawn("relic", string.ascii_uppercase + string.digits, 27),),
    "Postman key": (f"PMAK-{drawn('postman', HEX, 24)}-{drawn('postman 2', HEX, 34)}",),
    "RubyGems key": ("rubygems_" + drawn("gems", HEX, 48),),
    "Docker token": ("dckr_pat_" + drawn("docker", URLSAFE, 27),),
    "Tailscale key": (f"tskey-auth-{drawn('ts', ALNUM, 12)}CNTRL-{drawn('ts2', ALNUM, 32)}",),
    "Groq key": ("gsk_" + drawn("groq", ALNUM, 52),),
    "OpenRouter key": ("sk-or-v1-" + drawn("router", HEX, 64),),
    "Deedbook key file": (
        json.dumps({"name": "bob", "public": drawn("pub", HEX, 64), "seed": drawn("seed", HEX, 64)}),
    ),
}
