"""The store of a log in a relational database: `store`, `stream_reader`, `rows`, `schema`."""
