"""Certificates for servers under test: an authority of its own and one leaf for localhost, made by the openssl program.

Must not know of servers. Everything lies in the folder given, and is thrown away with it.
"""

import collections
import pathlib
import shutil
import subprocess

# Paths of PEM files: the authority's certificate, the leaf's and its key.
Made = collections.namedtuple("Made", "ca cert key")
KINDS = {"P-256": ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"], "RSA-2048": ["rsa:2048"]}
DAYS = 90  # fewer than 60 are a finding of testssl.sh
LEAF = """\
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth
subjectAltName=DNS:localhost,IP:127.0.0.1
"""


class CertificateError(Exception):
    """openssl is not there or was not content; the text says which."""


def make(folder, kind="P-256", name="leaf"):
    """Writes ca.pem and, signed by it, NAME.pem with NAME.key; an authority that is there already is kept."""
    folder = pathlib.Path(folder)
    if not shutil.which("openssl"):
        raise CertificateError("no openssl here: on Debian, apt-get install openssl")
    ca, ca_key, extensions = folder / "ca.pem", folder / "ca.key", folder / "leaf.extensions"
    made = Made(ca, folder / f"{name}.pem", folder / f"{name}.key")
    request = folder / f"{name}.csr"
    if not ca.exists():
        _openssl("req", "-x509", "-newkey", *KINDS["P-256"], "-nodes", "-keyout", ca_key, "-out", ca, "-days", DAYS,
                 "-subj", "/CN=ringmain bench authority", "-addext", "keyUsage=critical,keyCertSign")
    extensions.write_text(LEAF)
    _openssl("req", "-newkey", *KINDS[kind], "-nodes", "-keyout", made.key, "-out", request, "-subj", "/CN=localhost")
    _openssl("x509", "-req", "-in", request, "-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-days", DAYS,
             "-extfile", extensions, "-out", made.cert)
    return made


def _openssl(*words):
    done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise CertificateError(f"openssl {words[0]}: {done.stderr.strip()[-300:]}")
