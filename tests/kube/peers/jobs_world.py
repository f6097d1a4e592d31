"""A world of Indexed Jobs, of users' own or made of JobSets and TrainJobs: the Job controller makes their pods.

Rule: pods are found by the labels of the Job controller, and meant by their index: their names end at random.
"""

from tests.kube import client as api
from tests.kube.client import Object
from tests.kube.objects import MANAGED, a_training_runtime
from tests.kube.operators.base import labelled, phase_of
from tests.kube.peers.jobset import OF_JOBSET
from tests.kube.peers.world import PeeredWorld
from tests.kube.world import World, is_leaving

JOB_NAME = "batch.kubernetes.io/job-name"
INDEX = "batch.kubernetes.io/job-completion-index"


class JobsWorld(PeeredWorld):
    """See the module."""

    async def submit(self, job: Object) -> Object:
        """See World: suspended, as users are told to, unless the job says what it is or is none of voda's."""
        if job["kind"] in ("Job", "JobSet") and MANAGED in job["metadata"].get("labels", {}):
            job["spec"].setdefault("suspend", True)
        return await World.submit(self, job)

    async def pods_of(self, name: str) -> list[Object]:
        """See World; in the order of their indices."""
        pods = [pod for pod in await self.client.list(api.PODS, self.namespace) if name in _owners(pod)]
        return sorted(pods, key=lambda pod: (index_of(pod), str(pod["metadata"]["name"])))

    async def running(self, name: str) -> dict[int, Object]:
        """Return the pods of a job that run and are to stay, by index."""
        return {
            index_of(pod): pod for pod in await self.pods_of(name) if phase_of(pod) == "Running" and not is_leaving(pod)
        }

    async def uids(self, name: str) -> dict[int, str]:
        """Return the uids of the pods of a job that run and are to stay, by index."""
        return {index: pod["metadata"]["uid"] for index, pod in (await self.running(name)).items()}

    async def job(self, name: str, kind: str = "Job") -> Object:
        """See World."""
        return await super().job(name, kind)

    async def end_worker(self, name: str, index: int, exit_code: int = 0) -> None:
        """End the program of a replica that runs."""
        pod = (await self.running(name))[index]
        await self.kubelet.exit(self.namespace, pod["metadata"]["name"], exit_code)

    async def end_all(self, name: str, exit_code: int = 0) -> None:
        """End the programs of all replicas that run."""
        for index in sorted(await self.running(name), reverse=True):
            await self.end_worker(name, index, exit_code)

    async def add_runtime(self, name: str, *jobs: str) -> None:
        """Create a TrainingRuntime with these replicated jobs, the first of which trains."""
        await self.client.create(api.RUNTIMES, a_training_runtime(name, self.namespace, *jobs))

    async def told(self, name: str, reason: str = "") -> list[str]:
        """Return what voda's Events about a Job say, of one reason or of all."""
        events = await self.client.list(api.EVENTS, self.namespace)
        ours = [
            each for each in events if "voda" in (each.get("reportingComponent", ""), each["source"].get("component"))
        ]
        return [
            each["message"]
            for each in ours
            if each["involvedObject"].get("name") == name and reason in ("", each["reason"])
        ]


def _owners(pod: Object) -> set[str]:
    """Return the names of the Job and the JobSet of a pod."""
    return {labelled(pod, JOB_NAME), labelled(pod, OF_JOBSET)}


def index_of(pod: Object) -> int:
    """Return the index that the Job controller gave a pod; that of the only pod of a Job without numbers is 0."""
    return int(pod["metadata"]["annotations"].get(INDEX, "0"))
