"""The records that travel over HTTP, of the server, its clients (the command line is one) and the OpenAPI document.

In reading order: `base`, `jobs`, `explanations`, `pools`, `pods`, `events`,
`housekeeping`. What is answered is called a `...View`, a page of them a `...List`; a body is its use case's own type.
Rule: times are RFC 3339 in UTC; spans end in `_s`; a field is never renamed within /api/v1, only added.
"""
