"""voda: the control plane for elastic deep-learning training on GPU clusters.

docs/architecture.md says what each folder holds and how they work together; read `planner` and `controller` first.
Modules beside the folders: `clock` and `config` (the only readers of time and environment), `backoff`, `concurrency`,
`files`, `process_table`, `text`, `work_queue` (mechanisms that exist once), `metrics` (what is measured), `report` (for
training programs).
"""

__version__ = "0.1.0"
