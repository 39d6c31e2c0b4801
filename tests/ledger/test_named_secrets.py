"""The scanner finds secrets that only a name beside them reveals, as people paste them; harmless words pass."""

from __future__ import annotations

import base64
import json
import string
from pathlib import Path
from typing import Final

import pytest
from credentials import ALNUM, BASE64, HEX, URLSAFE, drawn, jwt, made_up_uuid, pem, user_and_password
from false_alarms import count, main, texts_per_alarm_min

from deedbook.ledger.errors import Refused
from deedbook.ledger.format.codec import encode_canonical
from deedbook.ledger.secrets import scanner as secrets
from deedbook.ledger.secrets.named import COOKIE, LOGIN, NAMED, named_max

RANDOM: Final = "Zx9" + drawn("random", ALNUM, 29)
CHOSEN: Final = "hunter2" * 2
UUID: Final = made_up_uuid("named")
GITHUB: Final = "ghp_" + drawn("named", ALNUM, 36)
REFUSED_MIN: Final = 48


def wide(text: str) -> str:
    """Return a text in full-width letters."""
    return "".join(chr(ord(letter) + 0xFEE0) if "!" <= letter <= "~" else letter for letter in text)


# Ways in which people paste secrets. The scanner once missed many of them.
FORMS: Final = {
    "private key": pem("RSA PRIVATE KEY"),
    "private key of OpenSSH": pem("OPENSSH PRIVATE KEY"),
    "AWS id": "AKIA" + drawn("aws id", string.ascii_uppercase + "234567", 16),
    "AWS secret": "aws_secret_access_key = " + drawn("aws", BASE64, 40),
    "GitHub": GITHUB,
    "GitHub, fine-grained": f"github_pat_{drawn('p1', ALNUM, 22)}_{drawn('p2', ALNUM, 59)}",
    "GitLab": "glpat-" + drawn("lab", URLSAFE, 20),
    "Slack": f"xoxb-{drawn('s1', string.digits, 12)}-{drawn('s2', ALNUM, 24)}",
    "Slack webhook": "https://hooks.slack.com/services/T0A1B2C3D/B0A1B2C3D/" + drawn("s3", ALNUM, 24),
    "Stripe": "sk_live_" + drawn("stripe", ALNUM, 24),
    "OpenAI": "sk-proj-" + drawn("openai", URLSAFE, 60),
    "Anthropic": "sk-ant-api03-" + drawn("anthropic", URLSAFE, 93),
    "Google": "AIza" + drawn("google", URLSAFE, 35),
    "npm": "npm_" + drawn("npm", ALNUM, 36),
    "PyPI": "pypi-AgEIcHlwaS5vcmc" + drawn("pypi", URLSAFE, 60),
    "Hugging Face": "hf_" + drawn("hf", ALNUM, 34),
    "SendGrid": f"SG.{drawn('g1', URLSAFE, 22)}.{drawn('g2', URLSAFE, 43)}",
    "Telegram": "1234567890:AA" + drawn("telegram", URLSAFE, 33),
    "JWT": jwt(),
    "bearer": "Authorization: Bearer " + drawn("bearer", URLSAFE, 40),
    "basic": f"Authorization: Basic {user_and_password('b')}",
    "URL": f"postgres://app:{RANDOM}@db/app",
    "connection string": f"Server=db;User ID=sa;Password={RANDOM};",
    "Azure": f"AccountName=x;AccountKey={drawn('azure', BASE64, 86)}==",
    "DigitalOcean": "dop_v1_" + drawn("do", HEX, 64),
    "Databricks": "dapi" + drawn("db", HEX, 32),
    "Vault": "hvs." + drawn("vault", URLSAFE, 95),
    "NATS seed": "SU" + drawn("nats", string.ascii_uppercase + "234567", 56),
    "age": "AGE-SECRET-KEY-1" + drawn("age", "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58),
    "kubeconfig": "client-key-data: " + base64.b64encode(pem("EC PRIVATE KEY").encode()).decode(),
    "our HTTP token": "deedbook_" + drawn("own", URLSAFE, 43),
    "npmrc": f"//registry.example/:_authToken={UUID}",
    "npmrc, password": f"//registry.example/:_password={base64.b64encode(RANDOM.encode()).decode()}",
    "MySQL": f"MYSQL_PWD={CHOSEN} mysqldump app",
    "environment": f"DB_PASSWORD={CHOSEN}",
    "password": "password=" + drawn("mixed case", string.ascii_letters, 16),
    "API key": f"API_KEY={RANDOM}",
    "option": f"deploy --password {CHOSEN} --now",
    "option, token": f"tool --auth-token={RANDOM}",
    "curl": f"curl -u deploy:{CHOSEN} https://example.org",
    "Shopify": "shpat_" + drawn("shopify", HEX, 32),
    "Linear": "lin_api_" + drawn("linear", ALNUM, 40),
    "Doppler": "dp.pt." + drawn("doppler", ALNUM, 43),
    "Atlassian": "ATATT3" + drawn("atlassian", URLSAFE, 186),
    "Mailgun": "key-" + drawn("mailgun", HEX, 32),
    "Square": "EAAAl" + drawn("square", URLSAFE, 59),
    "Heroku": f"HEROKU_API_KEY={UUID}",
    "cookie": f"Cookie: theme=dark; sessionid={drawn('cookie', string.ascii_lowercase + string.digits, 32)}",
    "cookie, set": f"Set-Cookie: sid={RANDOM}; Path=/; HttpOnly",
    "header": f"X-Api-Key: {RANDOM}",
    "full-width letters": wide(GITHUB),
    "full-width name": wide(f"password={CHOSEN}"),
}
NAMED_FORMS: Final = {
    "YAML": f"db:\n  password: {CHOSEN}\n",
    "JSON": json.dumps({"client_secret": RANDOM}),
    "JSON in a string": json.dumps(json.dumps({"client_secret": RANDOM})),
    "Python": f'API_TOKEN: str = "{RANDOM}"',
    "Python, item": f'os.environ["ADMIN_PASSWORD"] = "{CHOSEN}"',
    "Go": f'secretKey := "{RANDOM}"',
    "Ruby": f":api_key => '{RANDOM}'",
    "keyword": f'connect(user="app", password="{CHOSEN}")',
    "query": f"https://api.example/v1?access_token={RANDOM}&page=2",
    "hex": "SECRET_KEY=" + drawn("hex", HEX, 64),
    "quoted option": f"--set 'adminPassword={CHOSEN}'",
    "Chinese": f"数据库密码：{CHOSEN}，请保密",
    "authorization, no scheme": f"Authorization: {RANDOM}",
    "authorization, other scheme": f"Authorization: token {RANDOM}",
    "table": f"**Password**: `{CHOSEN}`",
    "table, sign within": f"**Password:** `{CHOSEN}`",
    "XML": f"<server><password>{CHOSEN}</password></server>",
    "XML, name of two words": f"<apiKey>{RANDOM}</apiKey>",
    "netrc": f"machine api.example login deploy password {CHOSEN}",
    "netrc, lines": f"machine api.example\n  login deploy\n  password {CHOSEN}\n",
    "sshpass": f"sshpass -p {CHOSEN} ssh root@db.example",
    "docker": f"docker login -u bob -p '{RANDOM}' registry.example",
    "Redis": f"redis-cli -h db -p 6379 -a {RANDOM} ping",
    "MySQL, option": f"mysql -u root -p{CHOSEN} app",
    "option first": f"--password {CHOSEN}",
    "Ansible": f"ansible_become_pass: {CHOSEN}",
    "base64 that begins with a slash": "CLIENT_SECRET=/" + drawn("slash", BASE64, 43),
    "pgpass": f"db.example:5432:app:deploy:{CHOSEN}\n",
    "pgpass, second line": f"# passwords\n*:*:*:deploy:{CHOSEN}\n",
    "name with dots": f'set("spring.datasource.password", "{CHOSEN}")',
    "Turkish, capital": f"Şifre: {CHOSEN}",
    "PHP": f"define('DB_PASSWORD', '{CHOSEN}');",
    "default of a call": f'os.getenv("API_TOKEN", "{RANDOM}")',
    "XML, attributes": f'<add key="DbPassword" value="{CHOSEN}" />',
    "XML, one attribute": f'<user name="app" password="{CHOSEN}"/>',
    "cells": f"| name | value |\n|---|---|\n| `DB_PASSWORD` | `{CHOSEN}` |",
    "openssl": f"openssl rsa -in a.pem -passin pass:{CHOSEN} -out b.pem",
    "Spanish": f"contraseña: {CHOSEN}",
    "French": f"Mot de passe : {CHOSEN}",
    "German": f"Kennwort = {CHOSEN}",
    "Portuguese": f"senha={CHOSEN}",
    "Dutch": f"wachtwoord: {CHOSEN}",
    "Polish": f"hasło: {CHOSEN}",
    "Swedish": f"lösenord: {CHOSEN}",
    "Turkish": f"şifre: {CHOSEN}",
    "Russian": f"Пароль: {CHOSEN}",
    "Japanese": f"パスワード：{CHOSEN}",
    "Korean": f"비밀번호: {CHOSEN}",
    "after words": f"token: see below\nsecret: word\napi_key={RANDOM}",
}
HARMLESS: Final = {
    "placeholders": "--token <token> --password $TOKEN API_KEY=*** DB_PASSWORD=changeme password=example key=your-1",
    "braces": "token: ${{ secrets.NPM_TOKEN_2 }}, password={password1}, secret = f'{settings.secret2}'",
    "masks": "password=xxxxxxxx12 token=************ API_KEY=XXXXXXXXXXXXXXXX",
    "counts": "token: 12000, max_token=4096, tokens=123456789012345, output token: 1,234,567",
    "code": "token = secrets.token_urlsafe(32)\npassword = self.read_password2(1)\nsecret = config.s3.secret1",
    "types": "token: Token | None = None, password: str, secret_key: bytes32",
    "paths": "--token-file /run/secrets/api2/token credentials: ~/.config/gcloud/credentials2.json",
    "names": "password: argon2id-v19, secret: app-db-2024, token: claude-opus-4-20250514, secret: k8s/app1",
    "dates and versions": "token: 2026-11-29T07:30:00Z, secret: v1.2.3-rc1, api_key: 3.11.2",
    "references": f"token: blake3:{drawn('ref', HEX, 64)} secret: sha256-{drawn('integrity', BASE64, 43)}=",
    "digest beside a bare word": f"token: {drawn('digest', HEX, 40)} secret {UUID} password: {drawn('d', HEX, 64)}",
    "other tokens": f"next_token={RANDOM} csrf_token: {RANDOM} pageToken={RANDOM} idempotency-token: {RANDOM}",
    "prose": "The token: it expires after 3 days. Password: 8 characters, 1digit. A secret is a secret.",
    "question": "password=what/ever? token: maybe-the-2nd-one",
    "cookies": "Cookie: theme=dark; lang=en-GB; consent=yes-2024; _ga=GA1.2.1234567890.1600000000",
    "user of a command": "curl -u deploy:$PASSWORD https://example.org; docker run -u 1000:1000 app; -u me:password",
    "docker": "docker run --user 1000:1000 --token-ttl 3600s",
    "elements": "<password>changeme</password> <token>$TOKEN</token> Map<String, Secret>Builder <token>@host1:80",
    "options of commands": "sshpass -p $PW ssh -p 2222 h1; mysql -u root -p app_2024; redis-cli -p 16379 ping",
    "paths of a vault": "auth_token: vault:secret/data/app1#token2",
    "passes": "tests pass: 1,204 of 1,204 in run_pass=2nd; proxy_pass http://app1:8080/v2",
    "netrc without a password": "machine api.example login deploy password <password>",
    "messages": 'ValidationError("password", "too-short(8)"); Field("password", "min_length=8")',
    "labels": '<button name="forgot_password" value="Reset-2024"> | step_token | Qwen2.5-Coder-32B |',
    "image and tag": "docker-compose.yml:14:image:postgres:16.3-alpine3.20\nchr1:12345:A:G:rs12345abc",
    "places in files": "src/a.py:12:34:error:undefined1\napp.py:120:warning:unused2:x1 a:10:b:c:d-e",
    "cells of words": "| token | the 2nd of 3 | password | text1 | secret | yes |",
    "names in calls": 'get("token", "refresh-token-2"), ("password", "argon2id"), add("api_key", key2)',
    "openssl, file": "openssl rsa -passin file:/run/pw1 -passout pass:$PW1",
    "other attributes": '<input name="password" value="" type="text1"/> <a key="secret" value="$DB_SECRET_1"/>',
    "authorization in prose": "Authorization: only for members of team-42",
}


def is_refused(text: str) -> bool:
    """Return whether the gate refuses an event with this text."""
    return bool(secrets.scan_bodies([encode_canonical({"data": {"finding": text}})]))


def test_forms_that_an_audit_tried_are_refused() -> None:
    passed = [name for name, text in FORMS.items() if not is_refused(f"see: {text} (do not share)")]
    print(f"\n{len(FORMS) - len(passed)} of {len(FORMS)} refused; passed: {passed}")
    assert len(FORMS) == 52
    assert len(FORMS) - len(passed) >= REFUSED_MIN


@pytest.mark.parametrize("name", FORMS | NAMED_FORMS)
def test_form_is_refused_in_an_event_and_in_a_blob(name: str) -> None:
    text = (FORMS | NAMED_FORMS)[name]
    assert is_refused(text)
    assert is_refused(f"a\n{text}\nb")
    with pytest.raises(Refused):
        secrets.check_text(text.encode())


@pytest.mark.parametrize("text", HARMLESS.values(), ids=HARMLESS.keys())
def test_names_words_and_placeholders_pass(text: str) -> None:
    assert secrets.scan({"finding": text}) is None


def test_kind_says_where_the_secret_is() -> None:
    assert secrets.scan(f"X-Api-Key: {RANDOM}") == secrets.Secret("$", NAMED)
    assert secrets.scan(f"Cookie: a=b; sid={RANDOM}") == secrets.Secret("$", COOKIE)
    assert secrets.scan(f"curl -u me:{CHOSEN} x") == secrets.Secret("$", LOGIN)


def test_issuer_is_named_before_the_name_beside_it() -> None:
    assert secrets.scan(f"token={GITHUB}") == secrets.Secret("$", "GitHub token")


def test_field_of_an_event_counts_as_the_name() -> None:
    assert secrets.scan({"db_password": CHOSEN}) == secrets.Secret("$.db_password", NAMED)
    assert secrets.scan({"title": CHOSEN}) is None


def test_mathematical_and_circled_letters_hide_nothing() -> None:
    bold = "".join(chr(ord(letter) - ord("a") + 0x1D41A) if letter.islower() else letter for letter in GITHUB)
    assert is_refused(bold)
    assert not is_refused("全角文字ＡＢＣ１２３：令牌是什么？")


def test_escaped_full_width_letters_are_found_in_json_of_others() -> None:
    body = json.dumps({"finding": wide(GITHUB)}).encode()
    assert body.isascii()
    assert secrets.scan_bodies([body]).keys() == {0}


def test_text_with_too_many_values_is_refused() -> None:
    assert secrets.scan("token: abcdef\n" * named_max) is None
    assert secrets.scan("token: abcdef\n" * (named_max + 1)) is not None


def test_hardly_any_text_of_this_project_is_refused() -> None:
    root = Path(__file__).parents[2]
    source = count(root / name for name in ("ledger", "projections", "consumers", "proto", "docs", "deploy"))
    assert source.texts > 9_000
    assert source.alarms == []
    tests = count([root / "tests"])
    by_name = [alarm for alarm in tests.alarms if alarm.kind in (NAMED, COOKIE, LOGIN)]
    print(f"\n{len(by_name)} of {tests.texts} texts of the tests")
    assert len(by_name) * texts_per_alarm_min <= tests.texts, by_name


def test_a_real_secret_is_counted_and_not_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.md").write_text(f"# Notes\n\nfine\n\nAPI_KEY={RANDOM}\n")
    (tmp_path / "lines.jsonl").write_text('{"a": 1}\n{"b": 2}\n')
    (tmp_path / "image.png").write_bytes(b"\0\1")
    assert main([str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert f"{tmp_path}/notes.md:5: {NAMED}\n1 of 5 texts in 2 files were refused" in said
    assert RANDOM not in said
