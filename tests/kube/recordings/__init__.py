"""What the real API server answers in small scenarios, recorded, so that the one in memory can be held against it.

`scenarios` has one function for each scenario, which sends requests to a server; `recorder` notes what it answers;
`answers/` has what Kubernetes 1.37.2 answered. The server in memory must answer alike
(tests/contract/test_api_server.py), and so must the real one (tests/integration/kubernetes/test_recordings.py, which
records anew by `--update-golden`).
"""
