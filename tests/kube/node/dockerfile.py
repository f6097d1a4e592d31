"""Builds an image from a Dockerfile where there is no Docker: each stage is an overlay on the root of this machine.

`unshare --mount python -m tests.kube.node.dockerfile DOCKERFILE CONTEXT NAME ARCHIVE` carries out each instruction in
its stage, RUN by chroot, and writes what the last stage changed as an OCI archive for `ctr images import`. Whatever a
FROM names, the base is this machine, whose /usr and Python the containers of the test's nodes see too
(../shared/kube/node/NOTES.md).

Rule: an instruction is carried out or refused; nothing of the machine is changed.
"""

import importlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kube.assets import SHARED
from tests.needs import TORCH_VENV

_RUN_S = 600.0
_PATH = f"{sys.base_prefix}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_OF_THE_MACHINE = ("usr", sys.base_prefix.lstrip("/"))
"""Containers see the machine's own here, so a change of an image would be lost."""
_SCRATCH = ("tmp", "run", "root")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


def main() -> None:
    """Build the image that the arguments name."""
    dockerfile, context, name, archive = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        # An overlay cannot lie on its own lower folder; this mount goes with the process's namespace.
        _mount("-t", "tmpfs", "tmpfs", folder)
        try:
            build(instructions(Path(dockerfile).read_text()), Path(context), Path(folder)).write(name, Path(archive))
        finally:
            subprocess.run(["umount", "--recursive", folder], check=True, timeout=_RUN_S)


def instructions(text: str) -> Sequence[tuple[str, str]]:
    """Return the instructions of a Dockerfile, each with its arguments in one line."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", "", "\n".join(lines)).splitlines()
    return [(word.upper(), rest.strip()) for word, _, rest in (line.strip().partition(" ") for line in joined)]


@dataclass
class Stage:
    """One stage: its root, what it changed, and what it would say to a container."""

    folder: Path
    env: dict[str, str] = field(default_factory=lambda: {"PATH": _PATH})
    args: dict[str, str] = field(default_factory=lambda: {"TORCH_VENV": str(TORCH_VENV)})
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        """The file system as the stage sees it."""
        return self.folder / "root"

    def begin(self) -> None:
        """Lay an empty overlay over this machine."""
        for name in ("upper", "work", "root"):
            (self.folder / name).mkdir(parents=True)
        options = f"lowerdir=/,upperdir={self.folder}/upper,workdir={self.folder}/work"
        _mount("-t", "overlay", "-o", options, "overlay", str(self.root))
        for path in ("/dev", "/proc", "/etc/resolv.conf"):
            _mount("--bind", path, f"{self.root}{path}")

    def filled(self, text: str) -> str:
        """Return a text with the stage's variables in it; raises KeyError of one that it has not."""
        known = {**self.args, **self.env}
        return _VARIABLE.sub(lambda match: known[match[1] or match[2]], text)

    def run(self, command: str) -> None:
        """Run a command of the shell in the stage."""
        place = shlex.quote(self.config.get("WorkingDir", "/"))
        inside = ["chroot", str(self.root), "/bin/sh", "-ec", f"cd {place}\n{command}"]
        subprocess.run(inside, check=True, timeout=_RUN_S, stdout=sys.stderr, env={**_machine(), **self.env})

    def copy(self, origin: Path, names: Sequence[str], target: str) -> None:
        """Copy files, or what is in folders."""
        for name in names:
            source, goal = origin / name.lstrip("/"), self.root / target.lstrip("/")
            if source.is_dir():
                shutil.copytree(
                    source, goal, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
                )
                continue
            goal = goal / source.name if target.endswith("/") else goal
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, goal)

    def write(self, name: str, archive: Path) -> None:
        """Write what the stage changed as an image of that name, over one that has the machine's folders."""
        subprocess.run(["umount", "--recursive", str(self.root)], check=True, timeout=_RUN_S)
        upper = self.folder / "upper"
        hidden = [str(path) for path in _OF_THE_MACHINE if (upper / path).exists()]
        if hidden:
            raise SystemExit(f"the last stage changes {', '.join(hidden)}, which its containers would not see")
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w") as tar:
            for path in sorted(upper.iterdir()):
                if path.name not in _SCRATCH:
                    tar.add(path, path.name)
        config = {**self.config, "Env": [f"{key}={value}" for key, value in self.env.items()]}
        images = _images()
        images.write(archive, name, [images.machine(), layer.getvalue()], config)


def build(steps: Sequence[tuple[str, str]], context: Path, folder: Path) -> Stage:
    """Carry out the instructions, and return the last stage; raises SystemExit of one that is not known here."""
    stages: dict[str, Stage] = {}
    stage = Stage(folder)
    for word, text in steps:
        if word == "FROM":
            stage = Stage(folder / str(len(stages)))
            stage.begin()
            _, _, named = text.partition(" AS ")
            stages[named or str(len(stages))] = stage
        elif word == "COPY":
            *names, target = shlex.split(stage.filled(text))
            origin = context
            if names[0].startswith("--from="):
                origin = stages[names.pop(0).removeprefix("--from=")].root
            stage.copy(origin, names, target)
        elif word == "RUN":
            stage.run(text)
        else:
            _configure(stage, word, text)
    return stage


def _configure(stage: Stage, word: str, text: str) -> None:
    match word:
        case "ARG":
            name, _, default = text.partition("=")
            stage.args.setdefault(name, default)
        case "ENV":
            stage.env |= _pairs(stage.filled(text))
        case "LABEL":
            stage.config["Labels"] = _pairs(stage.filled(text))
        case "USER":
            stage.config["User"] = text
        case "WORKDIR":
            stage.config["WorkingDir"] = text
            (stage.root / text.lstrip("/")).mkdir(parents=True, exist_ok=True)
        case "EXPOSE":
            stage.config["ExposedPorts"] = {f"{text}/tcp": {}}
        case "ENTRYPOINT" | "CMD":
            stage.config["Entrypoint" if word == "ENTRYPOINT" else "Cmd"] = list(_words(text))
        case _:
            raise SystemExit(f"{word}: an instruction that is not known here")


def _pairs(text: str) -> Mapping[str, str]:
    return {name: value for name, _, value in (word.partition("=") for word in shlex.split(text))}


def _words(text: str) -> Sequence[str]:
    return list(json.loads(text))


def _machine() -> Mapping[str, str]:
    """Return the machine's variables, by which pip finds its index, without those of a virtual environment."""
    return {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}  # noqa: TID251


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, timeout=_RUN_S)


def _images() -> Any:
    """Return the module that writes OCI archives."""
    sys.path.insert(0, str(SHARED / "node"))
    return importlib.import_module("image")


if __name__ == "__main__":
    main()
