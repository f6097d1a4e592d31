"""A process beside the service that never looks up from its work, for tests of how such processes end."""

import os

from voda.app.side_process import ProcessBounds, begin, reply

if __name__ == "__main__":
    begin(ProcessBounds(niceness=1, memory_bytes=1 << 30))
    reply(str(os.getpid()).encode())
    while True:
        pass
