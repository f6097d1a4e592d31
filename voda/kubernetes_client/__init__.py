"""The client of Kubernetes' API server: the adapter of clusters, use cases and elections talk to it.

In reading order: `api` makes calls on trimmed objects (`metadata` is what all of them have), `reflector` lists and
watches, `lease` elects; they stand on `transport`, with `credentials`, `decoding`, `paths` and `errors`. It knows no
jobs.
"""
