"""What krew installs: its manifest is whole, and the plug-in runs voda's command line under kubectl's name."""

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

from voda import __version__

ROOT = Path(__file__).parents[2]
KREW = ROOT / "deploy" / "krew"
PLUGIN = KREW / "kubectl-voda"


def test_krew_manifest_when_filled_in_names_files_that_there_are() -> None:
    text = (KREW / "voda.yaml").read_text()
    filled = re.sub(r"\{\{addURIAndSha .*\}\}", "uri: https://example.com/a.tar.gz", text)
    plugin = yaml.safe_load(filled.replace("{{ .TagName }}", f"v{__version__}"))
    assert plugin["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert (plugin["metadata"]["name"], plugin["spec"]["version"]) == ("voda", f"v{__version__}")
    (platform,) = plugin["spec"]["platforms"]
    files = [each["from"] for each in platform["files"]]
    assert platform["bin"] in files
    assert [name for name in files if not (KREW / name).exists() and not (ROOT / name).exists()] == []
    # krew refuses longer ones.
    assert len(plugin["spec"]["shortDescription"]) <= 50


def test_krew_plugin_runs_the_command_line_by_kubectls_name() -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.defpath])
    done = subprocess.run([PLUGIN, "queue", "-h"], env={"PATH": path}, capture_output=True, text=True, timeout=60)
    assert "Usage: kubectl voda queue" in done.stdout
    assert "   kubectl voda queue --user ada" in done.stdout


def test_krew_plugin_without_voda_says_what_to_install() -> None:
    done = subprocess.run([PLUGIN], env={"PATH": os.defpath}, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "pipx install voda" in done.stderr) == (127, True)
