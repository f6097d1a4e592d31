"""What a program said last, in outputs as torchrun 2.13, Open MPI 4.1 and 5.0, and MPICH 5.0 leave them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voda.programs.last_words import MOST_BYTES, LastWords, hint, is_not_found, lacks_module, last_words

_LOG = "torch/distributed/elastic/multiprocessing/api.py:1002]"
_RULE = "=" * 60
_THIN = "-" * 60


def _traceback(line: str, *, prefix: str = "") -> str:
    lines = ["Traceback (most recent call last):", '  File "train.py", line 4, in <module>', "    step()", line]
    return "".join(f"{prefix}{each}\n" for each in lines)


def _torchrun(
    code: str, *, rank: int = 0, told: str = "To enable traceback see: https://pytorch.org", other: str = ""
) -> str:
    """Return what torchrun prints at its end, its own traceback included."""
    return f"""\
E1128 16:16:12.739000 11102 {_LOG} failed (exitcode: {code.split()[0]}) local_rank: {rank} (pid: 157) of binary: python
Traceback (most recent call last):
  File "/venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
             ^^^^^^
  File "/venv/lib/torch/distributed/launcher/api.py", line 383, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
{_RULE}
train.py FAILED
{_THIN}
Failures:
{other or "  <NO_OTHER_FAILURES>"}
{_THIN}
Root Cause (first observed failure):
[0]:
  time      : 2026-11-28_16:16:13
  host      : localhost
  rank      : {rank} (local_rank: {rank})
  exitcode  : {code}
  error_file: <N/A>
  traceback : {told}
{_RULE}
"""


_OTHER_RANK = """\
[1]:
  time      : 2026-11-28_16:20:25
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 13875)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 13875"""
_RECORDED = """\
Traceback (most recent call last):
    File "train.py", line 12, in main
      def main(): raise ValueError("label 37 out of range")
                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  ValueError: label 37 out of range
  """
_BROKEN = "RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:15237."


@pytest.mark.parametrize(
    ("printed", "text", "code"),
    [
        pytest.param(
            "epoch 1\n" + _traceback("ValueError: no") + _torchrun("1 (pid: 1)"), "ValueError: no", 1, id="exc"
        ),
        pytest.param("epoch 1\ncannot open x\n" + _torchrun("3 (pid: 1)"), "cannot open x", 3, id="exit"),
        pytest.param("epoch 1\n" + _torchrun("-9 (pid: 1)  (SIGKILL)"), "epoch 1", -9, id="killed"),
        pytest.param(_torchrun("1 (pid: 1)", told=_RECORDED), "ValueError: label 37 out of range", 1, id="redirected"),
        pytest.param(
            _traceback("ValueError: no", prefix="[rank1]: ")
            + _traceback(_BROKEN, prefix="[rank0]: ")
            + _torchrun("1 (pid: 1)", rank=1, other=_OTHER_RANK),
            "ValueError: no",
            1,
            id="first rank",
        ),
        pytest.param(
            _traceback("ValueError: no", prefix="[default1]:[rank1]: ")
            + _traceback(_BROKEN, prefix="[default0]:[rank0]: ")
            + _torchrun("1 (pid: 1)", rank=0),
            _BROKEN,
            1,
            id="first rank of --tee",
        ),
        pytest.param(_traceback("ValueError: no") + _traceback(_BROKEN), "ValueError: no", None, id="ranks not known"),
        pytest.param(" 45%|###  | 45/100\r 46%|### | 46/100" + _traceback("E: no"), "E: no", None, id="progress bar"),
        pytest.param(_traceback("KeyError: 'a'") + "went on\n" * 50, "went on", None, id="survived"),
        pytest.param(
            _traceback("KeyError: 'a'") + "\n" + _traceback("ValueError: b"), "ValueError: b", None, id="chain"
        ),
        pytest.param(f"a table\n{_RULE}\n", "a table", None, id="ruler"),
        pytest.param(
            _traceback("torch.distributed.elastic.rendezvous.api.RendezvousClosedError"),
            "torch.distributed.elastic.rendezvous.api.RendezvousClosedError",
            None,
            id="rendezvous",
        ),
        pytest.param(
            "no data\nERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 3) local_rank: 0 (pid: 5)",
            "no data",
            3,
            id="torch 1.13, without its summary",
        ),
        pytest.param("", "", None, id="empty"),
        pytest.param(_torchrun("3 (pid: 1)"), "", 3, id="nothing said"),
        pytest.param(
            "voda run: starts 1 on localhost:1\nno data\nvoda run: its last lines:\n  | no data\n  | =====\n",
            "no data",
            None,
            id="shown again",
        ),
    ],
)
def test_last_words_are_the_programs_and_the_code_is_of_its_rank(printed: str, text: str, code: int | None) -> None:
    said = last_words(printed)
    assert (said.text(), said.exit_code) == (text, code)


_DASHES = "-" * 74
_MPICH_RULE = "=" * 83


@pytest.mark.parametrize(
    ("said_by_mpirun", "code"),
    [
        (
            f"{_DASHES}\nPrimary job  terminated normally, but 1 process returned\na non-zero exit code. Per"
            f" user-direction, the job has been aborted.\n{_DASHES}\n{_DASHES}\nmpirun detected that one or more"
            f" processes exited with non-zero status, thus causing\nthe job to be terminated. The first process to do"
            f" so was:\n\n  Process name: [[52,1],1]\n  Exit code:    3\n{_DASHES}\n",
            3,
        ),
        (
            f"{_DASHES}\nPrimary job  terminated normally, but 1 process returned\na non-zero exit code.\n{_DASHES}\n"
            f"{_DASHES}\nmpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed).\n"
            f"{_DASHES}\n",
            -9,
        ),
        (
            f"{_DASHES}\nprterun noticed that process rank 1 with PID 14211 on node vm exited on\nsignal 9 (Killed).\n"
            f"{_DASHES}\n",
            -9,
        ),
        (
            f"\n{_MPICH_RULE}\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 14203 RUNNING AT vm\n"
            "=   EXIT CODE: 9\n=   CLEANING UP REMAINING PROCESSES\n=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES\n"
            f"{_MPICH_RULE}\nYOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\nThis typically refers"
            " to a problem with your application.\nPlease see the FAQ page for debugging suggestions\n",
            -9,
        ),
    ],
    ids=["o4 code", "o4 signal", "o5 signal", "mpich signal"],
)
def test_last_words_leave_out_what_mpirun_says_of_a_rank(said_by_mpirun: str, code: int) -> None:
    said = last_words(f"epoch 1\nepoch 2\n{said_by_mpirun}")
    assert (said.lines, said.exit_code) == (("epoch 1", "epoch 2"), code)


def test_words_when_only_launchers_spoke_are_not_the_programs_own() -> None:
    assert not last_words(f"E1128 16:16:12.739000 11102 {_LOG} failed (exitcode: 1) local_rank: 0").is_own
    assert not last_words(f"{_DASHES}\nmpirun noticed that process rank 1 exited on signal 9\n{_DASHES}").is_own
    assert last_words("E1128 16:16:12.739000 11102 train.py:3] a line of absl").is_own


_PIECES = st.sampled_from(
    [
        "Traceback (most recent call last):\n",
        '  File "a.py", line 1\n',
        "ValueError: x\n",
        f"{_RULE}\n",
        f"{_DASHES}\n",
        "[rank1]: ",
        "[default0]:",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n",
        "  exitcode  : -9 (pid: 1)\n",
        "mpirun noticed that rank 1 exited on signal 9\n",
        "voda run: its last lines:\n",
        "  | ",
        "\r",
        "=   EXIT CODE: 9\n",
    ]
)


@given(st.lists(st.one_of(st.binary(max_size=80), _PIECES.map(str.encode)), max_size=60))
def test_last_words_of_any_bytes_are_some(pieces: list[bytes]) -> None:
    said = last_words(b"".join(pieces))
    assert isinstance(said, LastWords)
    assert "\0" in said.text() or len(said.text().splitlines()) >= bool(said.text())
    is_not_found(said.text())


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        " ",
        "=",
        "[",
        "a.",
        "No module named ",
        "x: ",
        "[rank1]: ",
        "Traceback (most recent call last):\n",
        "-" * 40 + "\n",
    ],
)
def test_last_words_of_a_huge_output_look_at_its_end_alone(piece: str) -> None:
    huge = (piece * (2 * MOST_BYTES)).encode()
    assert last_words(huge) == last_words(huge[-MOST_BYTES:])
    assert max(map(len, last_words(huge).lines), default=0) <= MOST_BYTES // 60


@pytest.mark.parametrize(
    ("said", "missing"),
    [
        ("sh: 1: torchrun: not found", "command torchrun"),
        ("bash: line 1: torchrun: command not found", "command torchrun"),
        ("command torchrun: not found", "command torchrun"),
        ("ModuleNotFoundError: No module named 'torch'", "module torch"),
        ("/usr/bin/python3: No module named torch.distributed", "module torch.distributed"),
    ],
)
def test_hint_when_something_was_not_found_names_it_and_what_the_job_had(said: str, missing: str) -> None:
    assert is_not_found(said)
    told = hint(said, "/usr/bin/python3", "/usr/bin:/bin")
    assert missing in told
    assert "its Python was /usr/bin/python3, its PATH /usr/bin:/bin" in told
    assert "its PATH was /usr/bin:/bin: where" in hint(said, None, "/usr/bin:/bin")


@pytest.mark.parametrize("said", ["", "ValueError: label 37 not found in data", "imagenet: not found here"])
def test_hint_when_nothing_was_missing_is_none(said: str) -> None:
    assert not is_not_found(said)
    assert hint(said, "python", "") == ""


_NO_PACKAGE = (
    "/venv/bin/python3.12: Error while finding module specification for 'torch.distributed.run'"
    " (ModuleNotFoundError: No module named 'torch')\n"
)
_LACKS = "ModuleNotFoundError: No module named 'wandb'"


@pytest.mark.parametrize(
    ("printed", "lacks"),
    [
        (_traceback(_LACKS), True),
        (_traceback(_LACKS, prefix="[rank0]: ") + _torchrun("1 (pid: 157)"), True),
        (_traceback(_LACKS) + _torchrun("-9 (pid: 157)"), False),
        (_traceback(_LACKS) + _torchrun("3 (pid: 157)"), False),
        (_traceback(_LACKS) + "no wandb: going on without\n", False),
        (_traceback(_LACKS) + _traceback("OSError: the disk is full"), False),
        (_LACKS + "\n", False),
        (_NO_PACKAGE, True),
        ("/venv/bin/python3: No module named wandb\n", True),
        (f"[rank0]: {_NO_PACKAGE}" + _torchrun("1 (pid: 157)"), True),
        (_NO_PACKAGE + _torchrun("-9 (pid: 157)"), False),
        (_NO_PACKAGE + "no torch: going on without\n", False),
        ("", False),
    ],
)
def test_module_is_lacked_where_that_is_the_last_that_the_program_said_and_its_code_is_1(
    printed: str, lacks: bool
) -> None:
    assert lacks_module(last_words(printed)) == lacks
