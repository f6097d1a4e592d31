"""Parts of a GPU on one machine: which jobs get one, and which get a GPU alone in its place.

Rules: a part is for a job of one worker that no launcher starts; a job gets one where NVIDIA MPS can keep it to its
part, or where the operator lets jobs share GPUs that nothing divides; all others get whole GPUs, and are told so. Where
there are no GPUs, a worker that needs none takes a slot all the same.
"""

from collections.abc import Callable, Sequence
from typing import Final, Literal

from msgspec.structs import replace

from voda.domain.errors import InvalidField
from voda.domain.gpus import NO_GPUS, GpuRequest, Gpus
from voda.kinds.base import FieldWarning
from voda.manifests.parse import ParsedManifest
from voda.manifests.replicas import share_path, share_request

GpuSharing = Literal["auto", "plain", "off"]
_ALONE: Final = "its workers get whole {}: {}"


_PLAIN: Final = "`voda up --gpu-sharing plain` lets jobs share them without MPS (docs/shared-gpus.md)"


class ShareAdmission:
    """Decides of each manifest; `mps` returns whether MPS runs, for jobs of a single user."""

    def __init__(self, sharing: GpuSharing, *, has_gpus: bool, mps: Callable[[], bool]) -> None:
        self._sharing = sharing
        self._has_gpus = has_gpus
        self._mps = mps

    def description(self) -> Sequence[str]:
        """Return a sentence on how GPUs are shared now; none where there are no GPUs."""
        if not self._has_gpus:
            return ()
        if obstacle := self._obstacle():
            return (f"GPUs are not shared: {obstacle}",)
        how = "divided by NVIDIA MPS" if self._mps() else "which nothing divides (--gpu-sharing plain)"
        return (f"jobs may share GPUs, {how}: voda submit --gpu-milli 250",)

    def counted(self, parsed: ParsedManifest) -> ParsedManifest:
        """Return the manifest with the part of a GPU that its job gets, or a warning that it gets whole ones.

        Raises:
            InvalidField: it asks for a part that no GPU has.
        """
        path = share_path(parsed.job)
        if not path:
            has_slot = self._has_gpus or parsed.spec.gpus_per_replica
            return parsed if has_slot else replace(parsed, spec=replace(parsed.spec, gpus_per_replica=Gpus(1)))
        try:
            request = share_request(parsed.job)
        except ValueError as error:
            raise InvalidField(path, f"{path}: {error}") from error
        if request.devices:
            return _without_warning(replace(parsed, spec=replace(parsed.spec, gpus_per_replica=request.devices)), path)
        if why := self._why_alone(parsed, request):
            alone = FieldWarning(field=path, message=_ALONE.format("GPUs" if self._has_gpus else "CPU slots", why))
            return replace(parsed, warnings=(*_without_warning(parsed, path).warnings, alone))
        return _without_warning(
            replace(parsed, spec=replace(parsed.spec, share=request, gpus_per_replica=NO_GPUS)), path
        )

    def _why_alone(self, parsed: ParsedManifest, request: GpuRequest) -> str:
        if not request.is_share:
            return "it asks for none of a GPU"
        if parsed.job.local_launch != "torch" or parsed.spec.max_replicas > 1 or len(parsed.job.roles) > 1:
            return "a part of a GPU is for a job of one worker, without mpirun"
        if not self._has_gpus:
            return "this machine has no GPU to share"
        return self._obstacle()

    def _obstacle(self) -> str:
        """Return why jobs of this machine share no GPUs, and what helps; empty: they may."""
        if self._sharing == "plain" or (self._sharing == "auto" and self._mps()):
            return ""
        if self._sharing == "off":
            return f"voda up --gpu-sharing off says so; {_PLAIN}"
        return f"nothing here divides GPUs (NVIDIA MPS does not run, or serves one user alone); {_PLAIN}"


def _without_warning(parsed: ParsedManifest, path: str) -> ParsedManifest:
    resources = path.rpartition(".")[0]
    kept = tuple(each for each in parsed.warnings if not each.field.startswith(f"{resources}."))
    return replace(parsed, warnings=kept)
