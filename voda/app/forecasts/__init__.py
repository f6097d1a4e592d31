"""When jobs will start and finish, kept fresh beside the service.

`forecaster` says when to forecast and shows what came of it, `process` is what does it.
"""
