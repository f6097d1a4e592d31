"""The client of the API server.

In reading order: `api` makes calls on trimmed objects, `reflector` lists and watches; both stand on `transport`, with
`credentials`, `decoding` and `errors`.
"""
