"""Nodes with GPUs on a terminal: how many are shared, what is left of each, and who has it."""

from tests.wire import NOW, a_wire_node
from voda.cli.render.node_details import node_text
from voda.cli.render.tables import nodes_table
from voda.wire.pools import GpuView, ShareView


def a_share(pod: str, milli: int, memory_mib: int = 0) -> ShareView:
    return ShareView(pod=pod, pod_uid=pod, container="main", milli=milli, memory_mib=memory_mib, assigned_at=NOW)


def a_gpu(index: int, *shares: ShareView, is_present: bool = True, name: str = "", job: str = "") -> GpuView:
    return GpuView(
        index=index,
        name=name,
        is_present=is_present,
        memory_mib=16_384 if is_present else 0,
        free_milli=1_000 - sum(share.milli for share in shares) if is_present else 0,
        free_memory_mib=16_384 - sum(share.memory_mib for share in shares) if is_present else 0,
        shares=shares,
        job=job,
    )


GPUS = (
    a_gpu(0, a_share("ml/notebook", 250, 4_096), a_share("ml/serve-of-a-very-long-name-that-never-ends-42", 500)),
    a_gpu(1),
    a_gpu(2, a_share("ml/notebook", 100)),
    a_gpu(3, a_share("ml/left-over", 300), is_present=False),
)


def test_nodes_with_gpus_tell_how_many_are_shared_and_what_is_left_of_those() -> None:
    nodes = [
        a_wire_node("n1", gpus=3, jobs={"digits": 1}, foreign_gpus=2, devices=GPUS[:3]),
        a_wire_node("n2"),
    ]
    lines = [line.plain for line in nodes_table(nodes, width=80)]
    assert lines == [
        "NAME  STATUS  GPUS  USED  FREE  SHARED  MILLI LEFT  HELD BY",
        "n1    Ready      3     1     0     2/3       1,150  digits, ml/notebook 350m, m…",
        "n2    Ready      4     0     4       -           -  -",
    ]
    assert max(map(len, lines)) <= 80


def test_nodes_without_gpus_have_no_columns_for_them() -> None:
    assert "SHARED" not in nodes_table([a_wire_node()], width=80)[0].plain


def test_node_with_gpus_tells_of_each_what_is_free_and_who_has_it_in_eighty_columns() -> None:
    lines = [line.plain for line in node_text(a_wire_node(foreign_gpus=2, devices=GPUS), width=80)]
    assert lines[3:] == [
        "GPUs:   4, 0 used, 2 free, 2 of shared GPUs, 0 used by others",
        "Jobs:   -",
        "Labels: -",
        "Shared: 2 of 3 GPUs; 1 GPU gone of which pods still have shares",
        "",
        "GPU  MILLI FREE  MEMORY FREE  HELD BY                           MILLI     MEMORY",
        "  0         250   12,288 MiB  ml/notebook                         250  4,096 MiB",
        "                              ml/serve-of-a-very-long-name-th…    500          -",
        "  1       1,000   16,384 MiB  -                                     -          -",
        "  2         900   16,384 MiB  ml/notebook                         100          -",
        "  3        gone         gone  ml/left-over                        300          -",
    ]
    assert max(map(len, lines)) <= 80


def test_gpu_that_a_job_has_is_not_shown_as_free() -> None:
    devices = (a_gpu(0, a_share("ml/notebook", 250, 4_096)), a_gpu(1, job="train"), a_gpu(2))
    node = a_wire_node(gpus=3, jobs={"train": 1}, foreign_gpus=1, devices=devices)
    assert [line.plain for line in node_text(node, width=80)][6:] == [
        "Shared: 1 of 3 GPUs",
        "",
        "GPU  MILLI FREE  MEMORY FREE  HELD BY      MILLI      MEMORY",
        "  0         750   12,288 MiB  ml/notebook    250   4,096 MiB",
        "  1           0            -  job train    1,000  16,384 MiB",
        "  2       1,000   16,384 MiB  -                -           -",
    ]


def test_gpus_of_jobs_of_which_it_is_not_known_which_they_are_are_counted() -> None:
    devices = (a_gpu(0, a_share("ml/notebook", 250)), a_gpu(1, job="train"), a_gpu(2), a_gpu(3))
    shown = node_text(a_wire_node(gpus=4, jobs={"other": 1, "train": 1}, foreign_gpus=1, devices=devices), width=80)
    told = "Shared: 1 of 4 GPUs; jobs have 1 of those shown as free, it is not known which"
    assert told in [line.plain for line in shown]
    # Its other GPUs are no GPUs: the job may have those.
    more = node_text(a_wire_node(gpus=6, jobs={"other": 1, "train": 1}, foreign_gpus=1, devices=devices), width=80)
    assert "Shared: 1 of 4 GPUs" in [line.plain for line in more]


def test_node_without_gpus_says_so() -> None:
    assert node_text(a_wire_node(), width=80)[-1].plain == "Shared: none of its GPUs"


def test_words_of_pods_cannot_command_the_terminal() -> None:
    gpu = a_gpu(0, a_share("ml/\x1b[2Jnotebook\x07", 250))
    shown = [*node_text(a_wire_node(devices=(gpu,)), width=80), *nodes_table([a_wire_node(devices=(gpu,))], width=80)]
    assert not any(sign in line.plain for line in shown for sign in "\x1b\x07")


def test_gpus_that_pods_claim_have_the_names_of_their_devices_in_eighty_columns() -> None:
    devices = (
        a_gpu(
            0,
            a_share("ml/notebook", 250, 4_096),
            a_share("ml/serve-of-a-very-long-name-that-never-ends", 500),
            name="gpu.example.com/g1/gpu-0",
        ),
        a_gpu(1, name="gpu.example.com/g1/gpu-of-a-long-name-1"),
        a_gpu(2, a_share("ml/left-over", 300), is_present=False),
    )
    lines = [line.plain for line in node_text(a_wire_node("g1", devices=devices), width=80)]
    assert lines[6:] == [
        "Shared: 1 of 2 GPUs; 1 GPU gone of which pods still have shares",
        "Driver: gpu.example.com, pool g1",
        "",
        "GPU  DEVICE          MILLI FREE  MEMORY FREE  HELD BY           MILLI     MEMORY",
        "  0  gpu-0                  250   12,288 MiB  ml/notebook         250  4,096 MiB",
        "                                              ml/serve-of-a-v…    500          -",
        "  1  gpu-of-a-long…       1,000   16,384 MiB  -                     -          -",
        "  2  -                     gone         gone  ml/left-over        300          -",
    ]
    assert max(map(len, lines)) <= 80


def test_gpus_of_several_drivers_have_their_whole_names() -> None:
    devices = (a_gpu(0, name="gpu.example.com/g1/gpu-0"), a_gpu(1, name="other.example.com/g1/gpu-0"))
    lines = [line.plain for line in node_text(a_wire_node("g1", devices=devices), width=None)]
    assert not any(line.startswith("Driver:") for line in lines)
    assert [line.split()[1] for line in lines[-2:]] == ["gpu.example.com/g1/gpu-0", "other.example.com/g1/gpu-0"]
