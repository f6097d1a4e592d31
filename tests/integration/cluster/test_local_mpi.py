"""Real mpirun on local workers, by both ways into a worker."""

import sys
from pathlib import Path

import pytest

from tests.local_jobs import FOREVER, a_ground, an_mpi_job
from tests.needs import missing, needs_debians_mpi
from voda.cluster.local.devices import Device
from voda.cluster.local.rendezvous import Transport, probe_transport
from voda.events.types import JobCompleted, WorkerExited
from voda.process_table import marked_processes

RANK = (
    "import os, socket, sys\n"
    "from mpi4py import MPI\n"
    "world = MPI.COMM_WORLD\n"
    "mine = (os.environ.get('CUDA_VISIBLE_DEVICES'), socket.gethostname())\n"
    "all = world.gather(mine, root=0)\n"
    "if world.rank == 0: print(sorted(all), flush=True)\n"
)
SAVES = """
import os, signal, time
rank = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"]
if "OMPI_COMM_WORLD_RANK" in os.environ:
    from mpi4py import MPI
    MPI.COMM_WORLD.Barrier()
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
# In one piece, as ranks print into one another.
os.write(1, f"up {rank} of {os.path.basename(os.environ['VODA_REPLICA'])}\\n".encode())
while not told:
    time.sleep(0.02)
# Ranks need different times, and end without MPI_Finalize: mpirun must not kill the slow one for it.
if rank == "0":
    time.sleep(2.5)
os.write(1, f"saved {rank} told {len(told)}\\n".encode())
os._exit(143)
"""
GPUS = tuple(Device(name=str(index), model="Test") for index in range(4))


def _program(folder: Path, text: str) -> str:
    path = folder / "rank.py"
    path.write_text(text)
    return f"{sys.executable} {path}"


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["remote", "rank"])
async def test_ranks_when_run_by_a_bare_mpirun_see_their_own_devices(tmp_path: Path, transport: Transport) -> None:
    if transport == "remote" and probe_transport() != "remote":
        missing("this system allows no hostnames of a process's own")
    async with a_ground(tmp_path, devices=GPUS, settings={"transport": transport}) as ground:
        script = f"echo launcher sees [$CUDA_VISIBLE_DEVICES]; exec mpirun {_program(tmp_path, RANK)}"
        await ground.start(an_mpi_job("a", script), workers=2)
        await ground.until_told(JobCompleted(job_id="a"))
        # In between mpirun may remark on a race of its own that it survives.
        first, *_, second = ground.log().splitlines()
        assert first == "launcher sees []"
        seen = eval(second)
        assert [devices for devices, _ in seen] == ["0", "1"]
        if transport == "remote":
            assert [host for _, host in seen] == ["a-worker-0", "a-worker-1"]


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["remote", "rank"])
async def test_worker_when_taken_away_from_mpirun_is_free_only_when_its_rank_is_gone(
    tmp_path: Path, transport: Transport
) -> None:
    if transport == "remote" and probe_transport() != "remote":
        missing("this system allows no hostnames of a process's own")
    rank = (
        "import os, signal, time\nfrom mpi4py import MPI\n"
        "print('rank', MPI.COMM_WORLD.rank, 'of', MPI.COMM_WORLD.size, flush=True)\ntime.sleep(1000)\n"
    )
    async with a_ground(tmp_path, devices=GPUS, settings={"transport": transport}) as ground:
        # An elastic launcher in three lines of shell: a new host list ends mpirun, which is then started anew; once it
        # may, for the node is looked at meanwhile.
        elastic = (
            "while :; do n=$(cksum < /etc/mpi/hostfile); mpirun " + _program(tmp_path, rank) + " & p=$!;"
            ' while [ "$(cksum < /etc/mpi/hostfile)" = "$n" ] || [ ! -e go ]; do sleep 0.05; done;'
            " kill $p; wait $p; done"
        )
        await ground.start(an_mpi_job("a", elastic), workers=2)
        await ground.until_logged("rank 1 of 2")
        await ground.resize("a", 1)
        assert await ground.workers() == (0, 1)
        (ground.folder / "a" / "go").touch()
        await ground.until_told(WorkerExited(job_id="a", workers=(1,)))
        await ground.until_logged("rank 0 of 1")
        await ground.resize("a", 2)
        await ground.halt("a")
        await ground.until_workers()


@pytest.mark.slow
async def test_worker_when_its_launcher_does_not_let_go_is_killed_and_the_launcher_forgiven(tmp_path: Path) -> None:
    rank = (
        "import time\nfrom mpi4py import MPI\n"
        "print('rank', MPI.COMM_WORLD.rank, 'of', MPI.COMM_WORLD.size, flush=True)\ntime.sleep(1000)\n"
    )
    async with a_ground(tmp_path, devices=GPUS) as ground:
        job = an_mpi_job("a", f"exec mpirun {_program(tmp_path, rank)}", policy={"backoff_limit": 0}, grace_s=0.0)
        await ground.start(job, workers=2)
        await ground.until_logged("rank 1 of 2")
        await ground.resize("a", 1)
        await ground.until_told(WorkerExited(job_id="a", workers=(1,)))
        await ground.until_logged("rank 0 of 1")


async def test_worker_when_it_was_taken_away_refuses_who_comes_late(tmp_path: Path) -> None:
    async with a_ground(tmp_path) as ground:
        script = (
            "/etc/mpi/rsh.sh a-worker-1.a.default.svc echo in; rm -f go; echo up; until [ -e go ]; do sleep 0.02; done;"
            f"/etc/mpi/rsh.sh a-worker-1.a.default.svc echo in; echo $?; {FOREVER}"
        )
        await ground.start(an_mpi_job("a", script), workers=2)
        await ground.until_logged("in\nup\n")
        await ground.resize("a", 1)
        await ground.until_told(WorkerExited(job_id="a", workers=(1,)))
        (ground.folder / "a" / "go").touch()
        await ground.until_logged("voda: worker-1 was taken away\n75\n")


@pytest.mark.slow
@needs_debians_mpi()
@pytest.mark.parametrize("transport", ["remote", "rank"])
@pytest.mark.parametrize("mpirun", ["mpirun", "mpirun.openmpi", "mpirun.mpich"])
async def test_ranks_of_a_bare_mpirun_when_halted_are_told_at_once_and_have_their_whole_grace(
    tmp_path: Path, mpirun: str, transport: Transport
) -> None:
    if transport == "remote" and probe_transport() != "remote":
        missing("this system allows no hostnames of a process's own")
    async with a_ground(tmp_path, devices=GPUS, settings={"transport": transport}) as ground:
        await ground.start(an_mpi_job("a", f"exec {mpirun} {_program(tmp_path, SAVES)}", grace_s=60.0), workers=2)
        await ground.until_logged("up 0 of worker-0")
        await ground.until_logged("up 1 of worker-1")
        await ground.halt("a")
        # Nobody but the shim sees to it: voda may be killed meanwhile.
        await ground.cluster.close()
        await ground.open()
        await ground.until_workers()
        saved = [line for line in ground.log().splitlines() if line.startswith("saved")]
        assert saved == ["saved 1 told 1", "saved 0 told 1"]


@pytest.mark.slow
@needs_debians_mpi()
@pytest.mark.parametrize("mpirun", ["mpirun", "mpirun.openmpi"])
async def test_bare_mpirun_keeps_its_files_in_the_folder_of_its_job(tmp_path: Path, mpirun: str) -> None:
    async with a_ground(tmp_path, devices=GPUS) as ground:
        script = f"exec {mpirun} sh -c 'echo \"at $PMIX_SERVER_TMPDIR\"; exec sleep 1000'"
        await ground.start(an_mpi_job("a", script), workers=2)
        await ground.until_logged("at ")
        places = [Path(line.removeprefix("at ")) for line in ground.log().splitlines() if line.startswith("at ")]
        assert all(place.is_relative_to(ground.folder / "a") and place.is_dir() for place in places), places


@pytest.mark.slow
@needs_debians_mpi()
@pytest.mark.parametrize("mpirun", ["mpirun", "mpirun.openmpi", "mpirun.mpich"])
async def test_ranks_of_a_bare_mpirun_when_they_do_not_end_are_killed_after_the_grace(
    tmp_path: Path, mpirun: str
) -> None:
    deaf = "sh -c 'trap \"\" TERM; echo up; while :; do sleep 0.05; done'"
    async with a_ground(tmp_path, devices=GPUS) as ground:
        await ground.start(an_mpi_job("a", f"{mpirun} {deaf}", grace_s=0.5), workers=2)
        await ground.until_logged("up\nup\n")
        await ground.halt("a")
        await ground.until_workers()
        assert list(marked_processes(ground.folder)) == []
