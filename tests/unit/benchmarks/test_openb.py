"""A small trace of openb's format, simulated: figures, table, page, command line."""

import csv
import json
import lzma
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.sharing.__main__ import main
from benchmarks.sharing.compare import compare, means, parse_seeds
from benchmarks.sharing.experiment import simulate
from benchmarks.sharing.openb import load_list
from benchmarks.sharing.page import results_of, write_page
from benchmarks.sharing.report import sharing_table
from voda.domain.errors import InvalidInput
from voda.domain.gpus import GpuRequest, Gpus
from voda.sharing.rating.pod import PodRequest
from voda.sharing.rating.raters import RATERS

NODES = [("n0", 8_000, 1_000, 2, "T4"), ("n1", 8_000, 1_000, 2, "P100")]
PODS = [
    ("whole", 1_000, 100, 1, 1_000, "P100"),
    ("share", 1_000, 100, 1, 600, ""),
    ("cpu", 500, 100, 0, 0, ""),
    ("both", 1_000, 100, 2, 1_000, "P100|T4"),
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The folder of data sets, with a trace of two nodes and four pods in it."""
    folder = tmp_path / "data" / "openb"
    folder.mkdir(parents=True)
    _write(folder / "nodes.csv", [("sn", "cpu_milli", "memory_mib", "gpu", "model"), *NODES])
    head = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec")
    _write(folder / "pods-default.csv", [head, *PODS])
    _compress(folder / "arrivals-default.csv.xz", "42,0,1,2,3,1,0\n43,3,2,1,0\n")
    _compress(folder / "rank-default.csv.xz", "42,1,0\n43,0,1\n")
    return folder.parent


def _write(path: Path, rows: Sequence[Sequence[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def _compress(path: Path, text: str) -> None:
    with lzma.open(path, "wt", encoding="ascii") as file:
        file.write(text)


def test_list_when_read_says_what_pods_ask_for_and_in_which_order_they_come(data: Path) -> None:
    workload = load_list("default", data)
    assert workload.capacity_milli == 4_000
    assert [pod.containers for pod in workload.pods] == [
        (GpuRequest(devices=Gpus(1)),),
        (GpuRequest(milli=600),),
        (),
        (GpuRequest(devices=Gpus(2)),),
    ]
    assert workload.pods[3] == PodRequest(
        cpu_milli=1_000, memory_mib=100, containers=(GpuRequest(devices=Gpus(2)),), models=("P100", "T4")
    )
    arrivals = workload.arrivals(42)
    assert arrivals.pods == [0, 1, 2, 3, 1, 0]
    assert [node.name for node in arrivals.nodes] == ["n1", "n0"]


def test_simulation_when_pods_fit_nowhere_drops_them(data: Path) -> None:
    run = simulate(load_list("default", data), RATERS["binpack"], 42)
    # whole and share fill n1, both takes n0; the second share fits no device, the second whole one neither.
    assert (run.placed, run.dropped) == (4, 2)
    assert [point.load for point in run.points] == [25, 40, 90, 105, 130]
    assert [point.unallocated for point in run.points] == pytest.approx([75, 60, 10, 10, 10])
    assert run.at(100).unallocated == pytest.approx(10)


def test_simulation_when_stopped_early_has_the_figures_until_then(data: Path) -> None:
    heard: list[int] = []
    run = simulate(
        load_list("default", data), RATERS["fgd"], 42, until=40, on_arrival=lambda number, _: heard.append(number)
    )
    assert heard == [1, 2]
    assert [point.load for point in run.points] == [25, 40]


def test_comparison_has_the_means_of_each_rater_at_loads_that_all_runs_reached(data: Path) -> None:
    runs = compare(load_list("default", data), [RATERS["binpack"], RATERS["spread"]], [42, 43])
    assert [(run.rater, run.seed) for run in runs] == [("binpack", 42), ("binpack", 43), ("spread", 42), ("spread", 43)]
    binpack, spread = means(runs)
    assert (binpack.rater, spread.rater) == ("binpack", "spread")
    assert [point.load for point in binpack.points] == [90]
    assert binpack.placements_per_s > 0


def test_page_and_table_of_a_comparison_have_every_rater(data: Path, tmp_path: Path) -> None:
    results = results_of(compare(load_list("default", data), [RATERS["binpack"], RATERS["random"]], [42]))
    page = write_page(tmp_path / "out", results, "voda simulate <x>").read_text("utf-8")
    assert "binpack" in page
    assert page.count('class="line') == 4
    assert "voda simulate &lt;x&gt;" in page
    assert [run["seed"] for run in json.loads((tmp_path / "out/results.json").read_bytes())["runs"]] == [42, 42]
    console = Console(width=80, force_terminal=False)
    with console.capture() as capture:
        console.print(sharing_table(results.means, "openb/default", 1))
    lines = capture.get().splitlines()
    assert "openb/default: GPUs [%] unallocated by load, mean of 1 order" in lines[0]
    assert [line.split()[:2] for line in lines if "binpack" in line] == [["binpack", "60.00"]]


def test_page_when_the_folder_is_a_file_says_so(data: Path, tmp_path: Path) -> None:
    results = results_of(compare(load_list("default", data), [RATERS["binpack"]], [42]))
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="the report cannot be written there"):
        write_page(tmp_path / "file", results, "voda")


@pytest.mark.parametrize(("text", "seeds"), [("42-44", [42, 43, 44]), ("1, 7,1", [1, 7]), ("0", [0])])
def test_seeds_when_lists_and_ranges_are_read(text: str, seeds: Sequence[int]) -> None:
    assert list(parse_seeds(text)) == seeds


@pytest.mark.parametrize("text", ["", "x", "3-1", "1-", "-1", "0-1000", "1--2", "9999999999"])
def test_seeds_when_they_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^seeds "):
        parse_seeds(text)


def test_list_when_orders_belong_to_another_trace_is_refused(data: Path) -> None:
    _compress(data / "openb/rank-default.csv.xz", "42,0\n")
    with pytest.raises(InvalidInput, match="the orders of default do not belong to its nodes and pods"):
        load_list("default", data).arrivals(42)
    _compress(data / "openb/arrivals-default.csv.xz", "41,0\n")
    with pytest.raises(InvalidInput, match="there is no line of seed 42"):
        load_list("default", data).arrivals(42)


@pytest.mark.parametrize("text", ["sn\nn0\n", "sn,cpu_milli,memory_mib,gpu,model\nn0,x,1,1,T4\n"])
def test_list_when_a_file_is_damaged_says_where_to_get_it(data: Path, text: str) -> None:
    (data / "openb/nodes.csv").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"nodes\.csv: the file is damaged.*get it again from github"):
        load_list("default", data)


def test_command_prints_figures_of_raters(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["default", "--rater", "spread", "--seeds", "42", "--data", str(data)]
    assert main([*arguments, "--json"]) == 0
    assert [(run["rater"], run["placed"]) for run in json.loads(capsys.readouterr().out)["runs"]] == [("spread", 5)]
    assert main(arguments) == 0
    assert "default: GPUs [%] unallocated" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["nope"], "invalid choice: 'nope'"), (["default", "--rater", "best"], "rater 'best' is not known")],
)
def test_command_when_options_make_no_sense_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert message in capsys.readouterr().err
