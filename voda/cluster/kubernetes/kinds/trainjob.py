"""TrainJob v1alpha1: Kubeflow Trainer makes a JobSet of it, which is the job that voda runs. Pure.

Measured with Trainer 2.0.0, JobSet 0.10.1 and their webhooks on Kubernetes 1.37.2:
- Labels and annotations of a TrainJob's `spec` get to its JobSet, and not to the Job. The JobSet is there at once, also
  of a suspended TrainJob.
- Trainer applies its own fields of the JobSet again and again, `suspend` among them, but leaves gates and annotations
  of the pod template that others added, and the size of the Job, through changes, suspensions and resumptions of the
  TrainJob; gates are taken after it ran, too.

Rules: what suspends, resumes and deletes such a JobSet goes to its TrainJob, for Trainer undoes what is done to the
JobSet itself; all else is as with other JobSets. Events are on the TrainJob, where its user looks for them.
"""

from typing import Final, NamedTuple

from voda.cluster.kubernetes.objects import ObjectMeta
from voda.kubernetes_client.paths import api_path

KIND: Final = "TrainJob"
_GROUP: Final = "trainer.kubeflow.org"
API_VERSION: Final = f"{_GROUP}/v1alpha1"


class TrainJob(NamedTuple):
    namespace: str
    name: str
    uid: str

    @property
    def path(self) -> str:
        return api_path(API_VERSION, "trainjobs", self.namespace, self.name)


def trainjob_of(meta: ObjectMeta) -> TrainJob | None:
    """Return the TrainJob that an object was made of; None where it was made of none."""
    for owner in meta.owner_references:
        group = owner.api_version.partition("/")[0]
        if owner.controller and (group, owner.kind) == (_GROUP, KIND):
            return TrainJob(meta.namespace, owner.name, owner.uid)
    return None
