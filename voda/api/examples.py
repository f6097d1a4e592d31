"""Examples of request bodies, shown by /openapi.json and /docs; tests submit them."""

from typing import Any, Final

import msgspec

from voda.api.operation import JSON, YAML

MPI_JOB: Final[dict[str, Any]] = msgspec.yaml.decode("""
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata:
  name: digits
  annotations: {voda.dev/min-replicas: "1", voda.dev/max-replicas: "4", voda.dev/epochs: "20"}
spec:
  slotsPerWorker: 1
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          containers:
          - name: launcher
            image: python:3.11
            command: [voda, run, --max-np, "4", --, python, train.py]
    Worker:
      replicas: 1
      template: {spec: {containers: [{name: worker, image: "python:3.11"}]}}
""")
PYTORCH_JOB: Final[dict[str, Any]] = msgspec.yaml.decode("""
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: digits-torch
  annotations: {voda.dev/epochs: "20"}
spec:
  elasticPolicy: {minReplicas: 1, maxReplicas: 4}
  pytorchReplicaSpecs:
    Worker:
      replicas: 1
      template: {spec: {containers: [{name: pytorch, image: pytorch/pytorch, command: [torchrun, train.py]}]}}
""")
EXAMPLES: Final[dict[str, dict[str, dict[str, Any]]]] = {
    "submitJob": {
        YAML: {"mpi": {"summary": "An MPIJob of 1 to 4 workers", "value": MPI_JOB}},
        JSON: {"pytorch": {"summary": "A PyTorchJob of 1 to 4 workers", "value": PYTORCH_JOB}},
    },
    "createTraining": {YAML: {"mpi": {"summary": "An MPIJob of 1 to 4 workers", "value": MPI_JOB}}},
    "changeJob": {JSON: {"grow": {"summary": "Let it grow further", "value": {"max_replicas": 8, "priority": 1}}}},
    "reportProgress": {
        JSON: {
            "epoch": {
                "summary": "The third epoch is done",
                "value": {"epoch": 3, "epoch_time_s": 12.5, "workers": 4, "metrics": {"accuracy": 0.91}},
            }
        }
    },
    "changeSettings": {
        JSON: {"policy": {"summary": "Another policy", "value": {"policy": "elastic-tiresias", "ratelimit_s": 10}}}
    },
}
"""Operation -> media type -> name -> example."""
