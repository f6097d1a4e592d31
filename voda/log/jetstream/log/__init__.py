"""Events as messages of a stream.

In reading order: `messages`, `state` and `index` (all pure), `marks` (records beside the stream), `synced_log` (state
and stream in step), `reader`, `writer`, `restore`, `truncation_check`, `settings`.
"""
