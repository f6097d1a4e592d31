"""Certificates of the tests' own making."""

import subprocess
from pathlib import Path

_WAIT_S = 120.0


def a_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Make a certificate that names one host, signed by itself.

    Args:
        folder: where to put it.
        name: `DNS:login.example`, `IP:127.0.0.1`.

    Returns:
        It, and its key.
    """
    folder.mkdir(exist_ok=True)
    cert, key = folder / "cert.pem", folder / "key.pem"
    asked = f"req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {cert} -days 2 -subj /CN={name.partition(':')[2]}"
    words = ["openssl", *asked.split(), "-addext", f"subjectAltName={name}"]
    made = subprocess.run(words, check=False, capture_output=True, timeout=_WAIT_S)
    assert made.returncode == 0, made.stderr[-200:]
    return cert, key
