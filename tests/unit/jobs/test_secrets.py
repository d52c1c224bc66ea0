"""Which files are taken for secrets and not sent with the code: by name, and by what they contain."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tfctl.errors import BadFile
from tfctl.jobs import code
from tfctl.jobs.secrets import has_secret, has_secret_name

SECRET_NAMES = [
    ".env", ".ENV", ".env.production", ".env.local", ".env_prod", "prod.env", "Prod.Env", "config/prod.env",
    ".envrc", "env.prod", "id_rsa", "keys/ID_ED25519", "id_rsa.old", "id_ecdsa_sk", "store.p12", "store.PFX",
    "putty.ppk", "AuthKey.p8", "release.keystore", "passwords.kdbx", ".netrc", "_netrc", ".git-credentials",
    ".npmrc", ".pypirc", ".pgpass", ".my.cnf", ".dockercfg", ".dockerconfigjson", ".docker/config.json",
    ".kube/config", ".aws/config", "credentials", "Credentials.json", "application_default_credentials.json",
    "gcp-credentials.json", "credentials.db", "credential.yaml", "secrets.yml", "my_secret.txt",
    ".streamlit/secrets.toml", "client_secret_12.apps.json", "kaggle.json", ".azure/azureProfile.json",
    "msal_token_cache.json", "accessTokens.json", ".ssh/config", ".gnupg/private-keys-v1.d/A1.key",
    ".cache/huggingface/token", ".vault-token", ".htpasswd", ".boto",
]  # fmt: skip
OTHER_NAMES = [
    "train.py", ".env.example", ".env.sample", "example.env", "prod.env.dist", ".env.template", "environment.yml",
    "env.py", "env.yaml", "id_rsa.pub", ".ssh/id_rsa.pub", "credentials.py", "secrets.py", "secretary.txt",
    "credentials.md", "model.h5", "tokens.txt", "vocabulary/token", "tokenizer.json", "ca.pem", "netrc.md",
    "Dockerfile", "environments",
]  # fmt: skip


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_file_with_the_name_of_a_secret_is_one(name: str) -> None:
    assert has_secret_name(name)


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_a_file_with_another_name_is_none(name: str) -> None:
    assert not has_secret_name(name)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Real private keys, as the usual programs write them."""
    folder = tmp_path_factory.mktemp("keys")

    def made(name: str, *options: str) -> str:
        words = ["ssh-keygen", "-q", "-C", "", "-f", str(folder / name), *options]
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL, capture_output=True)
        return (folder / name).read_text()

    return {
        "openssh": made("openssh", "-t", "ed25519", "-N", ""),
        "openssh with a passphrase": made("locked", "-t", "ed25519", "-N", "passphrase"),
        "pkcs1": made("pkcs1", "-t", "rsa", "-b", "2048", "-m", "PEM", "-N", ""),
        "pkcs1 with a passphrase": made("pkcs1-locked", "-t", "rsa", "-b", "2048", "-m", "PEM", "-N", "passphrase"),
        "pkcs8": made("pkcs8", "-t", "rsa", "-b", "2048", "-m", "PKCS8", "-N", ""),
        "ec": made("ec", "-t", "ecdsa", "-m", "PEM", "-N", ""),
    }


KINDS = ["openssh", "openssh with a passphrase", "pkcs1", "pkcs1 with a passphrase", "pkcs8", "ec"]


def indented(key: str, before: str = "    ") -> str:
    return "".join(f"{before}{line}\n" for line in key.splitlines())


def json_of(key: str) -> bytes:
    account = {"type": "service_account", "project_id": "p", "private_key": key, "client_email": "a@p.example"}
    return json.dumps(account, indent=2).encode()


SURROUNDINGS: dict[str, Callable[[str], bytes]] = {
    "nothing": lambda key: key.encode(),
    "a service account": json_of,
    "JSON in JSON": lambda key: json.dumps({"account": json_of(key).decode()}).encode(),
    "JSON with escaped slashes": lambda key: json_of(key).replace(b"/", b"\\/"),
    "JSON in one line": lambda key: json.dumps({"a": 1, "key": key}).encode(),
    "YAML": lambda key: f"ssh_key: |\n{indented(key)}".encode(),
    "YAML in one line": lambda key: f"key: {json.dumps(key)}\n".encode(),
    "a comment": lambda key: indented(key, "# ").encode(),
    "XML": lambda key: f"<key>{key}</key>".encode(),
    "a variable": lambda key: b'KEY="' + key.encode().replace(b"\n", b"\\n") + b'"\n',
    "source code": lambda key: f'KEY = """{key}"""\n'.encode(),
    "lines of source code": lambda key: "".join(f"    {line!r}\n" for line in key.splitlines()).encode(),
    "a byte order mark": lambda key: b"\xef\xbb\xbf" + key.encode(),
    "UTF-16": lambda key: key.encode("utf-16"),
    "UTF-16 in JSON": lambda key: json_of(key).decode().encode("utf-16-be"),
    "Windows": lambda key: key.replace("\n", "\r\n").encode(),
    "old Macs": lambda key: key.replace("\n", "\r").encode(),
    "certificates": lambda key: b"# certificates\n" * 10_000 + key.encode(),
    "bytes": lambda key: bytes(range(256)) * 20_000 + key.encode() + b"\0" * 1000,
    "a kubeconfig": lambda key: b"users:\n- user:\n    client-key-data: " + base64.b64encode(key.encode()) + b"\n",
    "base64 of JSON": lambda key: b"KEY=" + base64.b64encode(json_of(key)),
    "base64 of more": lambda key: base64.b64encode(b"x" + json_of(key)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_a_private_key_is_found_whatever_surrounds_it(
    surroundings: str, kind: str, keys: dict[str, str], tmp_path: Path
) -> None:
    for name in ("notes.py", "data.bin"):  # no files of settings
        (tmp_path / name).write_bytes(SURROUNDINGS[surroundings](keys[kind]))
        assert has_secret(tmp_path / name)


@pytest.mark.parametrize("more", range(0, 78, 3))
def test_a_private_key_is_found_in_base64_wherever_its_lines_end(
    more: int, keys: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "data").write_bytes(base64.encodebytes(b"x" * more + json_of(keys["pkcs8"])))
    assert has_secret(tmp_path / "data")


@pytest.mark.parametrize("place", range(-800, 801, 50))
def test_a_private_key_is_found_between_two_pieces_of_a_file(place: int, keys: dict[str, str], tmp_path: Path) -> None:
    for form in (json_of(keys["pkcs8"]), keys["openssh"].encode(), json_of(keys["pkcs8"]).decode().encode("utf-16-le")):
        (tmp_path / "data").write_bytes(b"x" * (2**20 + place) + b"\n\n" + form)
        assert has_secret(tmp_path / "data")


SETTINGS = {
    "aws": "[default]\naws_access_key_id = AKIA\naws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCY\n",
    "sts.json": '{"Credentials": {"SecretAccessKey": "wJalrXUtnFEMI/K7MDENG/bPxRfiCY", "SessionToken": "x"}}',
    "adc.json": '{"client_id": "1", "refresh_token": "1//0abcdefghijklmnopqrst", "type": "authorized_user"}',
    "sp.json": '{"clientId": "1", "clientSecret": "abc8Q~defghijklmnopqrstuvwx"}',
    "storage.ini": "connection = AccountName=a;AccountKey=abcdefghijklmnopqrstuvwxyz0123456789+/==;EndpointSuffix=x",
    "npm.conf": "//registry.example/:_authToken=abcdefghijklmnop1234",
    "kube.yaml": "users:\n- user:\n    token: eyJhbGciOiJSUzI1NiIsImtpZCI6Ij\n",
    "hf_token.txt": "hf_abcdefghijklmnopqrstuvwxyz01234567\n",
    "token": "github_pat_11ABCDEFG0abcdefghijkl",
    "mine": "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\n",
    "age.txt": "# created: 2026\nAGE-SECRET-KEY-1QQQQQQQQQQQQQQQQQQQQQQQ\n",
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_settings_with_a_secret_of_a_cloud_are_a_secret(name: str, encoding: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(SETTINGS[name].encode(encoding))
    assert has_secret(tmp_path / name)
    assert not has_secret_name(name)


HARMLESS = {
    "find.py": 'if "-----BEGIN RSA PRIVATE KEY-----" in text or text.startswith("-----BEGIN PRIVATE KEY-----"):\n'
    '    raise ValueError("do not commit tensorflow/python/distribute/cluster_resolver/gce_cluster_resolver")\n',
    "docs.md": "A key begins with `-----BEGIN OPENSSH PRIVATE KEY-----`, and ends with `-----END …`.\n",
    "aws.py": 'key = os.environ["AWS_SECRET_ACCESS_KEY"]\nclient_secret = settings.oauth.google_client_secret\n',
    "job.yaml": "env: {AWS_SECRET_ACCESS_KEY: ${AWS_SECRET_ACCESS_KEY}}\n",
    "ca.pem": "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBaMQswCQYDVQQGEwJJ\n",
    "id.pub": "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA\n",
    "kube.yaml": "clusters:\n- cluster:\n    certificate-authority-data: "
    + base64.b64encode(b"-----BEGIN CERTIFICATE-----\nMIIDdzCCAl").decode(),
    "config.yaml": "learning_rate: 0.1\ntokens: 1000\nprivate_key: null\n",
    "empty": "",
}


@pytest.mark.parametrize("name", HARMLESS)
def test_a_file_that_only_mentions_keys_is_no_secret(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(HARMLESS[name])
    assert not has_secret(tmp_path / name)


def test_secrets_are_left_out_of_the_code_and_named_and_include_sends_them(
    keys: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "gcp-service-account.json").write_bytes(json_of(keys["pkcs8"]))
    (tmp_path / "chain.pem").write_bytes(b"# certificates\n" * 10_000 + keys["ec"].encode())
    secrets = ("chain.pem", "gcp-service-account.json", "prod.env")
    for name in ("prod.env", "train.py"):
        (tmp_path / name).write_text("x")
    listing = code.select(tmp_path)
    assert (listing.names, listing.left_out) == (("train.py",), secrets)
    assert "chain.pem, gcp-service-account.json, prod.env" in listing.remarks[0]
    assert code.select(tmp_path, secrets).names == (*secrets, "train.py")


def test_files_that_are_too_large_to_be_sent_are_not_searched(tmp_path: Path) -> None:
    """Data that somebody has forgotten to exclude must not delay the error."""
    (tmp_path / "data").write_bytes(b"x" * (2**20 + 1))
    (tmp_path / "tls.pem").write_text("-----BEGIN PRIVATE KEY-----\nx\n")
    assert code.select(tmp_path, limit_mb=1).left_out == ()
    with pytest.raises(BadFile, match="larger than 1 MB"):
        code.pack(tmp_path, limit_mb=1)
    assert code.select(tmp_path, limit_mb=2).left_out == ("tls.pem",)
